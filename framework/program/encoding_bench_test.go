package program

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/encoding"
	"github.com/waybill-go/waybill/sinks/kafka"
)

// BenchmarkDrainWithEncoding drains a log on PostgreSQL to a broker in this process, without encoding and with
// each format in turn, and reports the median of the rows per second of each.
func BenchmarkDrainWithEncoding(b *testing.B) {
	const rows = 200_000
	db := postgrestest.New(b)
	_, err := postgres.Migrate(b.Context(), db, postgres.Config{})
	require.NoError(b, err)
	_, err = db.Exec(`INSERT INTO outbox (id, type, version, key, payload)
		SELECT 'n-' || i, 'order.placed', 1, 'k-' || i % 10000, ('{"order":' || i || ',"n":7,"note":"' || repeat('some text ', 30) || '"}')::json FROM generate_series(1, $1) i`, rows)
	require.NoError(b, err)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(6, "orders"))
	require.NoError(b, err)
	b.Cleanup(cluster.Close)
	registry := srfake.New()
	b.Cleanup(registry.Close)
	schemas := new(contract.Set)
	require.NoError(b, schemas.Add(contract.About{Type: "order.placed", Version: 1},
		[]byte(`{"type": "object", "required": ["order", "n", "note"], "properties": {"order": {"type": "integer"}, "n": {"type": "integer"}, "note": {"type": "string"}}}`)))
	require.NoError(b, schemas.Give("order.placed", 0, sinks.Protobuf, sinks.Schema{Text: `syntax = "proto3"; message Order { int64 order = 1; int64 n = 2; string note = 3; }`}))

	formats := []string{"", encoding.FormatAvro, encoding.FormatJSONSchema, encoding.FormatProtobuf}
	took := make(map[string][]time.Duration)
	round := 0
	for b.Loop() {
		for i := range formats {
			format := formats[(i+round)%len(formats)]
			name := fmt.Sprintf("sink%d%s", round, format)
			c := kafka.Config{Brokers: cluster.ListenAddrs(), Topic: "orders"}
			if format != "" {
				c.Encoding = encoding.Config{Format: format, Register: true, Registry: encoding.Registry{URL: registry.URL() + "/contexts/" + format}}
			}
			sink, err := kafka.New(sinks.Instance{Name: name, Contracts: schemas}, c)
			require.NoError(b, err)
			store, err := postgres.Open(b.Context(), db, postgres.Config{})
			require.NoError(b, err)
			f, err := forwarder.New(forwarder.Config{
				Store: store, Routes: route.Routes{"*": route.To(name)}, Logger: slog.New(slog.DiscardHandler),
				Sinks: map[string]forwarder.Sink{name: {Sink: sink, Start: forwarder.StartOldest}},
			})
			require.NoError(b, err)
			ctx, stop := context.WithCancel(b.Context())
			done := make(chan error)
			begun := time.Now()
			go func() { done <- f.Run(ctx) }()
			for f.Stats()[0].Delivered < rows {
				time.Sleep(2 * time.Millisecond)
			}
			took[format] = append(took[format], time.Since(begun))
			stop()
			require.NoError(b, <-done)
		}
		round++
	}
	rate := func(format string) float64 {
		slices.Sort(took[format])
		return rows / took[format][len(took[format])/2].Seconds()
	}
	for _, format := range formats {
		name := cmp.Or(format, "plain")
		b.ReportMetric(rate(format), name+"/s")
		b.ReportMetric(rate(format)/rate(""), name+"-of-plain")
	}
}
