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

// maxTopicNameLength is Kafka's own, see org.apache.kafka.common.internals.Topic.
const maxTopicNameLength = 249

// topic names the topic of a notification. An error is about the notification,
// and wraps ErrTopic.
type topic func(e *notification.Envelope) (string, error)

// isTemplate reports whether data has a say in the topic.
func isTemplate(text string) bool { return strings.Contains(text, "{{") }

// newTopic makes a topic of what the user typed. A template is tried once, on an
// envelope without metadata, so that a wrong name is found here and not by every
// delivery.
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
		return errors.New("the name of a topic is needed")
	case len(name) > maxTopicNameLength:
		return fmt.Errorf("the name is %d bytes long, Kafka's limit is %d", len(name), maxTopicNameLength)
	case name == "." || name == ".." || !legalTopic.MatchString(name):
		return fmt.Errorf("%q is not a topic's name; use letters, digits, dots, dashes and underscores", name)
	}
	return nil
}
