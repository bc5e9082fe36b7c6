package publisher

import (
	"fmt"
	"io"
	"strings"
	"text/template"

	"github.com/waybill-go/waybill/framework/notification"
)

// topic returns the topic of a notification.
type topic func(e *notification.Envelope) (string, error)

func newTopic(text string) (topic, error) {
	if text == "" {
		return nil, fmt.Errorf("%w: it is empty", ErrTopic)
	}
	if !strings.Contains(text, "{{") {
		return func(*notification.Envelope) (string, error) { return text, nil }, nil
	}
	parsed, err := template.New("topic").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTopic, err)
	}
	sample := &notification.Envelope{ID: notification.NewID(), Type: "sample.type", Version: 1, Key: "key"}
	if err := parsed.Option("missingkey=zero").Execute(io.Discard, sample); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTopic, err)
	}
	parsed.Option("missingkey=error")
	return func(e *notification.Envelope) (string, error) {
		var b strings.Builder
		if err := parsed.Execute(&b, e); err != nil {
			return "", fmt.Errorf("%w: %w", ErrTopic, err)
		}
		if b.Len() == 0 {
			return "", fmt.Errorf("%w: the result of %s is empty", ErrTopic, text)
		}
		return b.String(), nil
	}, nil
}
