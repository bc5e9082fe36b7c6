package encoding

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// protobufCodec encodes payloads by a message of a .proto file.
type protobufCodec struct {
	message protoreflect.MessageDescriptor
	typ     protoreflect.MessageType
	index   []int
	partial bool          // no field is required, so that this need not be checked
	quick   *quickMessage // nil if fields are required
}

// protoFile is the name under which the schema is compiled.
const protoFile = "schema.proto"

func newProtobufCodec(text, message string) (*protobufCodec, error) {
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(protocompile.ResolverFunc(func(path string) (protocompile.SearchResult, error) {
		if path != protoFile {
			return protocompile.SearchResult{}, fmt.Errorf("only google/protobuf/*.proto can be imported; put the messages of %s into the schema", path)
		}
		return protocompile.SearchResult{Source: strings.NewReader(text)}, nil
	}))}
	files, err := compiler.Compile(context.Background(), protoFile)
	if err != nil {
		return nil, err
	}
	found, err := messageIn(files[0], message)
	if err != nil {
		return nil, err
	}
	c := &protobufCodec{message: found, typ: dynamicpb.NewMessageType(found), index: indexOf(found), partial: isPartial(found, make(map[protoreflect.FullName]bool))}
	if c.partial {
		c.quick = newQuickMessage(found, make(map[protoreflect.FullName]*quickMessage))
	}
	return c, nil
}

// messageIn returns a message by its full name; "" means the first one.
func messageIn(file protoreflect.FileDescriptor, name string) (protoreflect.MessageDescriptor, error) {
	messages := file.Messages()
	if name == "" {
		if messages.Len() == 0 {
			return nil, errors.New("it has no message")
		}
		return messages.Get(0), nil
	}
	rest, inside := name, file.Package() == ""
	if !inside {
		rest, inside = strings.CutPrefix(name, string(file.Package())+".")
	}
	var found protoreflect.MessageDescriptor
	for part := range strings.SplitSeq(rest, ".") {
		if found = messages.ByName(protoreflect.Name(part)); found == nil || !inside {
			return nil, fmt.Errorf("it has no message %s; its package is %q", name, file.Package())
		}
		messages = found.Messages()
	}
	return found, nil
}

// indexOf returns the places of a message and of those around it, outermost first. They are counted as
// Confluent's serializers count them, in the file's text: the entries of maps, which only descriptors have as
// messages, do not count.
func indexOf(m protoreflect.MessageDescriptor) []int {
	var path []int
	for d := protoreflect.Descriptor(m); ; d = d.Parent() {
		around, ok := d.Parent().(interface {
			Messages() protoreflect.MessageDescriptors
		})
		if !ok {
			break
		}
		place := 0
		for i := range d.Index() {
			if !around.Messages().Get(i).IsMapEntry() {
				place++
			}
		}
		path = append(path, place)
	}
	slices.Reverse(path)
	return path
}

func (c *protobufCodec) appendBinary(dst, payload []byte) ([]byte, error) {
	if err := proto.Unmarshal(payload, c.typ.New().Interface()); err != nil {
		return nil, misfits("is not a message %s", c.message.FullName())
	}
	return append(dst, payload...), nil
}

func (c *protobufCodec) append(dst, payload []byte) ([]byte, error) {
	if encoded, ok := c.appendQuickly(dst, payload); ok {
		return encoded, nil
	}
	m := c.typ.New().Interface()
	if err := (protojson.UnmarshalOptions{AllowPartial: c.partial}).Unmarshal(payload, m); err != nil {
		return nil, c.misfit(payload, err)
	}
	encoded, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.MarshalAppend(dst, m)
	if err != nil {
		return nil, misfits("cannot be encoded as %s", c.message.FullName())
	}
	return encoded, nil
}

// appendQuickly appends a message that the quick form knows. Escapes may be of half a surrogate pair, which
// protojson refuses.
func (c *protobufCodec) appendQuickly(dst, payload []byte) ([]byte, bool) {
	if c.quick == nil || bytes.Contains(payload, []byte(`\u`)) || check(payload) != nil {
		return nil, false
	}
	p := parsers.Get()
	defer parsers.Put(p)
	v, err := p.ParseBytes(payload)
	if err != nil {
		return nil, false
	}
	return c.quick.append(dst, v)
}

// place is where the errors of protojson say that something is wrong. They also have the value, so their
// texts are not used.
var place = regexp.MustCompile(`\(line (\d+):(\d+)\)`)

// misfit returns an error with the pointer of what protojson found wrong.
func (c *protobufCodec) misfit(payload []byte, err error) error {
	if wrong := check(payload); wrong != nil {
		return wrong
	}
	m := &misfit{problem: fmt.Sprintf("does not fit the message %s", c.message.FullName())}
	unknown := protojson.UnmarshalOptions{AllowPartial: c.partial, DiscardUnknown: true}
	if unknown.Unmarshal(payload, c.typ.New().Interface()) == nil {
		m.problem, m.newer = fmt.Sprintf("is not in the message %s; another version of this program may know it", c.message.FullName()), true
	}
	if found := place.FindStringSubmatch(err.Error()); found != nil {
		row, _ := strconv.Atoi(found[1])
		column, _ := strconv.Atoi(found[2])
		m.pointer = pointerAt(payload, offsetOf(payload, row, column))
	}
	return m
}

// offsetOf returns the offset of the character in a row and a column, which are counted from 1.
func offsetOf(payload []byte, row, column int) int64 {
	rest := payload
	for ; row > 1; row-- {
		rest = rest[bytes.IndexByte(rest, '\n')+1:]
	}
	for i := range string(rest) {
		if column--; column <= 0 {
			return int64(len(payload) - len(rest) + i)
		}
	}
	return int64(len(payload))
}

// isPartial reports whether no field is required, as only proto2 and editions have them.
func isPartial(m protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) bool {
	if seen[m.FullName()] {
		return true
	}
	seen[m.FullName()] = true
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if f.Cardinality() == protoreflect.Required || f.Message() != nil && !isPartial(f.Message(), seen) {
			return false
		}
	}
	return true
}

// titleOf returns the title of a JSON Schema, which is its name in a registry.
func titleOf(text string) string {
	var schema struct {
		Title string `json:"title"`
	}
	_ = json.Unmarshal([]byte(text), &schema) // one that is no object has no title
	return schema.Title
}
