package masks

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// recognized is the least number of bytes of a value that is looked for in texts.
const recognized = 3

// repeated is the same for values that were found in a text, where they may be ordinary words.
const repeated = 6

// withoutFound hides the values that were found, also as JSON writes them.
func (h *hiding) withoutFound(text string) string {
	slices.SortFunc(h.found, func(a, b string) int { return len(b) - len(a) }) // a value may be a part of another
	for _, value := range h.found {
		if len(value) < recognized {
			continue
		}
		for _, form := range forms(value) {
			text = withoutBeginning(strings.ReplaceAll(text, form, masked), form)
		}
	}
	return text
}

// withoutBeginning hides the beginning of a value at the end of a text, which may have been cut off there.
func withoutBeginning(text, value string) string {
	whole := strings.TrimSuffix(text, "…")
	for n := min(len(value), len(whole)); n >= recognized; n-- {
		if rest, cut := strings.CutSuffix(whole, value[:n]); cut {
			return rest + masked + text[len(whole):]
		}
	}
	return text
}

// forms returns how a text may be written in another: as it is, and as JSON escapes it.
func forms(value string) []string {
	quoted, _ := json.Marshal(value) // strings cannot fail
	plain, _ := encode(value)
	inner := string(bytes.Trim(bytes.TrimSpace(plain), `"`))
	return []string{value, strings.Trim(string(quoted), `"`), inner, strings.ReplaceAll(inner, "/", `\/`)}
}

const (
	// quote matches a quotation mark, also as escaped in JSON, HTML or a URL.
	quote = `(?:\\+u0022|\\*["'\x60]|&quot;|&#0*3[49];|&#x2[27];|&apos;|%2[27])`
	// between matches what separates a name from its value: the mark that ends the name, brackets
	// as in Key (email)=(…), and a separator.
	between = `(?i)^` + quote + `?(?:[\])]|&#93;|%5D)?\s*(?::|=>?|&#58;|&#61;|%3A|%3D)\s*`
	// inTag matches the rest of the tag that begins with a name.
	inTag = `(?i)^(?:\s[^<>]{0,200})?(?:>|&gt;)\s*`
)

var (
	betweenPattern = regexp.MustCompile(between)
	inTagPattern   = regexp.MustCompile(inTag)
	quotePattern   = regexp.MustCompile(`(?i)^` + quote)
)

// text hides in a text what follows the last name of a mask.
func (h *hiding) text(text string) string {
	for _, m := range h.masks {
		text = h.after(m[len(m)-1], text)
	}
	return text
}

// after hides what follows a name, which is in lower case.
func (h *hiding) after(name, text string) string {
	var out strings.Builder
	for {
		at := indexFold(text, name)
		if at < 0 {
			out.WriteString(text)
			return out.String()
		}
		end := at + len(name)
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		separated := betweenPattern.FindString(text[end:])
		if strings.HasSuffix(text[:at], "<") || strings.HasSuffix(text[:at], "&lt;") {
			separated = inTagPattern.FindString(text[end:])
		}
		if at > 0 && (unicode.IsLetter(before) || unicode.IsDigit(before)) && !isEscape(text[max(0, at-6):at]) || separated == "" {
			out.WriteString(text[:end])
			text = text[end:]
			continue
		}
		end += len(separated)
		out.WriteString(text[:end])
		value, opened := valueOf(text[end:], separated)
		if value != "" && value != masked {
			h.hits++
			if len(value) >= repeated {
				h.found = append(h.found, value)
			}
			out.WriteString(opened + masked)
		} else {
			out.WriteString(opened + value)
		}
		text = text[end+len(opened)+len(value):]
	}
}

// indexFold returns where a name, which is in lower case, begins in a text in any case; -1 if it
// does not.
func indexFold(text, name string) int {
	for at := range text {
		if len(text)-at >= len(name) && strings.EqualFold(text[at:at+len(name)], name) {
			return at
		}
	}
	return -1
}

// isEscape reports whether a text ends with an escape such as \n, %22 or \u0022, whose last letter is
// no part of a name.
func isEscape(text string) bool { return escapeAtEnd.MatchString(text) }

var escapeAtEnd = regexp.MustCompile(`(?:\\[nrt]|%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4})$`)

// valueOf returns the value at the beginning of a text, and the mark that opens it. A value without
// an end, which was cut off, is the whole text.
func valueOf(text, separated string) (value, opened string) {
	if mark := quotePattern.FindString(text); mark != "" {
		return text[len(mark) : len(mark)+closing(text[len(mark):], mark)], mark
	}
	if strings.HasSuffix(separated, ">") || strings.HasSuffix(separated, "&gt;") {
		if end := strings.IndexAny(text, "<&"); end >= 0 {
			return text[:end], ""
		}
		return text, ""
	}
	if text != "" && strings.ContainsAny(text[:1], "{[(") {
		return text[:bracketed(text)], ""
	}
	ends := ",;&\n\r\"'})]\\|" // of a text after a colon, which may have spaces
	if strings.ContainsAny(strings.TrimSpace(separated), "=%") {
		ends += "<> \t"
	}
	if end := strings.IndexAny(text, ends); end >= 0 {
		return text[:end], ""
	}
	return text, ""
}

// closing returns where the mark that closes a value is; the end of the text if it is not there.
func closing(text, mark string) int {
	for from := 0; ; {
		at := strings.Index(text[from:], mark)
		if at < 0 {
			return len(text)
		}
		at += from
		if at == 0 || text[at-1] != '\\' {
			return at
		}
		from = at + len(mark)
	}
}

// bracketed returns where the brackets at the beginning of a text are closed; the end of the text
// if they are not.
func bracketed(text string) int {
	depth := 0
	for at, c := range []byte(text) {
		switch c {
		case '{', '[', '(':
			depth++
		case '}', ']', ')':
			if depth--; depth == 0 {
				return at + 1
			}
		}
	}
	return len(text)
}
