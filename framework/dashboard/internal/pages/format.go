package pages

import (
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store"
)

// formats has the functions of the templates.
var formats = template.FuncMap{
	"clock": clockOf, "live": marked, "capital": capital, "number": separated, "ago": ago, "span": span, "at": at, "count": count, "cut": cut, "sink": sinkPath, "endpoint": endpointPath, "join": strings.Join, "path": url.PathEscape, "rfc3339": rfc3339, "rate": rate, "tone": tone, "short": short, "badge": func(what string) badge { return badges[what] }, "prose": prose, "add": func(a, b int64) int64 { return a + b },
}

// piece is a part of a text.
type piece struct {
	Text string
	Code bool
}

// prose splits a text at the marks of code in CommonMark.
func prose(text string) (pieces []piece) {
	parts := strings.Split(text, "`")
	for i, part := range parts {
		if i == len(parts)-1 && i%2 == 1 { // the mark has no end
			part, i = "`"+part, 0
		}
		pieces = append(pieces, piece{part, i%2 == 1})
	}
	return pieces
}

// sinkPath returns the path of a sink's page.
func sinkPath(name string) string { return "/sinks/" + url.PathEscape(name) }

// cut returns at most the first characters of a text, with an ellipsis if there are more.
func cut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

// compact formats a duration as in waybill.yaml: 15m, 24h, 1h30m.
func compact(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = text[:len(text)-2]
	}
	if strings.HasSuffix(text, "h0m") {
		text = text[:len(text)-2]
	}
	return text
}

// rate formats a number per second.
func rate(perSecond float64) string {
	switch {
	case perSecond == 0:
		return "0/s"
	case perSecond < 0.1:
		return fmt.Sprintf("%.2g/min", perSecond*60)
	case perSecond < 10:
		return fmt.Sprintf("%.1f/s", perSecond)
	}
	return count(int64(perSecond+.5)) + "/s"
}

// rfc3339 formats a time for the attribute datetime.
func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// ago formats a time relative to now: 3 min ago, in 3 min.
func ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	if d := time.Since(t); d < 0 {
		return "in " + span(-d)
	}
	return span(time.Since(t)) + " ago"
}

// span formats a duration with one unit: 850 ms, 3 s, 12 min, 5 h, 9 d.
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

// at formats a time in full, in UTC.
func at(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// clock is a time on a page, and the name of its element if it is a live figure.
type clock struct {
	At   time.Time
	Live string
}

// clockOf makes a clock of a time.Time or a clock, so that the template "time" accepts both.
func clockOf(of any) clock {
	if t, plain := of.(time.Time); plain {
		return clock{At: t}
	}
	return of.(clock)
}

// marked makes a time a live figure. The name is the concatenation of its parts.
func marked(t time.Time, name ...string) clock { return clock{t, strings.Join(name, "")} }

// capital returns a word with its first letter in upper case.
func capital(word string) string { return strings.ToUpper(word[:1]) + word[1:] }

// count formats a number with separators, and as 10,000+ if the store stopped counting there.
func count(n int64) string {
	text := separated(n)
	if n == store.PendingLimit {
		text += "+"
	}
	return text
}

// separated formats a number with separators.
func separated(n int64) string { return admin.CountText(n, false) }

// shortRunes is how many characters of a text the row of a table shows.
const shortRunes = 160

// short cuts a text to fit in the row of a table.
func short(text string) string { return cut(text, shortRunes) }

// tone returns the CSS class of a state's badge.
func tone(state any) string {
	switch fmt.Sprint(state) {
	case "dead", "no route":
		return "bad"
	case "retrying", "blocked", "settling", "interrupted", "cancelled":
		return "warn"
	case "delivered", "done":
		return "good"
	}
	return ""
}
