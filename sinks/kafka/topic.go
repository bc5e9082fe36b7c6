package kafka

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/template"

	"github.com/waybill-go/waybill/framework/notification"
)

// maxTopicNameLength is Kafka's limit; see org.apache.kafka.common.internals.Topic.
const maxTopicNameLength = 249

// topic returns the topic of a notification. Its error wraps ErrTopic.
type topic func(e *notification.Envelope) (string, error)

// isTemplate reports whether the topic comes from data.
func isTemplate(text string) bool { return strings.Contains(text, "{{") }

// newTopic parses the topic of a configuration. It executes a template once, on an envelope
// without metadata, so that a wrong field name is found here and not at every delivery.
func newTopic(text string) (topic, error) {
	if !isTemplate(text) {
		if err := checkTopicName(text); err != nil {
			return nil, err
		}
		return func(*notification.Envelope) (string, error) { return text, nil }, nil
	}
	parsed, err := template.New("topic").Parse(text)
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
			return "", fmt.Errorf("%w: %w", ErrTopic, err)
		}
		if err := checkTopicName(b.String()); err != nil {
			return "", fmt.Errorf("%w: %s: %w", ErrTopic, text, err)
		}
		return b.String(), nil
	}, nil
}

var legalTopic = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)

func checkTopicName(name string) error {
	switch {
	case name == "":
		return errors.New("the topic is empty")
	case len(name) > maxTopicNameLength:
		return fmt.Errorf("the name is %d bytes long, Kafka's limit is %d", len(name), maxTopicNameLength)
	case name == "." || name == ".." || !legalTopic.MatchString(name):
		return fmt.Errorf("%q is not a legal topic; use letters, digits, dots, dashes and underscores", name)
	}
	return nil
}
