package encoding

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/twmb/avro"
)

// avroCodec encodes payloads by a schema in Avro.
//
// The library parses schemas and encodes defaults and values of logical types. The rest is encoded here,
// because the library takes decoded values: it would not notice properties that the schema does not have and
// numbers that it rounds, and would take an object with one member for a union that names its branch.
type avroCodec struct {
	root *avroType
	name string
}

// avroType is a type of a schema. Which fields it has depends on its kind.
type avroType struct {
	kind     string // of the specification, such as record
	fields   []avroField
	byName   map[string]int // the fields' indexes
	symbols  map[string]int
	branches []*avroType
	null     int       // the branch for null; -1 if there is none
	items    *avroType // of an array or a map
	size     int
	logical  *avro.Schema // nil: no logical type
}

// avroField is a field of a record. A missing property has the default, or null.
type avroField struct {
	name        string
	typ         *avroType
	substitute  []byte // what is written for a missing property
	replaceable bool   // it has one
}

func newAvroCodec(text string) (*avroCodec, error) {
	schema, err := avro.Parse(text)
	if err != nil {
		return nil, err
	}
	root := schema.Root()
	c := &avroCompiler{named: make(map[string]*avroType)}
	typ, err := c.compile(root, "")
	if err != nil {
		return nil, err
	}
	codec := &avroCodec{root: typ}
	if root.Name != "" && len(root.Branches) == 0 {
		codec.name = fullName(root.Name, root.Namespace)
	}
	return codec, nil
}

func (c *avroCodec) append(dst, payload []byte) ([]byte, error) {
	v, err := parse(payload)
	if err != nil {
		return nil, misfits("%s", err.Error())
	}
	return c.root.append(dst, v)
}

// avroCompiler makes types of a parsed schema.
type avroCompiler struct{ named map[string]*avroType }

func fullName(name, namespace string) string {
	if namespace == "" || strings.Contains(name, ".") {
		return name
	}
	return namespace + "." + name
}

func (c *avroCompiler) compile(n *avro.SchemaNode, namespace string) (*avroType, error) {
	t := &avroType{kind: n.Type, null: -1}
	if slices.Contains([]string{"record", "error", "enum", "fixed"}, n.Type) {
		full := fullName(n.Name, n.Namespace)
		c.named[full] = t
		namespace = full[:max(0, strings.LastIndexByte(full, '.'))]
	}
	if isLogical(n.LogicalType) {
		leaf := avro.SchemaNode{Type: n.Type, LogicalType: n.LogicalType, Precision: n.Precision, Scale: n.Scale, Name: n.Name, Namespace: n.Namespace, Size: n.Size}
		var err error
		t.logical, err = leaf.Schema()
		return t, err
	}
	var err error
	switch n.Type {
	case "null", "boolean", "int", "long", "float", "double", "bytes", "string":
	case "record", "error":
		err = c.compileFields(t, n, namespace)
	case "enum":
		t.symbols = make(map[string]int, len(n.Symbols))
		for i, symbol := range n.Symbols {
			t.symbols[symbol] = i
		}
	case "fixed":
		t.size = n.Size
	case "array":
		t.items, err = c.compile(n.Items, namespace)
	case "map":
		t.items, err = c.compile(n.Values, namespace)
	case "union":
		for i := range n.Branches {
			branch, err := c.compile(&n.Branches[i], namespace)
			if err != nil {
				return nil, err
			}
			if branch.kind == "null" {
				t.null = i
			}
			t.branches = append(t.branches, branch)
		}
	default:
		for _, name := range []string{fullName(n.Type, namespace), n.Type} {
			if known := c.named[name]; known != nil {
				return known, nil
			}
		}
		return nil, fmt.Errorf("the type %q is not known", n.Type)
	}
	return t, err
}

