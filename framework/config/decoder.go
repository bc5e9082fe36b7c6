package config

import (
	"cmp"
	"encoding"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/config/internal/keys"
	"github.com/waybill-go/waybill/framework/config/internal/secret"
)

// Limits of a file after its aliases are followed, because a short file with aliases can be
// arbitrarily large.
const (
	maxNodes = 100_000
	maxDepth = 50
)

// decoder fills structs from YAML nodes and environment variables. Unlike yaml.Node.Decode it
// continues after a mistake, reports unknown keys, and records where each key is, for mistakes
// that are found later.
//
// Keys are named by their paths, such as sinks.partner.retry.initial.
type decoder struct {
	report      *report
	environment *environment
	outside     outside
	flags       map[string]string // values of keys from the command line, which override all others
	only        []string          // keys that are read, with what is below them; nil: all

	places map[string]place  // where each key is set
	typed  map[string]string // values with references to variables or files, as the user typed them
	fields map[string]bool   // keys that exist
	// secrecy is how much of each key's value is secret; values are the decoded values.
	secrecy map[string]secret.Secrecy
	values  map[string]string
	wrong   map[string]bool // keys with a reported mistake

	nodes, depth int
	tooLarge     bool // nodes or depth exceeds its limit
	lenient      bool // a reference without a value stays as it is typed
}

// place is where a key is set.
type place struct {
	where string
	line  int
	empty bool // the key has no value, which is the same as no key
}

// mistake reports a mistake of a key at the place where it is set, or at that of the nearest
// key above it.
func (d *decoder) mistake(path, format string, args ...any) {
	d.wrong[path] = true
	p := d.placeOf(path)
	d.report.add(p.where, p.line, format, args...)
}

func (d *decoder) placeOf(path string) place {
	for ; path != ""; path = keys.Parent(path) {
		if p, ok := d.places[path]; ok {
			return p
		}
	}
	return place{where: d.report.file}
}

// given reports whether the user has set a key to a value.
func (d *decoder) given(path string) bool {
	p, ok := d.places[path]
	return ok && !p.empty
}

// decode fills v, which must be settable, with the value at a path. node is nil if the file has
// no value; a variable may still set one.
func (d *decoder) decode(node *yaml.Node, v reflect.Value, path string) {
	d.nodes++
	d.depth++
	defer func() { d.depth-- }()
	if d.nodes > maxNodes || d.depth > maxDepth {
		if !d.tooLarge {
			d.mistake(path, "the file is too large after its aliases are followed")
		}
		d.tooLarge = true
		return
	}
	node = follow(node)
	if with, ok := v.Addr().Interface().(*With); ok {
		with.node = node
		return
	}
	switch {
	case d.skips(path):
		d.environment.skip(path)
	case keys.IsScalar(v):
		d.scalar(node, v, path)
	case v.Kind() == reflect.Struct:
		d.structure(node, v, path)
	case v.Kind() == reflect.Map:
		d.mapping(node, v, path)
	case v.Kind() == reflect.Slice:
		d.list(node, v, path)
	case v.Kind() == reflect.Pointer:
		d.pointer(node, v, path)
	default: // an interface, or a type that no configuration uses
		d.anything(node, v, path)
	}
}

// skips reports whether a key is neither read nor above one that is.
func (d *decoder) skips(path string) bool {
	return path != "" && d.only != nil && !slices.ContainsFunc(d.only, func(read string) bool {
		return path == read || strings.HasPrefix(path, read+".") || strings.HasPrefix(read, path+".")
	})
}

