// Package line prepares texts from outside for one line of a log, a terminal, a header or a receipt.
package line

import (
	"strings"
	"unicode"
)

// Of returns a text without control or format characters, with collapsed spaces, and with at most so
// many bytes and an ellipsis.
func Of(s string, most int) string {
	s = Collapse(strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1 // such as those that turn the direction of the text
		}
		return r
	}, s))
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// Collapse replaces each sequence of spaces and control characters, including line ends, by one
// space, and removes bytes that are not UTF-8.
func Collapse(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, ""), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " ")
}

// IsASCII reports whether a text has no other characters.
func IsASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 })
}
