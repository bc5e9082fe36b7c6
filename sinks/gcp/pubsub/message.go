package pubsub

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/proto"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/body"
	"github.com/waybill-go/waybill/sinks/internal/cloudevents"
	"github.com/waybill-go/waybill/sinks/internal/envelope"
	"github.com/waybill-go/waybill/sinks/large"
)

// Limits of the service, from its quotas page ("Resource limits").
const (
	maxRequest       = 10_000_000 // bytes of a request
	maxMessages      = 1000       // messages of a request
	maxAttributes    = 100
	maxAttributeName = 256  // bytes
	maxAttributeText = 1024 // bytes
	reservedPrefix   = "goog"
)

// maxBody is the size of the largest body that fits into a request with all attributes that a message can have.
const maxBody = maxRequest - maxAttributes*(maxAttributeName+maxAttributeText+16) - 4096

// ownAttributes is how many attributes a message may have besides those of the setting.
const ownAttributes = 7

// attributeContentType has the media type of the body. Clients of CloudEvents recognize structured mode by it.
const attributeContentType = "Content-Type"

// eventPrefix is that of the attributes of an event in binary mode: CloudEvents 1.0, Google Cloud Pub/Sub Protocol
// Binding, section 3.1.3.1. The binding is a working draft.
const eventPrefix = "ce-"

// publication is a delivery that is being published.
type publication struct {
	envelope *notification.Envelope
	to       *topic
	message  *pubsubpb.PubsubMessage
	size     int // the message's bytes in a request

	previous *publication // the previous one of its key, which must be published first
	id       string       // the id that the service has given to the message
	err      error        // why it is not published
}

// topic is a topic of a batch.
type topic struct {
	named  string      // as the configuration or data names it
	full   string      // projects/PROJECT/topics/TOPIC
	silent atomic.Bool // whether a request was not answered in time
}

// canGo reports whether the publication may be sent. It fails the publication if the previous one of its key has failed.
func (p *publication) canGo() bool {
	if p.err == nil && p.previous != nil && p.previous.err != nil {
		p.err = errPreviousFailed
	}
	return p.err == nil
}

// prepare makes the message, and stores a large body. Its errors have a class.
func (s *Sink) prepare(ctx context.Context, p *publication) error {
	data, contentType, err := s.body(ctx, p)
	if err != nil {
		return err
	}
	attributes := s.attributes(p.envelope)
	if contentType != "" {
		attributes[attributeContentType] = contentType
	}
	if err := checkAttributes(attributes); err != nil {
		return sinks.Invalid(err)
	}
	if s.bodies.IsLarge(data) {
		attributes[large.AttributeSize] = strconv.Itoa(len(data))
		if data, err = s.bodies.Put(ctx, p.envelope.ID, data); err != nil {
			return err
		}
	}
	p.message = &pubsubpb.PubsubMessage{Data: data, Attributes: attributes}
	if !s.config.Unordered {
		p.message.OrderingKey = p.envelope.Key // as long as the service accepts, at most 1024 bytes
	}
	p.size = proto.Size(p.message) + 8 // its tag and length
	if size := p.size + len(p.to.full) + 8; size > maxRequest {
		return sinks.Invalid(fmt.Errorf("%w: it takes %d bytes, the limit is %d; set large.store, then the message has a pointer to the body", ErrTooLarge, size, maxRequest))
	}
	return nil
}

// body returns the body of a message, and its media type; "" is unknown.
func (s *Sink) body(ctx context.Context, p *publication) (data []byte, contentType string, err error) {
	e := p.envelope
	switch {
	case s.encoder != nil:
		data, err = s.encoder.Encode(ctx, p.to.full[strings.LastIndexByte(p.to.full, '/')+1:], e)
		return data, s.encoder.ContentType(), err
	case s.isBinary():
		return e.Payload, cloudevents.ContentType(e.Metadata, cloudevents.IsString), nil
	case s.config.Body.Format == body.FormatCloudEvents:
		return s.config.Body.Of(e), "application/cloudevents+json", nil
	case s.config.Body.Format == body.FormatEnvelope:
		return s.config.Body.Of(e), "application/json", nil
	}
	return e.Payload, e.Metadata.Get(notification.MetadataContentType), nil
}

func (s *Sink) isBinary() bool {
	return s.config.Body.Format == body.FormatCloudEvents && s.config.ContentMode == ModeBinary
}

func (s *Sink) attributes(e *notification.Envelope) map[string]string {
	all := make(map[string]string, ownAttributes+len(s.config.Body.Attributes))
	for _, a := range s.config.Body.AttributesOf(e) {
		all[a.Name] = a.Value
	}
	if !s.isBinary() {
		return all
	}
	set := func(name, value string) { all[eventPrefix+name] = value }
	for name, value := range cloudevents.Extensions(e.Metadata) {
		set(name, value)
	}
	set("specversion", "1.0")
	set("id", cloudevents.Attribute(e.ID))
	set("source", s.config.Body.Source)
	set("type", cloudevents.Attribute(e.Type))
	if !e.OccurredOn.IsZero() {
		set("time", envelope.FormatTime(e.OccurredOn))
	}
	set(cloudevents.ExtensionVersion, strconv.Itoa(e.Version))
	if e.Key != "" {
		set(cloudevents.ExtensionKey, cloudevents.Attribute(e.Key))
	}
	return all
}

// checkAttributes checks the limits of the service, and that of the protocol, which has texts in UTF-8 only.
func checkAttributes(all map[string]string) error {
	if len(all) >= maxAttributes {
		return fmt.Errorf("%w: it has %d, the limit is %d; use content_mode: %s", ErrAttribute, len(all), maxAttributes-1, ModeStructured)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch text := all[name]; {
		case !utf8.ValidString(text):
			return fmt.Errorf("%w: %s is not UTF-8", ErrAttribute, name)
		case len(text) > maxAttributeText:
			return fmt.Errorf("%w: %s has %d bytes, the limit is %d", ErrAttribute, name, len(text), maxAttributeText)
		case len(name) > maxAttributeName:
			return fmt.Errorf("%w: the name %.40q… has %d bytes, the limit is %d", ErrAttribute, name, len(name), maxAttributeName)
		}
	}
	return nil
}
