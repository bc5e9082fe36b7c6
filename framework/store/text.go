package store

import (
	"strings"
	"unicode/utf8"
)

// CutText cuts a text to at most limit bytes of valid UTF-8 without NUL bytes, which every database
// accepts.
func CutText(text string, limit int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
