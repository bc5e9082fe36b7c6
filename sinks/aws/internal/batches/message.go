package batches

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/body"
	"github.com/waybill-go/waybill/sinks/internal/naming"
	"github.com/waybill-go/waybill/sinks/large"
)

// MaxMessage is the size of the largest message of SQS and SNS with its attributes, and of a request, in bytes.
const MaxMessage = 1 << 20

// MoreAttributes returns how many attributes a message may have besides those that every message has, if bodies are
// stored. SQS permits ten, and SNS passes no more to a queue.
func MoreAttributes(l large.Config) int {
	if l.Enabled() {
		return 10 - 5 - 1 // large.AttributeSize
	}
	return 10 - 5
}

// Form is what the messages of a sink of SQS or SNS have in common.
type Form struct {
	Body     body.Config
	Large    *large.Bodies
	MaxBytes int
}

// Message is the body of a message of SQS or SNS, and its attributes.
type Message struct {
	Text       string
	Attributes []Attribute
	Bytes      int // of all of it
}

// Attribute is an attribute of a message. Kind is its data type.
type Attribute struct{ Name, Kind, Value string }

// Message makes the message of a notification, and stores its body if it is too large. more is how many bytes the
// message has besides body and attributes. Its errors have a class.
func (f Form) Message(ctx context.Context, e *notification.Envelope, more int) (Message, error) {
	m := Message{Bytes: more}
	add := func(name, kind, value string) {
		m.Attributes = append(m.Attributes, Attribute{name, kind, value})
		m.Bytes += len(name) + len(kind) + len(value)
	}
	for _, a := range f.Body.AttributesOf(e) {
		switch {
		case isText(a.Value):
			add(a.Name, "String", a.Value)
		case f.Body.Format == body.FormatPayload: // otherwise the body has it
			return m, sinks.Invalid(fmt.Errorf("attribute %s has a character that AWS does not keep; format: envelope has it in the body", a.Name))
		}
	}
	text := f.Body.Of(e)
	if !isText(string(text)) {
		return m, sinks.Invalid(errors.New("the payload is not a text that AWS keeps; format: envelope sends it as base64"))
	}
	if f.Large.IsLarge(text) || f.Large != nil && m.Bytes+len(text) > f.MaxBytes {
		pointer, err := f.Large.Put(ctx, e.ID, text)
		if err != nil {
			return m, err
		}
		add(large.AttributeSize, "Number", strconv.Itoa(len(text)))
		text = pointer
	}
	m.Text = string(text)
	m.Bytes += len(text)
	switch {
	case m.Bytes > f.MaxBytes:
		return m, sinks.Invalid(fmt.Errorf("the message takes %d bytes, max_bytes is %d; large stores larger bodies", m.Bytes, f.MaxBytes))
	case m.Text == "":
		return m, sinks.Invalid(errors.New("the payload is empty, and AWS accepts no empty message; format: envelope sends one"))
	}
	return m, nil
}

// IsFIFO reports whether a queue or a topic is a FIFO one, which its name says.
func IsFIFO(name string) bool { return strings.HasSuffix(name, ".fifo") }

// Group returns the message group and the deduplication id of a notification; nil for none. In a FIFO queue or topic the
// group is the ordering key, and otherwise that of a template.
func Group(e *notification.Envelope, fifo bool, template naming.Name) (group, deduplication *string, _ error) {
	text := func(s string) *string { return &s }
	if fifo {
		deduplication = text(ID(e.ID))
		if e.Key == "" {
			return deduplication, deduplication, nil
		}
		return text(ID(e.Key)), deduplication, nil
	}
	name, err := template(e)
	switch {
	case err != nil:
		return nil, nil, sinks.Invalid(fmt.Errorf("group: %w", err))
	case name == "":
		return nil, nil, nil
	}
	return text(ID(name)), nil, nil
}

var legalAttribute = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// IsAttribute reports whether an attribute may have a name: SQS, message metadata, "Message attribute components", which
// are those of SNS as well.
func IsAttribute(name string) bool {
	lower := strings.ToLower(name)
	return len(name) <= 256 && legalAttribute.MatchString(name) && !strings.HasPrefix(lower, "aws.") && !strings.HasPrefix(lower, "amazon.")
}

// isText reports whether SQS keeps a text as it is. It replaces other characters, and those of a topic end there: SQS,
// SendMessage, MessageBody.
func isText(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xfffe || r == 0xffff
	})
}