// isLogical reports whether the library knows a logical type. Others say nothing about how a value is encoded.
func isLogical(name string) bool {
	switch name {
	case "decimal", "big-decimal", "uuid", "date", "duration":
		return true
	}
	return strings.HasPrefix(name, "time-") || strings.HasPrefix(name, "timestamp-") || strings.HasPrefix(name, "local-timestamp-")
}

func (c *avroCompiler) compileFields(t *avroType, n *avro.SchemaNode, namespace string) error {
	t.byName = make(map[string]int, len(n.Fields))
	for i, f := range n.Fields {
		typ, err := c.compile(&n.Fields[i].Type, namespace)
		if err != nil {
			return fmt.Errorf("field %s: %w", f.Name, err)
		}
		field := avroField{name: f.Name, typ: typ}
		switch {
		case f.HasDefault:
			schema, err := n.Fields[i].Type.Schema()
			if err == nil {
				field.substitute, err = schema.Encode(f.Default)
			}
			if err != nil {
				return fmt.Errorf("default of field %s: %w", f.Name, err)
			}
			field.replaceable = true
		case typ.null >= 0:
			field.substitute, field.replaceable = binary.AppendVarint(nil, int64(typ.null)), true
		case typ.kind == "null":
			field.replaceable = true
		}
		t.byName[f.Name] = i
		t.fields = append(t.fields, field)
	}
	return nil
}

// accepts reports whether a type may fit a value by its kind.
func (t *avroType) accepts(v value) bool {
	switch t.kind {
	case "null":
		return v.kind() == 'n'
	case "boolean":
		return v.kind() == 't' || v.kind() == 'f'
	case "int", "long", "float", "double":
		return v.kind() == '0' || t.logical != nil && v.kind() == '"'
	case "bytes", "string", "enum", "fixed":
		return v.kind() == '"' || t.logical != nil && v.kind() == '0'
	case "array":
		return v.kind() == '['
	case "record", "error", "map":
		return v.kind() == '{'
	}
	return true // a union, which looks for itself
}

// append appends the encoded value. If it fails, dst is lost. Its errors are misfits.
func (t *avroType) append(dst []byte, v value) ([]byte, error) {
	if !t.accepts(v) {
		return nil, misfits("is %s, and the schema has %s", v.kindName(), t.kind)
	}
	if t.logical != nil {
		return t.appendLogical(dst, v)
	}
	switch t.kind {
	case "null":
		return dst, nil
	case "boolean":
		if v.kind() == 't' {
			return append(dst, 1), nil
		}
		return append(dst, 0), nil
	case "int":
		return appendInteger(dst, v, math.MinInt32, math.MaxInt32, t.kind)
	case "long":
		return appendInteger(dst, v, math.MinInt64, math.MaxInt64, t.kind)
	case "float":
		f, err := toFloat(v, 32)
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(f))), err
	case "double":
		f, err := toFloat(v, 64)
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f)), err
	case "array":
		return t.appendArray(dst, v)
	case "map":
		return t.appendMap(dst, v)
	case "record", "error":
		return t.appendRecord(dst, v)
	case "union":
		return t.appendUnion(dst, v)
	}
	return t.appendText(dst, v)
}

func appendInteger(dst []byte, v value, least, most int64, kind string) ([]byte, error) {
	n, ok := toInteger(v)
	if !ok || n < least || n > most {
		return nil, misfits("is not a whole number in the range of %s", kind)
	}
	return binary.AppendVarint(dst, n), nil
}

// appendText appends what JSON has as a string.
func (t *avroType) appendText(dst []byte, v value) ([]byte, error) {
	text, err := v.text()
	if err != nil {
		return nil, misfits("%s", err.Error())
	}
	switch t.kind {
	case "enum":
		i, known := t.symbols[string(text)]
		if !known {
			return nil, misfits("is not a symbol of the enum")
		}
		return binary.AppendVarint(dst, int64(i)), nil
	case "bytes", "fixed":
		if text, err = fromBase64(text); err != nil {
			return nil, err
		}
	}
	if t.kind == "fixed" {
		if len(text) != t.size {
			return nil, misfits("has %d bytes, and the schema has %d", len(text), t.size)
		}
		return append(dst, text...), nil
	}
	return append(binary.AppendVarint(dst, int64(len(text))), text...), nil
}

