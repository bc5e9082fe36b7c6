package pages

import (
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// formats are the functions of the templates.
var formats = template.FuncMap{"ago": ago, "span": span, "at": at, "count": count, "short": short, "tone": tone, "segment": url.PathEscape}

// ago is how long a time has passed: 3 min ago.
func ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	if d := time.Since(t); d < 0 {
		return "in " + span(-d)
	}
	return span(time.Since(t)) + " ago"
}

// span is a duration with one unit: 850 ms, 3 s, 12 min, 5 h, 9 d.
func span(d time.Duration) string {
	switch {
	case d <= 0:
		return "0 s"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d d", int(d.Hours()/24))
}

// at is a time in full, in UTC.
func at(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// count is a number with separators, and 10,000+ for one that was not counted further.
func count(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	if n == store.PendingLimit {
		text += "+"
	}
	return text
}

// shortRunes is how much of a text a row of a table shows.
const shortRunes = 160

// short is the beginning of a text.
func short(text string) string {
	n := 0
	for i := range text {
		if n++; n > shortRunes {
			return text[:i] + "…"
		}
	}
	return text
}

// tone is the class of a state's badge.
func tone(state any) string {
	switch fmt.Sprint(state) {
	case "dead", "no route", "interrupted":
		return "bad"
	case "retrying", "blocked", "settling":
		return "warn"
	case "delivered", "done":
		return "good"
	}
	return ""
}
