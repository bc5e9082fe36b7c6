package redact

import (
	"html"
	"strconv"
	"strings"
	"unicode/utf8"
)

// decoded is a text without escapes, and where each of its bytes stands in the original; nil if that does not matter.
type decoded struct {
	text       string
	begin, end []int
}

func verbatim(text string) decoded {
	d := decoded{text: text, begin: make([]int, len(text)), end: make([]int, len(text))}
	for i := range len(text) {
		d.begin[i], d.end[i] = i, i+1
	}
	return d
}

// unescape undoes one level of escapes.
func unescape(d decoded) decoded {
	var b strings.Builder
	next := decoded{}
	for i := 0; i < len(d.text); {
		if d.begin == nil { // skip what has no escapes
			skipped := strings.IndexAny(d.text[i:], `%&\`)
			if skipped < 0 {
				skipped = len(d.text) - i
			}
			b.WriteString(d.text[i : i+skipped])
			if i += skipped; i == len(d.text) {
				break
			}
		}
		plain, n := escape(d.text[i:])
		b.WriteString(plain)
		if i += n; d.begin == nil {
			continue
		}
		for range len(plain) {
			next.begin, next.end = append(next.begin, d.begin[i-n]), append(next.end, d.end[i-1])
		}
	}
	next.text = b.String()
	return next
}

// maxEntity is the length of the longest HTML entity that matters.
const maxEntity = 12

// escape returns what the beginning of a text stands for, and its length: that of one byte, or of an
// escape of a URL, JSON, HTML or a quoted string.
func escape(text string) (plain string, n int) {
	switch text[0] {
	case '%':
		if value, ok := number(text, 1, 3, 16); ok {
			return string([]byte{byte(value)}), 3
		}
	case '&':
		end := strings.IndexByte(text[:min(len(text), maxEntity)], ';') + 1
		if end == 0 || strings.Contains(text[1:end], "&") {
			break
		}
		// The package html also decodes the beginning of what only looks like an entity, as of &lting;.
		if plain := html.UnescapeString(text[:end]); plain != text[:end] && (plain == ";" || !strings.HasSuffix(plain, ";")) {
			return plain, end
		}
	case '\\':
		return backslash(text)
	}
	return text[:1], 1
}

func backslash(text string) (plain string, n int) {
	if len(text) < 2 {
		return text[:1], 1
	}
	switch c := text[1]; c {
	case 'u':
		if value, ok := number(text, 2, 6, 16); ok {
			return string(utf8.AppendRune(nil, rune(value))), 6
		}
	case 'x':
		if value, ok := number(text, 2, 4, 16); ok {
			return string([]byte{byte(value)}), 4
		}
	case 'n':
		return "\n", 2
	case 't':
		return "\t", 2
	case 'r':
		return "\r", 2
	case '/', '"', '\'', '\\', '&', '<', '>', '=', '+':
		return text[1:2], 2
	}
	return text[:1], 1
}

// number parses the digits from one index to another.
func number(text string, from, to, base int) (uint64, bool) {
	if len(text) < to {
		return 0, false
	}
	value, err := strconv.ParseUint(text[from:to], base, 32)
	return value, err == nil
}