// structure fills a struct by its yaml tags.
func (d *decoder) structure(node *yaml.Node, v reflect.Value, path string) {
	fields := keys.Of(v)
	if short := slices.IndexFunc(fields, keys.Field.IsShort); short >= 0 && node != nil && node.Kind == yaml.ScalarNode {
		d.decode(node, fields[short].Value, path)
		return
	}
	names := make([]string, len(fields))
	values := make(map[string]*yaml.Node, len(fields))
	for i, f := range fields {
		names[i] = f.Name
		d.fields[keys.Join(path, f.Name)] = true
	}
	for _, e := range d.entries(node, path, "keys: "+strings.Join(names, ", ")) {
		name := e.key.Value
		if !slices.Contains(names, name) {
			d.unknown(e.key, path, names)
			continue
		}
		values[name] = e.value
	}
	above := d.secrecyOf(path)
	for _, f := range fields {
		at := keys.Join(path, f.Name)
		d.secrecy[at] = f.Secrecy(above)
		d.decode(values[f.Name], f.Value, at)
		if !d.given(at) || d.wrong[at] || d.skips(at) {
			continue
		}
		if zero := f.Tag.Get("zero"); zero == "refused" && f.Value.IsZero() {
			d.mistake(at, "%s is 0: leave it out to use its default", at)
		} else if zero == "required" && f.Value.IsZero() {
			d.mistake(at, "%s is 0: use more than 0", at)
		}
		if choices := f.Choices(); len(choices) > 0 && !slices.Contains(choices, f.Value.String()) {
			d.mistake(at, "%s is %q: use %s", at, f.Value.String(), oneOf(choices))
		}
	}
}

func (d *decoder) unknown(key *yaml.Node, path string, known []string) {
	at := "unknown key"
	if path != "" {
		at = path + ": " + at
	}
	hint := didYouMean(key.Value, known)
	if slices.Contains(known, "with") && suggest(key.Value, known) == "" {
		hint += "; the kind's settings belong below with"
	}
	d.report.add(d.report.file, key.Line, "%s %q%s", at, key.Value, hint)
	if near := suggest(key.Value, known); near != "" && !d.given(keys.Join(path, near)) {
		d.wrong[keys.Join(path, near)] = true // do not report it as missing, too
	}
}

// mapping fills a map with the file's entries. Variables can change them, but not add any.
func (d *decoder) mapping(node *yaml.Node, v reflect.Value, path string) {
	if v.Type().Key().Kind() != reflect.String {
		d.anything(node, v, path)
		return
	}
	above, simple := d.secrecyOf(path), v.Type().Elem().Kind() == reflect.String || v.Type().Elem().Kind() == reflect.Interface
	for _, e := range d.entries(node, path, "names and values") {
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		value, at := reflect.New(v.Type().Elem()).Elem(), keys.Join(path, e.key.Value)
		if simple { // otherwise the key is a name that the user chooses, such as a sink's
			d.secrecy[at] = above.Below(e.key.Value)
		}
		d.decode(e.value, value, at)
		v.SetMapIndex(reflect.ValueOf(e.key.Value).Convert(v.Type().Key()), value)
	}
}

// list fills a slice from a list, or from a comma-separated variable.
func (d *decoder) list(node *yaml.Node, v reflect.Value, path string) {
	if text, ok := d.override(path); ok {
		node = &yaml.Node{Kind: yaml.SequenceNode}
		for item := range strings.SplitSeq(text, ",") {
			node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: strings.TrimSpace(item)})
		}
	}
	switch {
	case node == nil:
		return
	case node.Kind != yaml.SequenceNode:
		d.mistake(path, "%s is %s: write a list, like [a, b]", path, nameOf(node))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(node.Content), len(node.Content)))
	if d.secrecyOf(path) == secret.Arguments {
		d.secrecy[path+"[0]"] = secret.Nothing // the program
	}
	for i, item := range node.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		if item.Line > 0 {
			d.places[at] = place{where: d.report.file, line: item.Line}
		}
		d.decode(item, v.Index(i), at)
	}
}

func (d *decoder) pointer(node *yaml.Node, v reflect.Value, path string) {
	_, _, set := d.environment.lookUp(path)
	if node == nil && !set && !d.environment.anyBelow(path) {
		return
	}
	value := reflect.New(v.Type().Elem())
	d.decode(node, value.Elem(), path)
	v.Set(value)
}

