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
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
)

// protobufCodec encodes payloads by a message of a .proto file.
type protobufCodec struct {
	message protoreflect.MessageDescriptor
	typ     protoreflect.MessageType
	index   []int
	partial bool // no field is required, so that this need not be checked
	digits  int  // how many digits its floats and doubles are sure to keep; 0: it has none
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
	// The compiler's own descriptors look up a field's features each time that it is asked for them.
	file, err := protodesc.NewFile(protodesc.ToFileDescriptorProto(files[0]), imports{files[0]})
	if err != nil {
		return nil, err
	}
	found, err := messageIn(file, message)
	if err != nil {
		return nil, err
	}
	return &protobufCodec{
		message: found, typ: dynamicpb.NewMessageType(found), index: indexOf(found),
		partial: isPartial(found, make(map[protoreflect.FullName]bool)), digits: exactDigits(found, make(map[protoreflect.FullName]bool)),
	}, nil
}

// imports finds what a compiled file imports.
type imports struct{ file protoreflect.FileDescriptor }

func (i imports) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	for n := range i.file.Imports().Len() {
		if found := i.file.Imports().Get(n); found.Path() == path {
			return found.FileDescriptor, nil
		}
	}
	return protoregistry.GlobalFiles.FindFileByPath(path)
}

func (i imports) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	for n := range i.file.Imports().Len() {
		one := new(protoregistry.Files)
		if err := one.RegisterFile(i.file.Imports().Get(n).FileDescriptor); err != nil {
			return nil, err
		}
		if found, err := one.FindDescriptorByName(name); err == nil {
			return found, nil
		}
	}
	return nil, protoregistry.NotFound
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
	m := c.typ.New().Interface()
	if err := (protojson.UnmarshalOptions{AllowPartial: c.partial}).Unmarshal(payload, m); err != nil {
		return nil, c.misfit(payload, err)
	}
	if c.digits > 0 && hasDigits(payload, c.digits+1) {
		v, err := parse(payload)
		if err == nil {
			err = checkMessage(c.message, v)
		}
		if err != nil {
			return nil, err
		}
	}
	encoded, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.MarshalAppend(dst, m)
	if err != nil {
		return nil, misfits("cannot be encoded as %s", c.message.FullName())
	}
	return encoded, nil
}

// place is where the errors of protojson say that something is wrong. They also have the value, so their
// texts are not used.
var place = regexp.MustCompile(`\(line (\d+):(\d+)\)`)

// misfit returns an error with the pointer of what protojson found wrong.
func (c *protobufCodec) misfit(payload []byte, err error) error {
	problem := fmt.Sprintf("does not fit the message %s", c.message.FullName())
	v, invalid := parse(payload)
	found := place.FindStringSubmatch(err.Error())
	switch {
	case invalid != nil:
		return misfits("%s", invalid.Error())
	case found == nil:
		return misfits("%s", problem)
	}
	row, _ := strconv.Atoi(found[1])
	column, _ := strconv.Atoi(found[2])
	rest := payload
	for ; row > 1; row-- {
		rest = rest[bytes.IndexByte(rest, '\n')+1:]
	}
	offset := len(payload) - len(rest)
	for i := range string(rest) {
		if column--; column <= 0 {
			offset += i
			break
		}
	}
	return &misfit{pointerTo(v, offset-bytes.Index(payload, v)), problem}
}

// pointerTo returns the pointer of the innermost value with a byte at an offset, or of the member whose name
// is there.
func pointerTo(v value, offset int) string {
	inside := func(part value) (from int, ok bool) {
		from = cap(v) - cap(part)
		return from, offset >= from && offset < from+len(part)
	}
	switch v.kind() {
	case '{':
		for quoted, member := range v.members() {
			_, named := inside(quoted)
			from, within := inside(member)
			if !named && !within {
				continue
			}
			name, _ := quoted.text()
			pointer := "/" + pointerEscapes.Replace(string(name))
			if within {
				pointer += pointerTo(member, offset-from)
			}
			return pointer
		}
	case '[':
		i := 0
		for element := range v.elements() {
			if from, within := inside(element); within {
				return "/" + strconv.Itoa(i) + pointerTo(element, offset-from)
			}
			i++
		}
	}
	return ""
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

// exactDigits returns how many digits the floats and doubles of a message are sure to keep (IEEE 754); 0 if it
// has none.
func exactDigits(m protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) (least int) {
	if seen[m.FullName()] {
		return 0
	}
	seen[m.FullName()] = true
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		digits := map[int]int{32: 6, 64: 15}[floatBits(f)]
		if f.Message() != nil {
			digits = exactDigits(f.Message(), seen)
		}
		if least == 0 || digits > 0 && digits < least {
			least = digits
		}
	}
	return least
}