// fromBase64 accepts only what a reader would encode in the same way.
func fromBase64(text []byte) ([]byte, error) {
	decoded, err := base64.StdEncoding.Strict().AppendDecode(nil, text)
	if err != nil || bytes.ContainsAny(text, "\r\n") {
		return nil, misfits("is not base64 (RFC 4648, section 4, with padding)")
	}
	return decoded, nil
}

func (t *avroType) appendLogical(dst []byte, v value) ([]byte, error) {
	var given any = json.Number(v)
	if v.kind() == '"' {
		text, err := v.text()
		if err != nil {
			return nil, misfits("%s", err.Error())
		}
		given = string(text)
	}
	encoded, err := t.logical.AppendEncode(dst, given)
	if err != nil { // its text has the value
		return nil, misfits("is not a %s that the schema can have", t.logical.Root().LogicalType)
	}
	return encoded, nil
}

func (t *avroType) appendArray(dst []byte, v value) ([]byte, error) {
	count := 0
	for range v.elements() {
		count++
	}
	if count > 0 {
		dst = binary.AppendVarint(dst, int64(count))
	}
	var err error
	i := 0
	for element := range v.elements() {
		if dst, err = t.items.append(dst, element); err != nil {
			return nil, at(fmt.Sprint(i), err)
		}
		i++
	}
	return append(dst, 0), nil
}

func (t *avroType) appendMap(dst []byte, v value) ([]byte, error) {
	seen := make(map[string]bool)
	for quoted := range v.members() {
		name, err := quoted.text()
		if err != nil {
			return nil, misfits("has a name that %s", err.Error())
		}
		if seen[string(name)] {
			return nil, at(string(name), misfits("is there twice"))
		}
		seen[string(name)] = true
	}
	if len(seen) > 0 {
		dst = binary.AppendVarint(dst, int64(len(seen)))
	}
	for quoted, member := range v.members() {
		name, err := quoted.text()
		if err != nil {
			return nil, err
		}
		dst = append(binary.AppendVarint(dst, int64(len(name))), name...)
		if dst, err = t.items.append(dst, member); err != nil {
			return nil, at(string(name), err)
		}
	}
	return append(dst, 0), nil
}

func (t *avroType) appendRecord(dst []byte, v value) ([]byte, error) {
	var room [16]value
	found := room[:]
	if len(t.fields) > len(room) {
		found = make([]value, len(t.fields))
	}
	for quoted, member := range v.members() {
		name, err := quoted.text()
		if err != nil {
			return nil, misfits("has a name that %s", err.Error())
		}
		i, known := t.byName[string(name)]
		switch {
		case !known:
			return nil, at(string(name), misfits("is not in the schema"))
		case found[i] != nil:
			return nil, at(string(name), misfits("is there twice"))
		}
		found[i] = member
	}
	for i := range t.fields {
		f := &t.fields[i]
		switch {
		case found[i] != nil:
			var err error
			if dst, err = f.typ.append(dst, found[i]); err != nil {
				return nil, at(f.name, err)
			}
		case f.replaceable:
			dst = append(dst, f.substitute...)
		default:
			return nil, at(f.name, misfits("is missing"))
		}
	}
	return dst, nil
}

// appendUnion appends the first branch that fits.
func (t *avroType) appendUnion(dst []byte, v value) ([]byte, error) {
	var reason error
	candidates := 0
	for i, branch := range t.branches {
		if !branch.accepts(v) {
			continue
		}
		encoded, err := branch.append(binary.AppendVarint(dst, int64(i)), v)
		if err == nil {
			return encoded, nil
		}
		reason = err
		candidates++
	}
	if candidates == 1 {
		return nil, reason
	}
	return nil, misfits("is %s, and fits no branch of the union", v.kindName())
}
