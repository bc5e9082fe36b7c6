// Package masks hides parts of payloads in pages and in the API.
package masks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ohler55/ojg/jp"

	"github.com/waybill-go/waybill/framework/route"
)

// masked replaces a hidden value.
const masked = "•••"

// Masks hide parts of payloads, by pattern of types. The zero value hides nothing. It is safe for
// concurrent use.
type Masks map[string][]jp.Expr

// Parse reads JSON paths by pattern of types. Its error lists all mistakes.
func Parse(paths map[string][]string) (Masks, error) {
	masks := make(Masks)
	var wrong []string
	for pattern, of := range paths {
		if err := route.ValidatePattern(pattern); err != nil {
			wrong = append(wrong, fmt.Sprintf("masks.%s: use a type like order.placed, the beginning of types like order.*, or *", pattern))
		}
		for _, path := range of {
			x, err := jp.ParseString(path)
			if err == nil && !strings.HasPrefix(path, "$") {
				err = fmt.Errorf("a path begins with $")
			}
			if err != nil {
				wrong = append(wrong, fmt.Sprintf("masks.%s: %q is not a JSON path like $.card.number: %s", pattern, path, err))
			}
			masks[pattern] = append(masks[pattern], x)
		}
	}
	if slices.Sort(wrong); len(wrong) > 0 {
		return nil, fmt.Errorf("%s", strings.Join(wrong, "; "))
	}
	return masks, nil
}

// of returns the paths of a type with these names.
func (m Masks) of(names []string) (paths []jp.Expr) {
	for pattern, of := range m {
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		if slices.ContainsFunc(names, func(name string) bool { return pattern == name || isPrefix && strings.HasPrefix(name, prefix) }) {
			paths = append(paths, of...)
		}
	}
	return paths
}

// Hide applies the masks of a type, which may have several names, to a payload, and reports
// whether it hid something. It fails if the type has masks and the payload is not JSON: then
// nothing of the payload may be shown.
func (m Masks) Hide(names []string, payload []byte) (shown []byte, hidden bool, err error) {
	paths := m.of(names)
	if len(paths) == 0 {
		return payload, false, nil
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, false, err
	}
	if decoder.More() {
		return nil, false, fmt.Errorf("there is more than one value")
	}
	for _, path := range paths {
		value, err = path.Modify(value, func(any) (any, bool) { hidden = true; return masked, true })
		if err != nil {
			return nil, false, err
		}
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err = encoder.Encode(value)
	return out.Bytes(), hidden, err
}