func floatBits(f protoreflect.FieldDescriptor) int {
	switch f.Kind() {
	case protoreflect.FloatKind:
		return 32
	case protoreflect.DoubleKind:
		return 64
	}
	return 0
}

// hasDigits reports whether a payload has a number, or another text, with so many digits.
func hasDigits(payload []byte, many int) bool {
	digits := 0
	for _, c := range payload {
		switch {
		case c >= '0' && c <= '9':
			if digits++; digits == many {
				return true
			}
		case c != '.':
			digits = 0
		}
	}
	return false
}

// checkMessage refuses numbers that protojson has rounded.
func checkMessage(m protoreflect.MessageDescriptor, v value) error {
	if v.kind() != '{' {
		if v.kind() == '0' && m.FullName().Parent() == "google.protobuf" && m.Fields().Len() == 1 { // DoubleValue, FloatValue
			return checkField(m.Fields().Get(0), v)
		}
		return nil // another well-known type with a form of its own
	}
	if m.FullName() == "google.protobuf.Struct" {
		return checkNumbers(v)
	}
	for quoted, member := range v.members() {
		name, err := quoted.text()
		if err != nil {
			return misfits("has a name that %s", err.Error())
		}
		f := m.Fields().ByJSONName(string(name))
		if f == nil {
			f = m.Fields().ByTextName(string(name))
		}
		if f == nil {
			continue
		}
		if err := checkField(f, member); err != nil {
			return at(string(name), err)
		}
	}
	return nil
}

func checkField(f protoreflect.FieldDescriptor, v value) error {
	check := func(f protoreflect.FieldDescriptor, v value) error {
		if f.Message() != nil {
			return checkMessage(f.Message(), v)
		}
		if bits := floatBits(f); bits > 0 && v.kind() == '0' {
			_, err := toFloat(v, bits)
			return err
		}
		return nil
	}
	switch {
	case f.IsMap() && v.kind() == '{':
		for quoted, member := range v.members() {
			if err := check(f.MapValue(), member); err != nil {
				name, _ := quoted.text()
				return at(string(name), err)
			}
		}
	case f.IsList() && v.kind() == '[':
		i := 0
		for element := range v.elements() {
			if err := check(f, element); err != nil {
				return at(strconv.Itoa(i), err)
			}
			i++
		}
	case !f.IsMap() && !f.IsList():
		return check(f, v)
	}
	return nil
}

// checkNumbers checks all numbers of a google.protobuf.Struct, which are doubles.
func checkNumbers(v value) error {
	switch v.kind() {
	case '0':
		_, err := toFloat(v, 64)
		return err
	case '{':
		for quoted, member := range v.members() {
			if err := checkNumbers(member); err != nil {
				name, _ := quoted.text()
				return at(string(name), err)
			}
		}
	case '[':
		i := 0
		for element := range v.elements() {
			if err := checkNumbers(element); err != nil {
				return at(strconv.Itoa(i), err)
			}
			i++
		}
	}
	return nil
}

// titleOf returns the title of a JSON Schema, which is its name in a registry.
func titleOf(text string) string {
	var schema struct {
		Title string `json:"title"`
	}
	_ = json.Unmarshal([]byte(text), &schema) // one that is no object has no title
	return schema.Title
}

// isProtobuf reports whether a payload is a message in the binary format: the media types of the package
// serializer/protobuf.
func isProtobuf(mediaType string) bool {
	switch mediaType {
	case "application/protobuf", "application/x-protobuf", "application/x-protobuffer":
		return true
	}
	return false
}

// mediaTypeOf returns a media type in lower case and without parameters.
func mediaTypeOf(contentType string) string {
	before, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(before))
}
