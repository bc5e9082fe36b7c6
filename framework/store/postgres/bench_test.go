package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/capture"
)

// benchmarkPayload is JSON of about 300 bytes.
var benchmarkPayload = fmt.Appendf(nil, `{"order":17,"note":%q}`, strings.Repeat("some text ", 28))

// newBenchmarkLog returns a log with a number of notifications and 1,000 keys.
func newBenchmarkLog(b *testing.B, rows int) *postgres.Store {
	b.Helper()
	db := newDB(b)
	s := openStore(b, db, postgres.Config{})
	_, err := db.ExecContext(b.Context(), `INSERT INTO outbox (type, key, metadata, payload)
		SELECT 'order.placed', 'k' || i % 1000, '{"content-type":"application/json"}', $2::json FROM generate_series(1, $1::int) i`, rows, string(benchmarkPayload))
	require.NoError(b, err)
	_, err = db.ExecContext(b.Context(), `ANALYZE outbox`)
	require.NoError(b, err)
	return s
}

// BenchmarkPage reads a page of the log and converts it to envelopes.
func BenchmarkPage(b *testing.B) {
	const rows, limit = 50_000, 1000
	s := newBenchmarkLog(b, rows)
	target, err := s.Probe(b.Context())
	require.NoError(b, err)
	var (
		reader store.Reader
		read   int
	)
	b.ReportAllocs()
	for b.Loop() {
		if read%rows == 0 {
			reader, err = s.NewReader(nil, store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Types: notification.AllTypes})
			require.NoError(b, err)
		}
		page, err := reader.Next(b.Context(), target, limit)
		require.NoError(b, err)
		require.NotEmpty(b, page.Envelopes)
		read += len(page.Envelopes)
	}
	b.ReportMetric(float64(read)/b.Elapsed().Seconds(), "envelopes/s")
}

// BenchmarkCheckpoint writes a cursor alone, and with many deliveries settled out of order.
func BenchmarkCheckpoint(b *testing.B) {
	s := newBenchmarkLog(b, 1000)
	target, err := s.Probe(b.Context())
	require.NoError(b, err)
	reader, err := s.NewReader(nil, store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Types: notification.AllTypes})
	require.NoError(b, err)
	page, err := reader.Next(b.Context(), target, 1000)
	require.NoError(b, err)
	for _, settled := range []int{0, 256} {
		b.Run(fmt.Sprintf("settled=%d", settled), func(b *testing.B) {
			held, err := lease(b, s, store.NewLane(fmt.Sprint("sink-", settled, "-", b.N), 0, 1))
			require.NoError(b, err)
			offsets := make([]int64, settled)
			for i := range offsets {
				offsets[i] = page.Envelopes[500+i].Offset
			}
			number := int64(0)
			b.ReportAllocs()
			for b.Loop() {
				number++
				if err := s.Checkpoint(b.Context(), store.Checkpoint{
					Lease: held, TTL: time.Minute, Number: number, Position: page.After(int(number % 500)), Settled: store.OffsetRanges(offsets...),
				}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCapture compares the cost that a capture of three columns adds to an INSERT with the cost of a
// statement that publishes the same.
func BenchmarkCapture(b *testing.B) {
	const insert = `INSERT INTO orders SELECT $1 || '-' || i, 'kite', 10.50, '4111' FROM generate_series(1, $2::int) i`
	const publish = `WITH o AS (` + insert + ` RETURNING id, product, amount)
		INSERT INTO outbox (type, key, payload) SELECT 'orders.inserted', id, json_build_object('before', NULL, 'after', row_to_json(o.*)) FROM o`
	for _, rows := range []int{1, 50_000} {
		for name, statement := range map[string]string{"alone": insert, "captured": insert, "published": publish} {
			b.Run(fmt.Sprintf("rows=%d/%s", rows, name), func(b *testing.B) {
				db := newDB(b)
				_, err := postgres.Migrate(b.Context(), db, postgres.Config{})
				require.NoError(b, err)
				_, err = db.ExecContext(b.Context(), orders)
				require.NoError(b, err)
				if name == "captured" {
					require.NoError(b, capture.Add(b.Context(), db, postgres.Config{}, captureOrders))
				}
				n := 0
				for b.Loop() {
					_, err := db.ExecContext(b.Context(), statement, fmt.Sprint(n), rows)
					require.NoError(b, err)
					n++
				}
			})
		}
	}
}
