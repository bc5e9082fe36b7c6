package sqlite

import "strings"

// tuples are the VALUES of an INSERT under construction, with their arguments.
type tuples struct {
	strings.Builder
	args []any
}

// add appends one row.
func (t *tuples) add(args ...any) {
	if t.Len() > 0 {
		t.WriteString(", ")
	}
	t.WriteString("(?" + strings.Repeat(", ?", len(args)-1) + ")")
	t.args = append(t.args, args...)
}

// notNil keeps an empty payload from being bound as NULL.
func notNil(payload []byte) []byte {
	if payload == nil {
		return []byte{}
	}
	return payload
}
