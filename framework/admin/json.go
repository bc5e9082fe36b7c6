package admin

import (
	"bytes"
	"encoding/json"
)

// mostGrowth bounds how many times larger indentation may make JSON. Deep JSON of a publisher would
// grow with the square of its depth: 180 KB to a gigabyte.
const mostGrowth = 16

// JSON returns a view as JSON with a line end: indented, or compact where LayOut does not indent.
func JSON(view any) ([]byte, error) {
	text, err := json.Marshal(view)
	if err != nil {
		return nil, err
	}
	return append(LayOut(text), '\n'), nil
}

// LayOut indents JSON for people. It returns a text unchanged that is not JSON, or that indentation
// would make many times larger.
func LayOut(text []byte) []byte {
	text = bytes.TrimSpace(text)
	if indentation(text) > mostGrowth*len(text) {
		return text
	}
	var out bytes.Buffer
	if json.Indent(&out, text, "", "  ") != nil {
		return text
	}
	return out.Bytes()
}

// indentation is about how many bytes indentation adds to JSON.
func indentation(text []byte) (added int) {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
			added += 1 + 2*depth
		case c == ']' || c == '}':
			depth--
			added += 1 + 2*depth
		case c == ',':
			added += 1 + 2*depth
		}
	}
	return added
}