// anything fills a value without known keys.
func (d *decoder) anything(node *yaml.Node, v reflect.Value, path string) {
	if node == nil {
		return
	}
	var value any
	switch node.Kind {
	case yaml.MappingNode:
		m := make(map[string]any)
		d.mapping(node, reflect.ValueOf(&m).Elem(), path)
		value = m
	case yaml.SequenceNode:
		var l []any
		d.list(node, reflect.ValueOf(&l).Elem(), path)
		value = l
	default:
		scalar, ok := d.expanded(node, path)
		if !ok {
			return
		}
		if err := scalar.Decode(&value); err != nil {
			d.mistake(path, "%s cannot be read", path)
			return
		}
	}
	if got := reflect.ValueOf(value); got.IsValid() && got.Type().AssignableTo(v.Type()) {
		v.Set(got)
		return
	}
	d.mistake(path, "%s is %s, which this key does not take", path, nameOf(node))
}

// scalar fills a single value.
func (d *decoder) scalar(node *yaml.Node, v reflect.Value, path string) {
	if text, ok := d.override(path); ok {
		if value, ok := d.whole(text, text, path); ok {
			d.set(&yaml.Node{Kind: yaml.ScalarNode, Value: value}, v, path, text)
		}
		return
	}
	if node == nil {
		return
	}
	_, custom := v.Addr().Interface().(yaml.Unmarshaler)
	if node.Kind != yaml.ScalarNode && !custom {
		d.mistake(path, "%s is %s: write a single value", path, nameOf(node))
		return
	}
	if expanded, ok := d.expanded(node, path); ok {
		d.set(expanded, v, path, node.Value)
	}
}

// expanded returns a copy of a node with its ${…} and file: replaced by their values.
func (d *decoder) expanded(node *yaml.Node, path string) (*yaml.Node, bool) {
	if node.Kind != yaml.ScalarNode || !strings.Contains(node.Value, "$") && !strings.HasPrefix(node.Value, filePrefix) {
		return node, true
	}
	text, problems := expand(node.Value, func(reference string) (value, problem string) {
		value, brought, problem := d.outside.resolve(reference)
		if brought {
			d.typed[path] = node.Value
		}
		return value, problem
	})
	if len(problems) > 0 && d.lenient {
		return node, true
	}
	for _, problem := range problems {
		d.mistake(path, "%s: %s", path, problem)
	}
	if len(problems) > 0 {
		return nil, false
	}
	text, ok := d.whole(text, node.Value, path)
	// No tag and no quotes: the text is read as if it were written in the file.
	return &yaml.Node{Kind: yaml.ScalarNode, Value: text, Line: node.Line}, ok
}

// whole returns a value, or the content of the file that it names. typed is the value as the
// user typed it.
func (d *decoder) whole(value, typed, path string) (text string, ok bool) {
	text, brought, problem := d.outside.whole(value, typed)
	if brought {
		d.typed[path] = typed
	}
	if problem != "" && d.lenient {
		return typed, true
	}
	if problem != "" {
		d.mistake(path, "%s: %s", path, problem)
	}
	return text, problem == ""
}

// set converts a scalar. shown is the value as the user typed it, without the values of
// variables, which may be passwords.
func (d *decoder) set(node *yaml.Node, v reflect.Value, path, shown string) {
	var err error
	wanted := ""
	d.values[path] = node.Value
	switch target := v.Addr().Interface().(type) {
	case *netip.Prefix:
		*target, err = netip.ParsePrefix(node.Value)
		wanted = "a network, like 10.1.0.0/16, or 10.1.2.3/32 for one address"
	case encoding.TextUnmarshaler:
		if err = target.UnmarshalText([]byte(node.Value)); err != nil {
			d.mistake(path, "%s: %s", path, d.secretsBelow(path).Redacted(err.Error()))
		}
		return
	case *time.Duration:
		*target, err = time.ParseDuration(node.Value)
		wanted = "a duration with its unit, like 1m30s"
	case yaml.Unmarshaler:
		err = node.Decode(target)
		wanted = "a value that this key takes"
	default:
		if v.Kind() == reflect.String {
			v.SetString(node.Value)
			return
		}
		err = node.Decode(v.Addr().Interface())
		wanted = wantedOf(v)
		var number float64
		if err == nil && (v.CanInt() || v.CanUint()) && node.Decode(&number) == nil && number != math.Trunc(number) {
			err = strconv.ErrSyntax // Decode makes 1 of 1.5
		}
	}
	if err != nil {
		d.mistake(path, "%s is %q: write %s", path, d.masked(path, shown), wanted)
	}
}

