package httpsink

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/notification"
)

// selection is which metadata goes out. What a notification carries is often for
// the application alone, so a receiver gets what is listed, and what it needs to
// read the payload and to follow the trace.
type selection struct {
	names    []string
	prefixes []string // "" selects all
}

// newSelection reads names and beginnings followed by "*".
func newSelection(list []string) (selection, error) {
	s := selection{names: []string{notification.MetadataContentType, notification.MetadataTraceparent, notification.MetadataTracestate}}
	var mistakes []error
	for i, entry := range list {
		prefix, isPrefix := strings.CutSuffix(entry, "*")
		switch {
		case entry == "":
			mistakes = append(mistakes, fmt.Errorf("metadata[%d]: is empty; write a name, a beginning followed by *, or * for all", i))
		case strings.Contains(prefix, "*"):
			mistakes = append(mistakes, fmt.Errorf("metadata[%d]: %q has a * that is not at its end", i, entry))
		case isPrefix:
			s.prefixes = append(s.prefixes, prefix)
		default:
			s.names = append(s.names, entry)
		}
	}
	return s, errors.Join(mistakes...)
}

func (s selection) has(name string) bool {
	return slices.Contains(s.names, name) ||
		slices.ContainsFunc(s.prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// count returns how much of m goes out.
func (s selection) count(m notification.Metadata) (n int) {
	for name := range m {
		if s.has(name) {
			n++
		}
	}
	return n
}

// of returns what of m goes out.
func (s selection) of(m notification.Metadata) notification.Metadata {
	selected := make(notification.Metadata, min(len(m), len(s.names)))
	for name, value := range m {
		if s.has(name) {
			selected[name] = value
		}
	}
	return selected
}
