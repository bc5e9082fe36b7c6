// Package terminal prints for people. Ids, types, keys, errors and the like come from publishers and
// receivers, and may contain what a terminal obeys or shows as something else: control characters,
// marks that turn text around, and characters without a width. They are printed in a visible form,
// such as \x1b and \u202e.
package terminal

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape returns a value for one line: everything that is not visible, except spaces, is escaped.
func Escape(value string) string { return escape(value, "") }

// escape escapes what is not visible, except spaces and the characters in kept.
func escape(text, kept string) string {
	if !hides(text, kept) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case isVisible(r) || strings.ContainsRune(kept, r):
			b.WriteRune(r)
		case r >= 0x7f && r < 0x100: // strconv writes \u0085, which is longer
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
		text = text[size:]
	}
	return b.String()
}

func hides(text, kept string) bool {
	return !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !isVisible(r) && !strings.ContainsRune(kept, r) })
}

// isVisible reports whether a character is a letter, a mark, a number, a symbol, punctuation or a
// space.
func isVisible(r rune) bool { return unicode.IsGraphic(r) }

// Writer returns a writer for texts of several lines: it escapes what is not visible, except spaces
// and line ends. Anyone who writes a value to it must [Escape] line ends in the value, as [Printf] does.
func Writer(w io.Writer) io.Writer {
	return writer{w, func(text string) string { return escape(text, "\n") }}
}

// JSON returns a writer for JSON. It writes as \u escapes what encoding/json leaves as it is. Each
// write must end at the end of a character.
func JSON(w io.Writer) io.Writer { return writer{w, escapeJSON} }

type writer struct {
	to     io.Writer
	escape func(string) string
}

func (w writer) Write(text []byte) (int, error) {
	if _, err := io.WriteString(w.to, w.escape(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// escapeJSON escapes what is not visible. In JSON, that can only be within texts, except for the
// white space between values.
func escapeJSON(text string) string {
	if !hides(text, "\n\t\r") {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case isVisible(r) || strings.ContainsRune("\n\t\r", r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := surrogates(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// surrogates returns the two units of UTF-16 with which JSON writes a character above U+FFFF.
func surrogates(r rune) (high, low rune) {
	r -= 0x10000
	return 0xd800 + r>>10, 0xdc00 + r&0x3ff
}

// Printf is fmt.Fprintf with each argument as [Escape] returns it. Errors of the writer do not
// matter to what prints a result.
func Printf(w io.Writer, format string, args ...any) { fmt.Fprintf(w, format, escaped(args)...) }

// Println is fmt.Fprintln with each argument as [Escape] returns it.
func Println(w io.Writer, args ...any) { fmt.Fprintln(w, escaped(args)...) }

func escaped(args []any) []any {
	all := make([]any, len(args))
	for i, arg := range args {
		all[i] = value{arg}
	}
	return all
}

// value is an argument that is escaped once it is formatted.
type value struct{ of any }

var _ fmt.Formatter = value{}

// Format implements fmt.Formatter.
func (v value) Format(f fmt.State, verb rune) {
	_, _ = io.WriteString(f, Escape(fmt.Sprintf(fmt.FormatString(f, verb), v.of)))
}
