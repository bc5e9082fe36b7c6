package kafka

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks/internal/naming"
)

// maxTopicNameLength is Kafka's limit; see org.apache.kafka.common.internals.Topic.
const maxTopicNameLength = 249

// newTopic parses the topic of a configuration. The errors of the name wrap ErrTopic.
func newTopic(text string) (naming.Name, error) {
	name, err := naming.New(text, checkTopicName)
	if err != nil {
		return nil, err
	}
	return func(e *notification.Envelope) (string, error) {
		topic, err := name(e)
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrTopic, err)
		}
		return topic, nil
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
