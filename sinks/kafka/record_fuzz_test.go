package kafka

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// written returns the record that the sink writes for an envelope.
func written(source string, e *notification.Envelope) Record {
	p := publication{envelope: e}
	p.fill("orders", source)
	return Record{Key: p.record.Key, Value: p.record.Value, Headers: Headers(p.record.Headers)}
}

func FuzzAnEnvelopeIsReadBack(f *testing.F) {
	f.Add("0197", "order.placed", "order-17", "content-type", "application/json", "type", "mine", []byte(`{"total":12}`))
	f.Add("a\x01b", "t", "", "metadata-id", "1", "metadata-metadata-id", "2", []byte{})
	f.Add("id", "t", "k\u0085", "ce_specversion", "1.0", "_watermill_message_uuid", "x", []byte{0, 255})
	f.Add("id", "t", "", "correlation-id", "a\nb", "traceparent", "00-1", []byte(nil))
	f.Fuzz(func(t *testing.T, id, typ, key, name1, text1, name2, text2 string, payload []byte) {
		e := &notification.Envelope{
			ID: id, Type: typ, Version: 3, Key: key, OccurredOn: time.Date(2026, 7, 1, 12, 0, 0, 123_456_000, time.UTC),
			Metadata: notification.Metadata{name1: text1, name2: text2}, Payload: payload,
		}
		if e.Validate() != nil {
			return
		}
		got, err := Envelope(written("", e))
		require.NoError(t, err)
		if payload == nil {
			got.Payload = nil // a nil payload is read back as an empty one
		}
		assert.Equal(t, e, got)

		got, err = Envelope(written("/shop", e))
		require.NoError(t, err)
		assert.Equal(t, []any{e.ID, e.Key, e.Version, e.OccurredOn}, []any{got.ID, got.Key, got.Version, got.OccurredOn})
		assert.Equal(t, string(e.Payload), string(got.Payload))
	})
}

func FuzzARecordIsReadOrRefused(f *testing.F) {
	f.Add("id", "1", "type", "t", "version", "1", "occurred-on", "2026-07-01T12:00:00.000000Z", []byte("k"))
	f.Add("ce_specversion", "1.0", "ce_id", "1", "ce_type", "t", "ce_payloadversion", "1", []byte(nil))
	f.Add("id", "", "type", "*", "version", "0x1", "occurred-on", "yesterday", []byte{0xff})
	f.Fuzz(func(t *testing.T, name1, text1, name2, text2, name3, text3, name4, text4 string, key []byte) {
		e, err := Envelope(Record{Key: key, Headers: []Header{
			{name1, []byte(text1)}, {name2, []byte(text2)}, {name3, []byte(text3)}, {name4, []byte(text4)},
		}})
		if err == nil {
			require.NoError(t, e.Validate())
			return
		}
		require.ErrorIs(t, err, ErrRecord)
		require.Equal(t, sinks.ClassPermanent, sinktest.Class(err))
	})
}
