package nats_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	client "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks/brokers/nats"
)

func TestHeadersPreserveAnyText(t *testing.T) {
	t.Parallel()
	m := message.NewMessage(" an id\n", []byte("payload"))
	m.Metadata = message.Metadata{
		"two words": "value", "größe": "10 €", "line": "one\r\ntwo", "spaces": "  two  ", "percent": "41%",
		"colon:": ":", "key": "plain value",
	}
	encoded, err := nats.Marshaler{}.Marshal("subject", m)
	require.NoError(t, err)
	require.Equal(t, "plain value", encoded.Header.Get("key"))

	decoded, err := nats.Marshaler{}.Unmarshal(encoded)
	require.NoError(t, err)
	require.Equal(t, m.UUID, decoded.UUID)
	require.Equal(t, m.Metadata, decoded.Metadata)
	require.Equal(t, m.Payload, decoded.Payload)
}

func TestHeadersOfOtherPublishersAreUnchanged(t *testing.T) {
	t.Parallel()
	decoded, err := nats.Marshaler{}.Unmarshal(&client.Msg{Header: client.Header{"share": {"100%"}}})
	require.NoError(t, err)
	require.Equal(t, message.Metadata{"share": "100%"}, decoded.Metadata)
}
