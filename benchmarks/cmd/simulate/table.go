package main

import (
	"strings"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// english writes 300000 as 300,000.
var english = message.NewPrinter(language.English)

// table returns a Markdown table. The first column has text, the others have figures.
func table(head []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(head)
	b.WriteString("|---|" + strings.Repeat("---:|", len(head)-1) + "\n")
	for _, r := range rows {
		line(r)
	}
	return b.String() + "\n"
}

// number writes at least three digits, and all digits before the point.
func number(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x < 1:
		return english.Sprintf("%.2f", x)
	case x < 100:
		return english.Sprintf("%.1f", x)
	}
	return english.Sprintf("%.0f", x)
}

// seconds writes a duration in seconds.
func seconds(d time.Duration) string { return english.Sprintf("%.2f", d.Seconds()) }

// milliseconds writes a duration in milliseconds.
func milliseconds(d time.Duration) string { return number(float64(d) / float64(time.Millisecond)) }

func percent(share float64) string { return english.Sprintf("%.1f%%", 100*share) }

func image(title, file string) string { return "![" + title + "](scaling/" + file + ")\n\n" }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return english.Sprintf("%d %s", n, many)
}
