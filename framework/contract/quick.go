package contract

import (
	"bytes"
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/valyala/fastjson"
)

// quick is a schema by which most payloads that fit are recognized in a tenth of the time. It knows only the
// usual keywords: of a payload that it does not recognize, the library says whether it fits, and why not.
type quick struct {
	unsure     bool // the schema has other keywords
	ref        *quick
	types      typeSet // 0: all
	values     map[string]bool
	any        []*quick
	properties map[string]*quick
	required   []string
	others     *quick // of additional properties; nil: any value
	items      *quick // nil: any value
	least      int64
	most       int64
	bounded    bool
	maxLength  int // -1: none
	strings    []func(any) error
}

// typeSet is a set of types.
type typeSet int

const (
	nullKind typeSet = 1 << iota
	booleanKind
	integerKind
	fractionKind
	stringKind
	arrayKind
	objectKind
)

var typeSets = map[string]typeSet{
	"null": nullKind, "boolean": booleanKind, "integer": integerKind, "number": integerKind | fractionKind,
	"string": stringKind, "array": arrayKind, "object": objectKind,
}

var parsers fastjson.ParserPool

// recognizes reports whether a payload surely fits. false says nothing.
func (q *quick) recognizes(payload []byte) bool {
	if q == nil || q.unsure || !utf8.Valid(payload) || mayHideControls(payload) || fastjson.ValidateBytes(payload) != nil {
		return false
	}
	p := parsers.Get()
	defer parsers.Put(p)
	v, err := p.ParseBytes(payload)
	return err == nil && q.fits(v, 0)
}

// mayHideControls reports whether a text may have control characters that package fastjson overlooks: those in
// front of an escape.
func mayHideControls(payload []byte) bool {
	return bytes.IndexByte(payload, '\\') >= 0 && bytes.ContainsFunc(payload, func(r rune) bool { return r < ' ' })
}

// newQuick returns the quick form of a compiled schema; nil for none, which any value fits.
func newQuick(s *jsonschema.Schema, known map[*jsonschema.Schema]*quick) *quick {
	if s == nil {
		return nil
	}
	if q, ok := known[s]; ok {
		return q
	}
	q := &quick{maxLength: -1}
	known[s] = q
	of := func(s *jsonschema.Schema) *quick { return newQuick(s, known) }
	if s.Bool != nil {
		q.unsure = !*s.Bool
		return q
	}
	q.unsure = s.DraftVersion != 2020 || s.DynamicRef != nil || s.RecursiveRef != nil || s.Const != nil || s.Not != nil || s.AllOf != nil || s.OneOf != nil ||
		s.If != nil || s.MaxProperties != nil || s.MinProperties != nil || s.PropertyNames != nil || s.PatternProperties != nil || s.Dependencies != nil ||
		s.DependentRequired != nil || s.DependentSchemas != nil || s.UnevaluatedProperties != nil || s.MinItems != nil || s.MaxItems != nil || s.UniqueItems ||
		s.Contains != nil || s.Items != nil || s.PrefixItems != nil || s.UnevaluatedItems != nil || s.MinLength != nil || s.Pattern != nil ||
		s.ContentMediaType != nil || s.ContentSchema != nil || s.ExclusiveMaximum != nil || s.ExclusiveMinimum != nil || s.MultipleOf != nil || len(s.Extensions) > 0
	q.ref, q.items, q.required = of(s.Ref), of(s.Items2020), s.Required
	if s.Types != nil {
		for _, name := range s.Types.ToStrings() {
			q.types |= typeSets[name]
		}
	}
	if s.Enum != nil {
		q.values = make(map[string]bool)
		for _, value := range s.Enum.Values {
			if text, ok := value.(string); ok {
				q.values[text] = true
			}
		}
	}
	for _, branch := range s.AnyOf {
		q.any = append(q.any, of(branch))
	}
	if len(s.Properties) > 0 {
		q.properties = make(map[string]*quick, len(s.Properties))
		for name, property := range s.Properties {
			q.properties[name] = of(property)
		}
	}
	switch more := s.AdditionalProperties.(type) {
	case bool:
		if !more {
			q.others = &quick{unsure: true}
		}
	case *jsonschema.Schema:
		q.others = of(more)
	}
	q.bound(s)
	return q
}

