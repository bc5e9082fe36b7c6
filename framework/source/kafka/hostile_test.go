package kafka_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/notification"
	kafka "github.com/waybill-go/waybill/framework/source/kafka"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/waybilltest"
	"github.com/waybill-go/waybill/registry"
	kafkasink "github.com/waybill-go/waybill/sinks/kafka"
)

// parker is what the test needs of a store.
type parker interface {
	store.Leases
	store.Deliveries
}

func TestAnyRecordCanBeParked(t *testing.T) {
	stores := map[string]parker{"SQLite": waybilltest.New(t, registry.New()).Store, "PostgreSQL": parkedInPostgres(t)}
	var rules []*kafka.Source
	for _, rule := range []string{"", "topic", `headers["kind"]`, "payload.kind", `string(date(payload.kind))`} {
		s, err := kafka.New(kafka.Config{Brokers: []string{"localhost:1"}, Topics: []string{"orders"}, Type: rule})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		rules = append(rules, s)
	}
	var parked []store.Parked
	add := func(t require.TestingT, s *kafka.Source, r *kgo.Record) {
		value := string(r.Value)
		e := s.Envelope(r)
		require.NoError(t, e.Validate(), "%.300q", r.Topic)
		require.Equal(t, value, string(e.Payload), "byte for byte")
		require.Less(t, store.Size(&e), size(r)+8<<10)
		e.Offset = int64(len(parked) + 1)
		parked = append(parked, store.Parked{Envelope: e, State: store.StateRetrying, DueAt: time.Unix(1, 0).UTC(), FirstParkedAt: time.Unix(1, 0).UTC()})
	}
	for _, r := range oddRecords() {
		for _, s := range rules {
			add(t, s, r)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		add(t, rapid.SampledFrom(rules).Draw(t, "rule"), anyRecord(t))
	})
	for name, s := range stores {
		t.Run(name, func(t *testing.T) { comesBack(t, s, parked) })
	}
}

// oddTexts are what a program may put where a text belongs.
var oddTexts = []string{"", "a", "\x00", "a\x00b", "\xff\xfe", "\xed\xa0\x80", "\u2028", "\ufffe\U0010ffff", "'\"\\", `\u0000`, "é", " a ", "*", "1", "9999999999",
	"0001-01-01T00:00:00Z", "2026-01-01T00:00:00Z", strings.Repeat("x", 256), strings.Repeat("\x00", 1025), strings.Repeat("é", 3000)}

func oddRecords() (records []*kgo.Record) {
	for _, odd := range oddTexts {
		records = append(records, &kgo.Record{Topic: "orders", Key: []byte(odd), Value: []byte(odd), Headers: []kgo.RecordHeader{{Key: odd, Value: []byte(odd)}, {Key: "kind", Value: []byte(odd)}}},
			&kgo.Record{Topic: strings.Repeat("t", 249), Partition: 1000, Offset: 1 << 40, Value: []byte(odd), Headers: []kgo.RecordHeader{{Key: "kind", Value: []byte(odd)}}})
		for i := range 4 {
			r := orders(1, 1, 1)[0]
			r.Topic, r.Headers[i].Value = "orders", []byte(odd)
			records = append(records, r)
		}
	}
	kind, _ := json.Marshal(map[string]string{"kind": "a\x00b"})
	return append(records, &kgo.Record{Topic: "orders", Value: kind}, &kgo.Record{Topic: "orders"}, &kgo.Record{Topic: "orders", Headers: []kgo.RecordHeader{{Key: strings.Repeat("h", 70_000), Value: []byte(strings.Repeat("é", 70_000))}}})
}

func anyRecord(t *rapid.T) *kgo.Record {
	odd := func(name string) string {
		if rapid.Bool().Draw(t, "listed") {
			return rapid.SampledFrom(oddTexts).Draw(t, name)
		}
		return string(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, name))
	}
	r := &kgo.Record{Topic: rapid.SampledFrom([]string{"orders", strings.Repeat("t", 249)}).Draw(t, "topic"), Offset: rapid.Int64Min(0).Draw(t, "offset"),
		Timestamp: time.UnixMilli(rapid.Int64().Draw(t, "at")), Key: []byte(odd("key")), Value: []byte(odd("value"))}
	names := []string{ // of headers that mean something
		kafkasink.HeaderID, kafkasink.HeaderType, kafkasink.HeaderVersion, kafkasink.HeaderOccurredOn, "ce_specversion", "ce_id", "ce_type", "ce_time", "kind", "content-type",
	}
	for range rapid.IntRange(0, 8).Draw(t, "headers") {
		name := rapid.SampledFrom(names).Draw(t, "name")
		if rapid.Bool().Draw(t, "odd name") {
			name = odd("name")
		}
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(odd("header"))})
	}
	return r
}

func size(r *kgo.Record) int {
	size := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += len(h.Key) + len(h.Value)
	}
	return size
}

// comesBack parks deliveries, and requires that they come back as they were.
func comesBack(t *testing.T, s parker, parked []store.Parked) {
	_, err := s.Cut(t.Context(), "mail", 1, store.StartOldest)
	require.NoError(t, err)
	lane := store.Lanes("mail", 1)[0]
	lease, err := s.Acquire(t.Context(), lane, "w1", time.Hour)
	require.NoError(t, err)
	require.NoError(t, s.Checkpoint(t.Context(), store.Checkpoint{Lease: lease, TTL: time.Hour, Park: parked}))
	back := make(map[int64]notification.Envelope)
	for len(back) < len(parked) {
		var except []store.Ref
		for _, e := range back {
			except = append(except, store.RefOf(&e))
		}
		due, _, err := s.Due(t.Context(), store.DueQuery{Lane: lane, Now: time.Now(), Limit: 1000, Except: except})
		require.NoError(t, err)
		require.NotEmpty(t, due)
		for _, p := range due {
			back[p.Envelope.Offset] = p.Envelope
		}
	}
	for _, p := range parked {
		want, got := p.Envelope, back[p.Envelope.Offset]
		want.OccurredOn = notification.ClampTime(want.OccurredOn)
		if len(want.Payload) == 0 {
			want.Payload, got.Payload = nil, nil
		}
		if len(want.Metadata) == 0 {
			want.Metadata, got.Metadata = nil, nil
		}
		require.Equal(t, want, got)
	}
}

func parkedInPostgres(t *testing.T) parker {
	db, err := postgres.OpenDB(postgrestest.DSN(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = postgres.Migrate(t.Context(), db, postgres.Config{Payload: postgres.PayloadBytes})
	require.NoError(t, err)
	s, err := postgres.Open(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	return s
}
