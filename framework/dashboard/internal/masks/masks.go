// Package masks hides parts of payloads in pages and in the API, and where receivers repeat them.
//
// The files in the order in which to read them: masks.go, text.go.
package masks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// masked replaces a hidden value.
const masked = "•••"

// Masks hide parts of payloads, by pattern of types. A mask hides each value with its names, at any
// depth, whatever their case: card.number hides the number of a Card within an order's payments.
// What a payload repeats elsewhere, as in the error of a receiver, is hidden by Text. The zero value
// hides nothing. It is safe for concurrent use.
type Masks map[string][]mask

// mask has names in lower case: that of what is hidden, after those of fields around it.
type mask []string

// Of returns masks as the setting observe.masks has them.
func Of(configured map[string][]string) Masks {
	masks := make(Masks)
	for pattern, names := range configured {
		for _, name := range names {
			masks[pattern] = append(masks[pattern], strings.Split(strings.ToLower(name), "."))
		}
	}
	return masks
}

// of returns the masks of a type with these names; all masks if there are no names.
func (m Masks) of(names []string) (all []mask) {
	for pattern, of := range m {
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		if len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return pattern == name || isPrefix && strings.HasPrefix(name, prefix) }) {
			all = append(all, of...)
		}
	}
	return all
}

// Any reports whether a type with these names has masks. A type without names means any type.
func (m Masks) Any(names []string) bool { return len(m.of(names)) > 0 }

// Hide applies the masks of a type, which may have several names, to a payload, and reports
// whether it hid something. It fails if the type has masks and the payload is not JSON: then
// nothing of the payload may be shown.
func (m Masks) Hide(names []string, payload []byte) (shown []byte, hidden bool, err error) {
	h := hiding{masks: m.of(names)}
	if len(h.masks) == 0 {
		return payload, false, nil
	}
	value, err := decode(payload)
	if err != nil {
		return nil, false, err
	}
	shown, err = encode(h.below(value, nil))
	return shown, h.hits > 0, err
}

// Metadata returns metadata with the values hidden that the masks of a type name.
func (m Masks) Metadata(names []string, metadata map[string]string) map[string]string {
	h := hiding{masks: m.of(names)}
	if len(h.masks) == 0 || metadata == nil {
		return metadata
	}
	shown := make(map[string]string, len(metadata))
	for name, value := range metadata {
		if shown[name] = h.text(value); h.isLast(name) {
			shown[name] = masked
		}
	}
	return shown
}

// HideMetadata reports whether masks of any type hide the values of this name in metadata.
func (m Masks) HideMetadata(name string) bool {
	h := hiding{masks: m.of(nil)}
	return h.isLast(name)
}

// Text hides in a text, such as a receiver's answer, the values that follow a masked name, as in
// email=…, "email":"…" and <email>…, and the masked values of the payload to which it belongs, which
// may be nil. A type without names means any type.
func (m Masks) Text(names []string, text string, payload []byte) string {
	h := hiding{masks: m.of(names)}
	if len(h.masks) == 0 || text == "" {
		return text
	}
	if value, err := decode(payload); err == nil {
		h.below(value, nil)
	}
	text = h.text(h.withoutFound(text))
	return h.withoutFound(text) // a receiver may write a value with its name and again without it
}

// hiding is one application of masks.
type hiding struct {
	masks []mask
	found []string // hidden values, to hide them elsewhere too
	hits  int      // how many values were hidden
	deep  int      // how many texts of JSON contain the current value
}

// maxDeep is how many levels of JSON in texts of JSON are read; deeper ones are hidden.
const maxDeep = 8

// hide notes a value and returns what replaces it.
func (h *hiding) hide(value any) any {
	if value != masked {
		h.hits++
		h.found = append(h.found, leaves(value)...)
	}
	return masked
}

// below hides what the masks name below a value. path has the names above the value.
func (h *hiding) below(value any, path []string) any {
	switch value := value.(type) {
	case map[string]any:
		for name, v := range value {
			at := append(path[:len(path):len(path)], strings.ToLower(name))
			if slices.ContainsFunc(h.masks, func(m mask) bool { return m.matches(at) }) {
				value[name] = h.hide(v)
				continue
			}
			value[name] = h.below(v, at)
		}
	case []any:
		for i, v := range value {
			value[i] = h.below(v, path)
		}
	case string:
		return h.inText(value, path)
	}
	return value
}

// inText hides what the masks name in a text, which may be JSON.
func (h *hiding) inText(text string, path []string) any {
	begin := strings.TrimLeft(text, " \t\r\n")
	if begin == "" || !strings.ContainsAny(begin[:1], `{["`) {
		return h.text(text)
	}
	inner, err := decode([]byte(text))
	if err != nil {
		return h.text(text)
	}
	if h.deep == maxDeep {
		return h.hide(text)
	}
	before := h.hits
	h.deep++
	inner = h.below(inner, path)
	h.deep--
	if h.hits == before {
		return text
	}
	shown, err := encode(inner)
	if err != nil {
		return masked
	}
	return string(bytes.TrimSpace(shown))
}

// matches reports whether a path of names is one that the mask hides: it ends with the mask's last
// name, and has the others before it in their order.
func (m mask) matches(path []string) bool {
	last := len(m) - 1
	if m[last] != path[len(path)-1] {
		return false
	}
	above := m[:last]
	for _, name := range path[:len(path)-1] {
		if len(above) > 0 && above[0] == name {
			above = above[1:]
		}
	}
	return len(above) == 0
}

// isLast reports whether a name is the last one of a mask.
func (h *hiding) isLast(name string) bool {
	return slices.ContainsFunc(h.masks, func(m mask) bool {
		return strings.EqualFold(m[len(m)-1], name)
	})
}

// leaves returns the texts and numbers of a value that are long enough to be recognized in another
// text.
func leaves(value any) (all []string) {
	switch value := value.(type) {
	case map[string]any:
		for _, v := range value {
			all = append(all, leaves(v)...)
		}
	case []any:
		for _, v := range value {
			all = append(all, leaves(v)...)
		}
	case json.Number:
		all = append(all, value.String())
	case string:
		all = append(all, value)
	default:
		all = append(all, "")
	}
	return all
}

func decode(text []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if decoder.More() {
		return nil, fmt.Errorf("there is more than one value")
	}
	return value, nil
}

func encode(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return out.Bytes(), err
}
