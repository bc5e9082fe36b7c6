package httpsink

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/notification"
)

// selection is the metadata that is sent. Metadata is often only for the application, so a
// receiver gets only what is listed, the content type and the trace context.
type selection struct {
	names    []string
	prefixes []string // "" selects all
}

// newSelection parses a list of names and of prefixes followed by "*".
func newSelection(list []string) (selection, error) {
	s := selection{names: []string{notification.MetadataContentType, notification.MetadataTraceparent, notification.MetadataTracestate}}
	var mistakes []error
	for i, entry := range list {
		prefix, isPrefix := strings.CutSuffix(entry, "*")
		switch {
		case entry == "":
			mistakes = append(mistakes, fmt.Errorf("metadata[%d]: is empty; write a name, a prefix followed by *, or * for all", i))
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

// count returns the number of selected names in m.
func (s selection) count(m notification.Metadata) (n int) {
	for name := range m {
		if s.has(name) {
			n++
		}
	}
	return n
}

// of returns the selected part of m.
func (s selection) of(m notification.Metadata) notification.Metadata {
	selected := make(notification.Metadata, min(len(m), len(s.names)))
	for name, value := range m {
		if s.has(name) {
			selected[name] = value
		}
	}
	return selected
}
