package httpsink

import (
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks/internal/cloudevents"
	"github.com/waybill-go/waybill/sinks/internal/envelope"
)

// appendEnvelope appends the whole notification as JSON, so that the signature covers it.
// Headers are not signed: an attacker who replays a request could change them.
func (s *Sink) appendEnvelope(b []byte, d *notification.Delivery) []byte {
	return envelope.Append(b, d.Envelope, s.metadata.of(d.Metadata), cloudevents.ContentType(d.Metadata, isPlain))
}
