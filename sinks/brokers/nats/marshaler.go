package nats

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
)

// Marshaler converts metadata to NATS headers, and back. With Watermill's NATSMarshaler, spaces
// around a value, line ends and some names would be lost. Marshaler percent-encodes them, and
// leaves other values unchanged.
//
// A server finds its headers, such as Nats-Msg-Id, by searching for the name, also within other
// names and values. So the N of nats- in a name, and of Nats- in a value, is encoded, too:
// %4Eats-Msg-Id.
type Marshaler struct{}

var _ wmnats.MarshalerUnmarshaler = Marshaler{}

// Marshal makes a NATS message with the subject topic.
func (Marshaler) Marshal(topic string, m *message.Message) (*nats.Msg, error) {
	header := make(nats.Header, len(m.Metadata)+1)
	for name, text := range m.Metadata {
		header.Set(headerName(name), headerValue(text))
	}
	header.Set(wmnats.WatermillUUIDHdr, headerValue(m.UUID))
	return &nats.Msg{Subject: topic, Header: header, Data: m.Payload}, nil
}

// Unmarshal converts a NATS message, which may come from another publisher.
func (Marshaler) Unmarshal(m *nats.Msg) (*message.Message, error) {
	metadata := make(message.Metadata, len(m.Header))
	for name := range m.Header {
		switch name {
		case wmnats.WatermillUUIDHdr, nats.MsgIdHdr, nats.ExpectedStreamHdr: // not metadata, whose names are encoded
			continue
		}
		plain, errName := url.QueryUnescape(name)
		text, errText := url.PathUnescape(m.Header.Get(name))
		if errName != nil || errText != nil { // from another publisher
			plain, text = name, m.Header.Get(name)
		}
		metadata[plain] = text
	}
	id := m.Header.Get(wmnats.WatermillUUIDHdr)
	if decoded, err := url.PathUnescape(id); err == nil {
		id = decoded
	}
	plain := message.NewMessage(id, m.Data)
	plain.Metadata = metadata
	return plain, nil
}

// serverPrefix matches the prefix of the server's headers.
var serverPrefix = regexp.MustCompile("(?i)nats-")

// headerName encodes the name of metadata, so that the server does not take it for one of its
// headers.
func headerName(name string) string {
	if name == wmnats.WatermillUUIDHdr {
		return "%5F" + name[1:]
	}
	return serverPrefix.ReplaceAllStringFunc(url.QueryEscape(name), func(found string) string {
		return fmt.Sprintf("%%%02X%s", found[0], found[1:])
	})
}

func headerValue(text string) string {
	if strings.ContainsAny(text, "\r\n%") || strings.TrimSpace(text) != text || strings.Contains(text, "Nats-") {
		return strings.ReplaceAll(url.PathEscape(text), "Nats-", "%4Eats-")
	}
	return text
}
