package publisher

import (
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks/internal/naming"
)

// newTopic parses the topic of a configuration. Its errors, and those of the name, wrap ErrTopic.
func newTopic(text string) (naming.Name, error) {
	name, err := naming.New(text, func(topic string) error {
		if topic == "" {
			return errors.New("it is empty")
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTopic, err)
	}
	return func(e *notification.Envelope) (string, error) {
		topic, err := name(e)
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrTopic, err)
		}
		return topic, nil
	}, nil
}
