package config

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/config/internal/secret"
)

// Mistake is one mistake in a configuration.
type Mistake struct {
	// Where is the file, the environment variable or the flag with the mistake; "" if
	// something is missing that could be in any of them.
	Where string
	// Line counts from 1; 0 if there is no line.
	Line int
	// Text is one line.
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

// LogValue returns the mistake's parts for slog.
func (m Mistake) LogValue() slog.Value {
	return slog.GroupValue(slog.String("where", m.Where), slog.Int("line", m.Line), slog.String("text", m.Text))
}

// Error has all mistakes in a configuration: those without a place, then those of the file by
// line, then the others. It quotes no secrets.
type Error struct{ Mistakes []Mistake }

// Error returns the mistakes, one on each line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		lines[i] = m.String()
	}
	return strings.Join(lines, "\n")
}

// report collects mistakes.
type report struct {
	file  string
	found []Mistake
	// expanded are the values of references, with the references to show instead.
	expanded secret.Concealed
}

func (r *report) add(where string, line int, format string, args ...any) {
	text := r.expanded.Redacted(secret.OneLine(fmt.Sprintf(format, args...)))
	r.found = append(r.found, Mistake{Where: where, Line: line, Text: text})
}

// conceal keeps a value of a variable or file, which may be a password, out of the report.
func (r *report) conceal(value, shown string) {
	if r.expanded == nil {
		r.expanded = make(secret.Concealed)
	}
	r.expanded.Add(value, shown)
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

// rank orders mistakes: those without a place, those of the file, the rest.
func (r *report) rank(m Mistake) int {
	switch m.Where {
	case "":
		return 0
	case r.file:
		return 1
	}
	return 2
}
