package privacy

import (
	"encoding/json"
	"errors"
	"strconv"

	"github.com/waybill-go/waybill/registry"
)

// errJSON: a payload is not JSON.
var errJSON = errors.New("the payload is not JSON")

// editor replaces values of a JSON text and leaves all other bytes as they are.
type editor struct {
	in, out []byte
	copied  int                           // of in
	replace func(to, value []byte) []byte // appends
}

// usualGrowth is by how much tokens make a payload longer, in bytes.
const usualGrowth = 160

// edit replaces the values at the pointers, except null, by what replace appends. A pointer that leads nowhere replaces
// nothing.
func edit(text []byte, at []registry.Pointer, replace func(to, value []byte) []byte) ([]byte, error) {
	e := editor{in: text, replace: replace}
	end, err := e.value(0, at)
	if err != nil {
		return nil, err
	}
	if e.space(end) != len(text) {
		return nil, errJSON
	}
	if e.out == nil {
		return text, nil
	}
	return append(e.out, text[e.copied:]...), nil
}

// value edits the value that begins at i or after spaces, and returns its end. at are relative to it.
func (e *editor) value(i int, at []registry.Pointer) (end int, err error) {
	i = e.space(i)
	for _, p := range at {
		if len(p) > 0 {
			continue
		}
		if end, err = e.skip(i); err != nil || string(e.in[i:end]) == "null" {
			return end, err
		}
		if e.out == nil {
			e.out = make([]byte, 0, len(e.in)+usualGrowth)
		}
		e.out = e.replace(append(e.out, e.in[e.copied:i]...), e.in[i:end])
		e.copied = end
		return end, nil
	}
	switch {
	case len(at) == 0:
		return e.skip(i)
	case e.at(i) == '{':
		return e.members(i, at)
	case e.at(i) == '[':
		return e.elements(i, at)
	}
	return e.skip(i)
}

func (e *editor) members(i int, at []registry.Pointer) (end int, err error) {
	if i = e.space(i + 1); e.at(i) == '}' {
		return i + 1, nil
	}
	for {
		if e.at(i) != '"' {
			return 0, errJSON
		}
		nameEnd, err := e.skip(i)
		if err != nil {
			return 0, err
		}
		name, err := unquoted(e.in[i:nameEnd])
		if err != nil {
			return 0, err
		}
		if i = e.space(nameEnd); e.at(i) != ':' {
			return 0, errJSON
		}
		if i, err = e.value(i+1, below(at, name)); err != nil {
			return 0, err
		}
		switch i = e.space(i); e.at(i) {
		case ',':
			i = e.space(i + 1)
		case '}':
			return i + 1, nil
		default:
			return 0, errJSON
		}
	}
}

func (e *editor) elements(i int, at []registry.Pointer) (end int, err error) {
	if i = e.space(i + 1); e.at(i) == ']' {
		return i + 1, nil
	}
	for n := 0; ; n++ {
		if i, err = e.value(i, below(at, strconv.Itoa(n))); err != nil {
			return 0, err
		}
		switch i = e.space(i); e.at(i) {
		case ',':
			i++
		case ']':
			return i + 1, nil
		default:
			return 0, errJSON
		}
	}
}

// below returns the rest of the pointers that lead into a member or an element.
func below(at []registry.Pointer, name string) (rest []registry.Pointer) {
	for _, p := range at {
		if p[0] == name || p[0] == registry.Any {
			rest = append(rest, p[1:])
		}
	}
	return rest
}

// skip returns the end of the value that begins at i. It does not check what is inside.
func (e *editor) skip(i int) (end int, err error) {
	depth := 0
	for ; i < len(e.in); i++ {
		switch e.in[i] {
		case '"':
			for i++; i < len(e.in) && e.in[i] != '"'; i++ {
				if e.in[i] == '\\' {
					i++
				}
			}
			if i >= len(e.in) {
				return 0, errJSON
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		case ',', ':', ' ', '\t', '\n', '\r':
			continue
		default:
			for i+1 < len(e.in) && isScalar(e.in[i+1]) {
				i++
			}
		}
		if depth <= 0 {
			return i + 1, nil
		}
	}
	return 0, errJSON
}

// isScalar reports whether a byte can be inside of a number, true, false or null.
func isScalar(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b == '+' || b == '-' || b == '.' || b == 'E'
}

// space returns the first place from i on that is not a space.
func (e *editor) space(i int) int {
	for i < len(e.in) && (e.in[i] == ' ' || e.in[i] == '\t' || e.in[i] == '\n' || e.in[i] == '\r') {
		i++
	}
	return i
}

// at returns a byte, or 0 after the end.
func (e *editor) at(i int) byte {
	if i < len(e.in) {
		return e.in[i]
	}
	return 0
}

func unquoted(quoted []byte) (string, error) {
	for _, b := range quoted {
		if b == '\\' {
			var text string
			err := json.Unmarshal(quoted, &text)
			return text, err
		}
	}
	return string(quoted[1 : len(quoted)-1]), nil
}
