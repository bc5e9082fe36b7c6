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

// Marshaler writes metadata as NATS headers, and reads them. Watermill's own NATSMarshaler
// does too, but then spaces around a value, line ends, and some names would not arrive; here
// they are percent-encoded. Values without these are as they are.
//
// A server finds its headers, such as Nats-Msg-Id, by searching all of them for the name, in
// other names and in values too. So the N of nats- in a name, and that of Nats- in a value, is
// encoded: %4Eats-Msg-Id.
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
		switch name {
		case wmnats.WatermillUUIDHdr, nats.MsgIdHdr, nats.ExpectedStreamHdr: // metadata named so are encoded
			continue
		}
		plain, errName := url.QueryUnescape(name)
		text, errText := url.PathUnescape(m.Header.Get(name))
		if errName != nil || errText != nil { // another publisher's
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

// ofServerName is how the names of the server's headers begin.
var ofServerName = regexp.MustCompile("(?i)nats-")

// headerName keeps metadata from being taken for the server's headers, and from hiding them.
func headerName(name string) string {
	if name == wmnats.WatermillUUIDHdr {
		return "%5F" + name[1:]
	}
	return ofServerName.ReplaceAllStringFunc(url.QueryEscape(name), func(found string) string {
		return fmt.Sprintf("%%%02X%s", found[0], found[1:])
	})
}

func headerValue(text string) string {
	if strings.ContainsAny(text, "\r\n%") || strings.TrimSpace(text) != text || strings.Contains(text, "Nats-") {
		return strings.ReplaceAll(url.PathEscape(text), "Nats-", "%4Eats-")
	}
	return text
}
