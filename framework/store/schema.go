package store

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/framework/notification"
)

// Names under which an envelope's columns travel in the metadata of a Watermill
// message, on the short way from the publisher to a dialect's schema adapter.
const (
	messageType       = "_waybill_type"
	messageVersion    = "_waybill_version"
	messageKey        = "_waybill_key"
	messageOccurredOn = "_waybill_occurred_on"
	messageDeliverAt  = "_waybill_deliver_at"
)

// NewMessage puts an envelope into the form that Watermill's SQL publisher
// takes. EnvelopeOf is its inverse.
func NewMessage(e notification.Envelope) *message.Message {
	m := message.NewMessage(e.ID, e.Payload)
	maps.Copy(m.Metadata, e.Metadata)
	m.Metadata[messageType] = e.Type
	m.Metadata[messageVersion] = strconv.Itoa(e.Version)
	if e.Key != "" {
		m.Metadata[messageKey] = e.Key
	}
	m.Metadata[messageOccurredOn] = e.OccurredOn.UTC().Format(time.RFC3339Nano)
	if !e.DeliverAt.IsZero() {
		m.Metadata[messageDeliverAt] = e.DeliverAt.UTC().Format(time.RFC3339Nano)
	}
	return m
}

// EnvelopeOf reads the envelope out of a message that NewMessage made. A message
// that any other program hands to a schema adapter needs at least the type.
func EnvelopeOf(m *message.Message) (notification.Envelope, error) {
	e := notification.Envelope{
		ID:       m.UUID,
		Type:     m.Metadata[messageType],
		Version:  1,
		Key:      m.Metadata[messageKey],
		Metadata: make(notification.Metadata, len(m.Metadata)),
		Payload:  m.Payload,
	}
	for name, value := range m.Metadata {
		switch name {
		case messageType, messageVersion, messageKey, messageOccurredOn, messageDeliverAt:
		default:
			e.Metadata[name] = value
		}
	}
	var err error
	if v := m.Metadata[messageVersion]; v != "" {
		if e.Version, err = strconv.Atoi(v); err != nil {
			return e, fmt.Errorf("message %s: metadata %s: %w", m.UUID, messageVersion, err)
		}
	}
	if e.OccurredOn, err = messageTime(m, messageOccurredOn); err != nil {
		return e, err
	}
	if e.OccurredOn.IsZero() {
		e.OccurredOn = time.Now().UTC()
	}
	e.DeliverAt, err = messageTime(m, messageDeliverAt)
	return e, err
}

func messageTime(m *message.Message, name string) (time.Time, error) {
	value := m.Metadata[name]
	if value == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		return time.Time{}, fmt.Errorf("message %s: metadata %s: %w", m.UUID, name, err)
	}
	return t, nil
}
