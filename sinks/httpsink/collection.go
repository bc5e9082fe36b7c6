package httpsink

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/propagation"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
	"github.com/waybill-go/waybill/sinks/internal/envelope"
)

// errNotJSON is the error of a collection in the format json with a payload that no array can have.
var errNotJSON = errors.New("is not JSON, and so cannot be in the array of a collection; use format: " + FormatEnvelope)

// CollectionSize returns how many events a batch can have, because the destination may accept no more; 0 without
// batches.
func (s *Sink) CollectionSize() int { return s.batch.Size }

// DeliverCollection sends one request with all members, under the id of the collection. Its body is
//
//   - in the format envelope, an object with id, group, and the envelopes as items
//   - in the format json, an array of the payloads
//   - in the formats of CloudEvents, an array of events, even if it is larger than batch.max_bytes
//
// The errors are those of [Sink.Deliver], and are about all members. If the template of the URL does
// not give the same one for all, the collection is invalid, with a [*sinks.DifferError].
func (s *Sink) DeliverCollection(ctx context.Context, c *sinks.Collection) (notification.Receipt, error) {
	r, err := s.collectionRequest(c)
	if err != nil {
		return "", err
	}
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.header)) // the request's; each member may have its own
	_, receipt, err := s.client.send(ctx, time.Now().Add(s.client.timeout), r)
	return receipt, err
}

// collectionRequest makes the request of one attempt.
func (s *Sink) collectionRequest(c *sinks.Collection) (request, error) {
	to, err := s.destination.ofAll(c)
	if err != nil {
		return request{}, err
	}
	var (
		w    headerWriter
		body []byte
	)
	switch s.format {
	case FormatEnvelope:
		w = s.contentHeader(defaultContentType)
		body = s.appendCollection(nil, c)
	case FormatJSON:
		if err := checkPayloads(c); err != nil {
			return request{}, sinks.Invalid(err)
		}
		w = s.commonHeader(c)
		body, _ = envelope.AppendArray(nil, c.Members, 0, func(b []byte, d *notification.Delivery) []byte {
			return append(b, bytes.TrimSpace(d.Payload)...)
		})
	default:
		w = s.contentHeader(contentTypeEventBatch)
		body, _ = envelope.AppendArray(nil, c.Members, 0, s.appendEvent)
	}
	w.set(webhook.HeaderAttempt, strconv.Itoa(c.Attempt))
	return s.finish(w, to, encodeValue(c.ID), body), nil
}

// ofAll returns the endpoint of a collection.
func (d *destination) ofAll(c *sinks.Collection) (endpoint, error) {
	_, err := sinks.Common(c, "url", func(m *notification.Delivery) (string, error) {
		to, err := d.of(m)
		if err != nil {
			return "", err
		}
		return to.url.String(), nil
	})
	if err != nil {
		return endpoint{}, err
	}
	return d.of(c.Members[0])
}

// appendCollection appends a collection in the format envelope.
func (s *Sink) appendCollection(b []byte, c *sinks.Collection) []byte {
	b = envelope.AppendText(append(b, `{"id":`...), c.ID)
	b = envelope.AppendMember(b, "group", c.Group)
	b, _ = envelope.AppendArray(append(b, `,"items":`...), c.Members, 0, s.appendEnvelope)
	return append(b, '}')
}

func checkPayloads(c *sinks.Collection) error {
	for _, d := range c.Members {
		if !utf8.Valid(d.Payload) || !json.Valid(d.Payload) {
			return fmt.Errorf("the payload of %s %w", d.ID, errNotJSON)
		}
	}
	return nil
}

// commonHeader returns the headers of a collection in the format json: those that are the same for
// all members, such as their type, and the id and the group of the collection.
func (s *Sink) commonHeader(c *sinks.Collection) headerWriter {
	w := s.header(c.Members[0])
	for _, d := range c.Members[1:] {
		other := s.header(d).header
		for name, values := range w.header {
			if !slices.Equal(values, other[name]) {
				delete(w.header, name)
			}
		}
	}
	for _, name := range []string{headerTraceparent, headerTracestate} {
		delete(w.header, name) // the request has its own
	}
	w.set(headerContentType, defaultContentType)
	w.set(webhook.HeaderID, encodeValue(c.ID))
	w.set(webhook.HeaderGroup, encodeValue(c.Group))
	return w
}
