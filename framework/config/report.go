package config

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"unicode"
)

// Mistake is one thing that is wrong with a configuration.
type Mistake struct {
	// Where is the file, the environment variable or the flag that holds it; ""
	// where something is missing that could stand in any of them.
	Where string
	// Line counts from 1; 0 for what has no line.
	Line int
	Text string
}

func (m Mistake) String() string {
	switch {
	case m.Where == "":
		return m.Text
	case m.Line == 0:
		return m.Where + ": " + m.Text
	}
	return fmt.Sprintf("%s:%d: %s", m.Where, m.Line, m.Text)
}

// LogValue is the mistake's parts, for slog.
func (m Mistake) LogValue() slog.Value {
	return slog.GroupValue(slog.String("where", m.Where), slog.Int("line", m.Line), slog.String("text", m.Text))
}

// Error is everything that is wrong with a configuration: first what the file
// has, by line, then what comes from elsewhere. No text holds a secret.
type Error struct{ Mistakes []Mistake }

// Error lists the mistakes, one a line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		lines[i] = m.String()
	}
	return strings.Join(lines, "\n")
}

// report gathers mistakes.
type report struct {
	file  string
	found []Mistake
	// expanded are values that came in for a ${NAME}, with how they are shown.
	expanded concealed
}

func (r *report) add(where string, line int, format string, args ...any) {
	text := r.expanded.redacted(oneLine(fmt.Sprintf(format, args...)))
	r.found = append(r.found, Mistake{Where: where, Line: line, Text: text})
}

// conceal keeps what an environment variable holds out of the report, whatever
// repeats it: it may be a password.
func (r *report) conceal(value, shown string) {
	if r.expanded == nil {
		r.expanded = make(concealed)
	}
	r.expanded.add(value, shown)
}

// oneLine keeps a text from breaking a report or a terminal.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ReplaceAll(text, "\n", "; "))
}

func (r *report) err() error {
	if len(r.found) == 0 {
		return nil
	}
	slices.SortStableFunc(r.found, func(a, b Mistake) int {
		return cmp.Or(
			cmp.Compare(r.rank(a), r.rank(b)),
			cmp.Compare(a.Where, b.Where),
			cmp.Compare(a.Line, b.Line),
		)
	})
	return &Error{Mistakes: slices.Compact(r.found)}
}

// rank puts what has no place first, the file next, and the rest behind it.
func (r *report) rank(m Mistake) int {
	switch m.Where {
	case "":
		return 0
	case r.file:
		return 1
	}
	return 2
}
