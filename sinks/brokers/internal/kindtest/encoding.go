package kindtest

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/encoding"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// totals has a schema for the payload {"total": 12}.
type totals struct{}

func (totals) Schema(_ string, _ int, l sinks.SchemaLanguage) (sinks.Schema, error) {
	if l != sinks.Avro {
		return sinks.Schema{}, sinks.ErrNoSchema
	}
	return sinks.Schema{Text: `{"type":"record","name":"Total","fields":[{"name":"total","type":"long"}]}`}, nil
}

func (totals) Validate(string, int, []byte) error { return nil }

func total(n int, payload string) *notification.Delivery {
	d := sinktest.NewDelivery(n)
	d.Payload = []byte(payload)
	return d
}

// testEncoding encodes payloads with a schema registry that does not have the schema at first.
func (s Subject) testEncoding(t *testing.T) {
	published := s.Watch(t)
	registry := srfake.New()
	t.Cleanup(registry.Close)
	plain := New(t, s.Kind, sinks.Instance{}, s.settings(s.Server.URL, timeout))
	receipt, err := plain.Deliver(t.Context(), sinktest.NewDelivery(0))
	require.NoError(t, err)
	subject := strings.TrimPrefix(string(receipt), "published to ") + "-value"

	sink := New(t, s.Kind, sinks.Instance{Name: "encoding", Contracts: totals{}},
		s.settings(s.Server.URL, timeout)+"\nencoding: {format: avro, registry: {url: '"+registry.URL()+"'}}")
	require.NoError(t, sink.(sinks.HealthChecker).CheckHealth(t.Context()))
	d := total(1, `{"total": 12}`)
	silent := make(chan struct{})
	registry.Intercept(func(http.ResponseWriter, *http.Request) bool {
		<-silent
		return false
	})
	brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = sink.Deliver(brief, d)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	require.ErrorIs(t, err, encoding.ErrRegistry)
	require.NotContains(t, err.Error(), "connect:", "the broker is not the reason")
	registry.ClearInterceptors()
	close(silent)
	_, err = sink.Deliver(t.Context(), d)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	require.ErrorIs(t, err, encoding.ErrNotRegistered)
	require.ErrorContains(t, err, subject)
	schema, err := totals{}.Schema("", 0, sinks.Avro)
	require.NoError(t, err)
	_, _, err = registry.RegisterSchema(subject, sr.Schema{Schema: schema.Text})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err = sink.Deliver(t.Context(), d)
		return err == nil
	}, Patience, 100*time.Millisecond)

	wrong := total(2, `{"total": "twelve"}`)
	_, err = sink.Deliver(t.Context(), wrong)
	require.Equal(t, sinks.ClassInvalid, sinktest.Class(err), "%v", err)
	require.ErrorContains(t, err, "/total")
	_, err = sink.(sinks.Collector).DeliverCollection(t.Context(), &sinks.Collection{Members: []*notification.Delivery{total(3, `{"total": 3}`), wrong}})
	require.Equal(t, sinks.ClassInvalid, sinktest.Class(err), "%v", err)
	_, err = sink.(sinks.Collector).DeliverCollection(t.Context(), &sinks.Collection{Members: []*notification.Delivery{total(4, `{"total": 4}`), total(5, `{"total": 5}`)}})
	require.NoError(t, err)

	got := Envelopes(published())[1:]
	require.Len(t, got, 3)
	for i, want := range []string{"\x18", "\x08", "\x0a"} {
		require.Equal(t, "\x00\x00\x00\x00\x01"+want, string(got[i].Payload))
		require.Equal(t, "application/vnd.confluent.avro", got[i].Metadata[notification.MetadataContentType])
	}
	registry.Close()
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(sink.(sinks.HealthChecker).CheckHealth(t.Context())))
}
