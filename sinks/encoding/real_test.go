package encoding_test

import (
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/encoding"
)

// realRegistry is the environment variable with the address of a real registry, which .ci/test-registry starts.
const realRegistry = "WAYBILL_TEST_REGISTRY"

// realEncoder makes an encoder with a real registry.
func realEncoder(t *testing.T, c contracts, format string, register bool) *encoding.Encoder {
	e, err := encoding.New(sinks.Instance{Contracts: c}, encoding.Config{Format: format, Register: register, Registry: encoding.Registry{URL: os.Getenv(realRegistry)}})
	require.NoError(t, err)
	t.Cleanup(e.Close)
	return e
}

func realClient(t *testing.T) *sr.Client {
	if os.Getenv(realRegistry) == "" {
		t.Skipf("needs a registry at %s; .ci/test-registry starts one", realRegistry)
	}
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	client, err := sr.NewClient(sr.URLs(os.Getenv(realRegistry)), sr.HTTPClient(&http.Client{Transport: transport}))
	require.NoError(t, err)
	return client
}

func TestARealRegistryHasEachFormat(t *testing.T) {
	t.Parallel()
	client := realClient(t)
	for _, format := range []string{encoding.FormatAvro, encoding.FormatJSONSchema, encoding.FormatProtobuf} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			topic := "t-" + notification.NewID()
			require.NoError(t, realEncoder(t, orders(), format, true).CheckHealth(t.Context()))
			_, err := realEncoder(t, orders(), format, false).Encode(t.Context(), topic, order(payload))
			requireClass(t, sinks.ClassUnavailable, err)
			require.ErrorIs(t, err, encoding.ErrNotRegistered)

			encoded, err := realEncoder(t, orders(), format, true).Encode(t.Context(), topic, order(payload))
			require.NoError(t, err)
			again, err := realEncoder(t, orders(), format, false).Encode(t.Context(), topic, order(payload))
			require.NoError(t, err)
			require.Equal(t, encoded, again)
			id, _, err := new(sr.ConfluentHeader).DecodeID(encoded)
			require.NoError(t, err)
			schema, err := client.SchemaByID(t.Context(), id)
			require.NoError(t, err)
			require.NotEmpty(t, schema.Schema)
			if format == encoding.FormatAvro {
				var v any
				_, err := avro.MustParse(schema.Schema).Decode(encoded[5:], &v)
				require.NoError(t, err)
			}
		})
	}
}

func TestARealRegistryRefusesWhatIsIncompatible(t *testing.T) {
	t.Parallel()
	client := realClient(t)
	topic := "t-" + notification.NewID()
	schema := func(fields string) contracts {
		return contracts{sinks.Avro: {Text: `{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}` + fields + `]}`}}
	}
	_, err := realEncoder(t, schema(""), encoding.FormatAvro, true).Encode(t.Context(), topic, order(`{"id": 1}`))
	require.NoError(t, err)
	result := client.SetCompatibility(t.Context(), sr.SetCompatibility{Level: sr.CompatBackward}, topic+"-value")
	require.NoError(t, result[0].Err)
	_, err = realEncoder(t, schema(`, {"name": "total", "type": "long"}`), encoding.FormatAvro, true).Encode(t.Context(), topic, order(`{"id": 1, "total": 2}`))
	requireClass(t, sinks.ClassUnavailable, err)
	require.ErrorIs(t, err, encoding.ErrRefused)
	require.Contains(t, sinks.Brief(err), fmt.Sprintf("the subject %q", topic+"-value"))
	require.Contains(t, sinks.Brief(err), "total", "the field that is incompatible")
}
