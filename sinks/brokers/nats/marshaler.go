package nats

import (
	"net/url"
	"strings"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/waybill-go/waybill/sinks/publisher"
)

// Marshaler writes metadata as NATS headers, and reads them. Watermill's own NATSMarshaler
// does too, but then spaces around a value, line ends, and some names would not arrive; here
// they are percent-encoded. Values without these are as they are. Metadata that is named
// like an instruction to the server, such as Nats-Rollup, is sent as metadata- and its name.
type Marshaler struct{}

var _ wmnats.MarshalerUnmarshaler = Marshaler{}

// Marshal makes a message for the subject topic.
func (Marshaler) Marshal(topic string, m *message.Message) (*nats.Msg, error) {
	header := make(nats.Header, len(m.Metadata)+1)
	for name, text := range m.Metadata {
		header.Set(headerName(name), headerValue(text))
	}
	header.Set(wmnats.WatermillUUIDHdr, headerValue(m.UUID))
	return &nats.Msg{Subject: topic, Header: header, Data: m.Payload}, nil
}

// Unmarshal reads a message, also of other publishers.
func (Marshaler) Unmarshal(m *nats.Msg) (*message.Message, error) {
	metadata := make(message.Metadata, len(m.Header))
	for name := range m.Header {
		plain, errName := url.QueryUnescape(name)
		text, errText := url.PathUnescape(m.Header.Get(name))
		if errName != nil || errText != nil { // another publisher's
			plain, text = name, m.Header.Get(name)
		}
		metadata[plain] = text
	}
	id := metadata[wmnats.WatermillUUIDHdr]
	delete(metadata, wmnats.WatermillUUIDHdr)
	delete(metadata, nats.MsgIdHdr)
	plain := message.NewMessage(id, m.Data)
	plain.Metadata = metadata
	return plain, nil
}

// headerName keeps metadata from being taken for an instruction to the server.
func headerName(name string) string {
	if strings.HasPrefix(name, "Nats-") || name == wmnats.WatermillUUIDHdr {
		name = publisher.MetadataPrefix + name
	}
	return url.QueryEscape(name)
}

func headerValue(text string) string {
	if strings.ContainsAny(text, "\r\n%") || strings.TrimSpace(text) != text {
		return url.PathEscape(text)
	}
	return text
}
