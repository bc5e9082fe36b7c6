// Package naming makes the names of topics, queues and the like, which may come from data.
package naming

import (
	"fmt"
	"io"
	"strings"
	"text/template"

	"github.com/waybill-go/waybill/framework/notification"
)

// Name returns the name for a notification.
type Name func(e *notification.Envelope) (string, error)

// IsTemplate reports whether a text is a template, so that names come from data.
func IsTemplate(text string) bool { return strings.Contains(text, "{{") }

// New parses the text of a configuration. If it contains {{, it is a text/template over the envelope, which is
// executed once without metadata, so that a wrong field is found here and not at every delivery. check returns
// why a name is not legal; it is asked about each result, and at once about a text that is not a template.
func New(text string, check func(name string) error) (Name, error) {
	if !IsTemplate(text) {
		if err := check(text); err != nil {
			return nil, err
		}
		return func(*notification.Envelope) (string, error) { return text, nil }, nil
	}
	parsed, err := template.New("name").Parse(text)
	if err != nil {
		return nil, err
	}
	sample := &notification.Envelope{ID: notification.NewID(), Type: "sample.type", Version: 1, Key: "sample-key"}
	if err := parsed.Option("missingkey=zero").Execute(io.Discard, sample); err != nil {
		return nil, err
	}
	parsed.Option("missingkey=error")
	return func(e *notification.Envelope) (string, error) {
		var b strings.Builder
		if err := parsed.Execute(&b, e); err != nil {
			return "", err
		}
		if err := check(b.String()); err != nil {
			return "", fmt.Errorf("%s: %w", text, err)
		}
		return b.String(), nil
	}, nil
}

// Destination returns the name for a notification if it comes from data, and otherwise "": then the destination of a
// sinks.Addresser is the sink as a whole. It is also "" for a notification that has no legal name, whose delivery
// reports why.
func Destination(text string, name Name, e *notification.Envelope) string {
	if !IsTemplate(text) {
		return ""
	}
	named, err := name(e)
	if err != nil {
		return ""
	}
	return named
}
