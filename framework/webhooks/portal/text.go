package portal

import (
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/waybill-go/waybill/framework/admin"
)

// formats has the functions of the templates.
var formats = template.FuncMap{
	"ago": ago, "at": at, "rfc3339": rfc3339, "span": span, "clock": func(t time.Time) string { return t.UTC().Format("15:04") },
	"text": visible, "short": func(text string) string { return visible(cut(text, shortRunes)) }, "layOut": layOut, "mistakes": mistakesOf,
	"names": func(headers map[string][]string) []string { return slices.Sorted(maps.Keys(headers)) }, "join": strings.Join,
}

// shortRunes is how many characters of a text the row of a table shows.
const shortRunes = 120

// cut returns at most the first characters of a text, with an ellipsis if there are more.
func cut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

// visible returns a text with its control characters, and those that have no width or change the direction of text,
// as ‹U+202E›, so that no text looks like another.
func visible(text string) string {
	hides := func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' || unicode.Is(unicode.Bidi_Control, r) || r == '\u200b' || r == '\ufeff'
	}
	if !strings.ContainsFunc(text, hides) {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if hides(r) {
			fmt.Fprintf(&out, "‹U+%04X›", r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// layOut returns a body for people: JSON is indented.
func layOut(body any) string { return visible(string(admin.LayOut(fmt.Appendf(nil, "%s", body)))) }

// ago formats a time relative to now: 3 min ago.
func ago(t time.Time) string {
	if d := time.Since(t); d < 0 {
		return "in " + span(-d)
	}
	return span(time.Since(t)) + " ago"
}

// span formats a duration with one unit: 850 ms, 3 s, 12 min, 5 h, 9 d.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(d.Milliseconds(), 0))
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d d", int(d.Hours()/24))
}

// at formats a time in full, in UTC.
func at(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// rfc3339 formats a time for the attribute datetime.
func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }
