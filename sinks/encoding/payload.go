package encoding

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/valyala/fastjson"
)

// Payloads are parsed by package fastjson: encoding/json takes more time than everything else, and numbers
// must stay as they are written.
var parsers fastjson.ParserPool

// misfit is what is wrong with a payload, and where. Its text has no values.
type misfit struct {
	pointer string // JSON Pointer, RFC 6901
	problem string
	newer   bool // the payload may be newer than the schema
}

func (m *misfit) Error() string {
	if m.pointer == "" {
		return "the whole payload " + m.problem
	}
	return m.pointer + " " + m.problem
}

func misfits(format string, a ...any) error { return &misfit{problem: fmt.Sprintf(format, a...)} }

// at adds the place in which an error occurred to the front of its pointer.
func at(token string, err error) error {
	m := new(misfit)
	if !errors.As(err, &m) {
		return err
	}
	return &misfit{"/" + pointerEscapes.Replace(token) + m.pointer, m.problem, m.newer}
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// check returns an error unless a payload is JSON, and all its texts are Unicode.
func check(payload []byte) error {
	if !utf8.Valid(payload) {
		return misfits("is not UTF-8")
	}
	if fastjson.ValidateBytes(payload) != nil || mayHideControls(payload) && !json.Valid(payload) {
		return misfits("is not JSON")
	}
	if offset := loneSurrogate(payload); offset >= 0 {
		return &misfit{pointer: pointerAt(payload, int64(offset)), problem: `has an escape such as \ud800 that is half of a character`}
	}
	return nil
}

// mayHideControls reports whether a text may have control characters that package fastjson overlooks: those in
// front of an escape.
func mayHideControls(payload []byte) bool {
	return bytes.IndexByte(payload, '\\') >= 0 && bytes.ContainsFunc(payload, func(r rune) bool { return r < ' ' })
}

// loneSurrogate returns the offset of the first escape in JSON that is half of a character; -1 if there is none.
func loneSurrogate(payload []byte) int {
	for i := 0; ; {
		next := bytes.IndexByte(payload[i:], '\\')
		if next < 0 {
			return -1
		}
		i += next
		first := escaped(payload[i:])
		switch {
		case !utf16.IsSurrogate(first):
			i += len(`\n`)
		case utf16.DecodeRune(first, escaped(payload[i+len(`\ud800`):])) == utf8.RuneError:
			return i
		default:
			i += len(`\ud83d\ude00`)
		}
	}
}

// escaped returns the code unit of an escape such as \ud800 at the beginning of a text in JSON; 0 if there is none.
func escaped(text []byte) rune {
	if !bytes.HasPrefix(text, []byte(`\u`)) {
		return 0
	}
	unit, _ := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(unit)
}

// kindName names a kind in errors.
func kindName(v *fastjson.Value) string {
	switch v.Type() {
	case fastjson.TypeObject, fastjson.TypeArray:
		return "an " + v.Type().String()
	case fastjson.TypeTrue, fastjson.TypeFalse:
		return "a boolean"
	case fastjson.TypeNull:
		return "null"
	}
	return "a " + v.Type().String()
}

// numeral returns a number as it is written.
func numeral(v *fastjson.Value) string { return string(v.MarshalTo(nil)) }

// maxExponent bounds the work for numbers such as 1e999999.
const maxExponent = 400

// toInteger converts a number that has no fraction, such as 12, 1.0 or 1e3.
func toInteger(number string) (int64, bool) {
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		return n, true
	}
	if f, err := strconv.ParseFloat(number, 64); err != nil || math.Abs(f) > math.MaxInt64 || len(number) > maxExponent || f == 0 {
		return 0, err == nil && f == 0 && strings.Trim(number, "-0.eE+") == ""
	}
	exact, ok := new(big.Rat).SetString(number)
	if !ok || !exact.IsInt() || !exact.Num().IsInt64() {
		return 0, false
	}
	return exact.Num().Int64(), true
}

// pointerAt returns the JSON Pointer of the value, or of the name of the member, that has the byte at an
// offset.
func pointerAt(payload []byte, offset int64) string {
	type level struct {
		isArray, inValue bool
		index            int
		name             string
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	var levels []level
	for {
		token, err := d.Token()
		delimiter, _ := token.(json.Delim)
		closes := delimiter == '}' || delimiter == ']'
		var top *level
		if closes {
			levels = levels[:len(levels)-1]
		}
		if len(levels) > 0 {
			top = &levels[len(levels)-1]
		}
		isName := top != nil && !top.isArray && !top.inValue
		if isName && !closes {
			top.name, _ = token.(string)
		}
		if err != nil || d.InputOffset() > offset {
			var pointer strings.Builder
			for _, l := range levels {
				if l.isArray {
					l.name = strconv.Itoa(l.index)
				}
				pointer.WriteString("/" + pointerEscapes.Replace(l.name))
			}
			return pointer.String()
		}
		switch {
		case isName && !closes:
			top.inValue = true
		case delimiter == '{' || delimiter == '[':
			levels = append(levels, level{isArray: delimiter == '['})
		case top != nil:
			top.inValue = false
			top.index++
		}
	}
}