// secrecyOf returns the secrecy of a key, or of the nearest key above it.
func (d *decoder) secrecyOf(path string) secret.Secrecy {
	for ; path != ""; path = keys.Parent(path) {
		if s, ok := d.secrecy[path]; ok {
			return s
		}
	}
	return secret.Untagged
}

// masked returns a value without its secrets: with the references that the user typed, or
// masked.
func (d *decoder) masked(path, value string) string {
	if typed, fromOutside := d.typed[path]; fromOutside {
		return d.secrecyOf(path).MaskedReference(typed)
	}
	return d.secrecyOf(path).Masked(value)
}

// secretsBelow returns the secret parts of the values of a key and of the keys below it.
func (d *decoder) secretsBelow(path string) secret.Concealed {
	secrets := make(secret.Concealed)
	for at, value := range d.values {
		if rest, below := strings.CutPrefix(at, path); !below || path != "" && rest != "" && rest[0] != '.' && rest[0] != '[' {
			continue
		}
		if typed, fromOutside := d.typed[at]; fromOutside && secret.OnlyReferences(typed) {
			continue // the report conceals these already
		}
		d.secrecyOf(at).Split(value, func(piece string) string {
			secrets.Add(piece, secret.Mask)
			return secret.Mask
		})
	}
	return secrets
}

func wantedOf(v reflect.Value) string {
	switch {
	case v.Kind() == reflect.Bool:
		return "true or false"
	case v.CanFloat():
		return "a number"
	case v.CanUint():
		return fmt.Sprintf("a whole number from 0 to %d", uint64(math.MaxUint64)>>(64-v.Type().Bits()))
	}
	return "a whole number"
}

// override returns the value of a key's flag or variable. Items of lists have none.
func (d *decoder) override(path string) (string, bool) {
	if strings.Contains(path, "[") {
		return "", false
	}
	text, name, ok := d.environment.lookUp(path)
	if flag := d.flags[path]; flag != "" {
		text, name, ok = flag, "--"+path, true
	}
	if ok {
		d.places[path] = place{where: name}
	}
	return text, ok
}

// entries returns the entries of a mapping, records their places, and reports duplicate keys.
func (d *decoder) entries(node *yaml.Node, path, wanted string) []entry {
	switch {
	case node == nil:
		return nil
	case node.Kind != yaml.MappingNode:
		at := "the file"
		if path != "" {
			at = path
		}
		d.mistake(path, "%s is %s: write %s", at, nameOf(node), wanted)
		return nil
	}
	var entries []entry
	first := make(map[string]int)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := follow(node.Content[i]), node.Content[i+1]
		switch {
		case key == nil || key.Kind != yaml.ScalarNode:
			d.report.add(d.report.file, node.Content[i].Line, "a key must be a word, not %s", nameOf(node.Content[i]))
		case key.ShortTag() == "!!merge":
			d.report.add(d.report.file, key.Line, "merging with << is not supported; repeat the keys, or use an alias for a whole value")
		case strings.Contains(strings.Trim(key.Value, ":"), ":") && follow(value) == nil: // {password:secret}
			d.report.add(d.report.file, key.Line, "%s: a key has a colon in it and no value: write a space after the colon", cmp.Or(path, "the file"))
		case first[key.Value] > 0:
			d.report.add(d.report.file, key.Line, "%s is set twice, first on line %d", keys.Join(path, key.Value), first[key.Value])
		default:
			first[key.Value] = node.Content[i].Line
			d.places[keys.Join(path, key.Value)] = place{d.report.file, node.Content[i].Line, follow(value) == nil}
			entries = append(entries, entry{key, value})
		}
	}
	return entries
}

// oneOf lists choices: a, b or c.
func oneOf(choices []string) string {
	last := len(choices) - 1
	if last == 0 {
		return choices[0]
	}
	return strings.Join(choices[:last], ", ") + " or " + choices[last]
}