// bound takes over the bounds of numbers and texts.
func (q *quick) bound(s *jsonschema.Schema) {
	q.least, q.most = math.MinInt64, math.MaxInt64
	for limit, to := range map[*big.Rat]*int64{s.Minimum: &q.least, s.Maximum: &q.most} {
		if limit == nil {
			continue
		}
		q.bounded = true
		if *to = limit.Num().Int64(); !limit.IsInt() || !limit.Num().IsInt64() {
			q.unsure = true
		}
	}
	if s.MaxLength != nil {
		q.maxLength = *s.MaxLength
	}
	if s.Format != nil {
		q.strings = append(q.strings, s.Format.Validate)
	}
	if s.ContentEncoding != nil {
		q.strings = append(q.strings, func(v any) error { _, err := s.ContentEncoding.Decode(v.(string)); return err })
	}
}

// maxHops bounds how many schemas are asked about one value, since a schema may refer to itself.
const maxHops = 10

// fits is recognizes for a value. hops is how many schemas were asked about it before.
func (q *quick) fits(v *fastjson.Value, hops int) bool {
	if q == nil {
		return true
	}
	if q.unsure || hops > maxHops || !q.ref.fits(v, hops+1) || q.types != 0 && q.types&typeIn(v) == 0 {
		return false
	}
	if q.any != nil && !q.fitsAny(v, hops+1) {
		return false
	}
	switch v.Type() {
	case fastjson.TypeObject:
		return q.values == nil && q.fitsObject(v)
	case fastjson.TypeArray:
		for _, item := range v.GetArray() {
			if !q.items.fits(item, 0) {
				return false
			}
		}
	case fastjson.TypeString:
		return q.fitsString(v.GetStringBytes())
	case fastjson.TypeNumber:
		n, err := v.Int64()
		return q.values == nil && (!q.bounded || err == nil && n >= q.least && n <= q.most)
	}
	return q.values == nil
}

func (q *quick) fitsAny(v *fastjson.Value, hops int) bool {
	for _, branch := range q.any {
		if branch.fits(v, hops) {
			return true
		}
	}
	return false
}

func (q *quick) fitsObject(v *fastjson.Value) bool {
	for _, name := range q.required {
		if !v.Exists(name) {
			return false
		}
	}
	fit := true
	v.GetObject().Visit(func(name []byte, member *fastjson.Value) {
		property, declared := q.properties[string(name)]
		if !declared {
			property = q.others
		}
		fit = fit && property.fits(member, 0)
	})
	return fit
}

func (q *quick) fitsString(text []byte) bool {
	if q.values != nil && !q.values[string(text)] || q.maxLength >= 0 && utf8.RuneCount(text) > q.maxLength {
		return false
	}
	for _, check := range q.strings {
		if check(string(text)) != nil {
			return false
		}
	}
	return true
}

// typeIn returns the kind of a value. A whole number that is written as a fraction, such as 1.0, is not
// recognized as an integer.
func typeIn(v *fastjson.Value) typeSet {
	switch v.Type() {
	case fastjson.TypeNull:
		return nullKind
	case fastjson.TypeTrue, fastjson.TypeFalse:
		return booleanKind
	case fastjson.TypeString:
		return stringKind
	case fastjson.TypeArray:
		return arrayKind
	case fastjson.TypeObject:
		return objectKind
	}
	if _, err := strconv.ParseInt(string(v.MarshalTo(nil)), 10, 64); err == nil {
		return integerKind
	}
	return fractionKind
}
