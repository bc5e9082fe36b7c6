package postgres_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

// stores returns stores that read pages from the primary and from the standby.
func (b *beside) stores(t testing.TB) map[string]*postgres.Store {
	t.Helper()
	alone, err := postgres.Open(t.Context(), b.db, postgres.Config{})
	require.NoError(t, err)
	return map[string]*postgres.Store{"primary": alone, "standby": b.store}
}

// BenchmarkDrainBeside reads a backlog, with a checkpoint after each page, and reports the processor time
// of both servers.
func BenchmarkDrainBeside(b *testing.B) {
	const rows, limit = 200_000, 1000
	w := newBeside(b)
	_, err := w.db.ExecContext(b.Context(), `INSERT INTO outbox (type, key, metadata, payload)
		SELECT 'order.placed', 'k' || i % 1000, '{"content-type":"application/json"}', $2::json FROM generate_series(1, $1::int) i`, rows, string(benchmarkPayload))
	require.NoError(b, err)
	for _, query := range []string{`VACUUM ANALYZE outbox`, `CHECKPOINT`} {
		_, err = w.db.ExecContext(b.Context(), query)
		require.NoError(b, err)
	}
	primary, standby := processes(b, w.db), processes(b, w.aside)
	sink := 0
	for _, pages := range []string{"primary", "standby"} {
		s := w.stores(b)[pages]
		b.Run("pages="+pages, func(b *testing.B) {
			var onPrimary, onStandby time.Duration
			read, beside := 0, 0
			for b.Loop() {
				sink++
				held, err := lease(b, s, store.NewLane(fmt.Sprint("sink-", sink), 0, 1))
				require.NoError(b, err)
				beganPrimary, beganStandby := primary(), standby()
				target, err := s.Probe(b.Context())
				require.NoError(b, err)
				reader, err := s.NewReader(held.Position, everything)
				require.NoError(b, err)
				for number, all := int64(1), false; !all; number++ {
					page, err := reader.Next(b.Context(), target, limit)
					require.NoError(b, err)
					require.NoError(b, s.Checkpoint(b.Context(), store.Checkpoint{Lease: held, TTL: time.Minute, Number: number, Position: page.End}))
					read += len(page.Envelopes)
					if !page.Asked.IsZero() {
						beside += len(page.Envelopes)
					}
					all = page.CaughtUp
				}
				onPrimary += primary() - beganPrimary
				onStandby += standby() - beganStandby
			}
			b.ReportMetric(float64(onPrimary.Microseconds())/float64(read), "µs-primary/row")
			b.ReportMetric(float64(onStandby.Microseconds())/float64(read), "µs-standby/row")
			b.ReportMetric(float64(beside)/float64(read), "of-standby")
			b.ReportMetric(float64(read)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkCommitToPage reads single commits, like a forwarder without a backlog.
func BenchmarkCommitToPage(b *testing.B) {
	w := newBeside(b)
	insert := func() {
		_, err := w.db.ExecContext(b.Context(), `INSERT INTO outbox (type, key, payload) VALUES ('order.placed', 'k', $1)`, string(benchmarkPayload))
		require.NoError(b, err)
	}
	sink := 0
	for _, pages := range []string{"primary", "standby"} {
		s := w.stores(b)[pages]
		b.Run("pages="+pages, func(b *testing.B) {
			sink++
			held, err := lease(b, s, store.NewLane(fmt.Sprint("sink-", sink), 0, 1))
			require.NoError(b, err)
			reader, err := s.NewReader(held.Position, everything)
			require.NoError(b, err)
			look := func() {
				target, err := reader.(store.Looker).Look(b.Context())
				require.NoError(b, err)
				for all := false; !all; {
					page, err := reader.Next(b.Context(), target, 1000)
					require.NoError(b, err)
					all = page.CaughtUp
				}
			}
			look()
			var took []time.Duration
			for b.Loop() {
				insert()
				committed := time.Now()
				look()
				took = append(took, time.Since(committed))
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2].Seconds()*1000, "ms-p50")
			b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "ms-p99")
		})
	}
}

// processes returns a function for the processor time of a server's processes.
func processes(b *testing.B, db *sql.DB) func() time.Duration {
	b.Helper()
	var postmaster string
	require.NoError(b, db.QueryRowContext(b.Context(), `SELECT split_part(pg_read_file('postmaster.pid'), E'\n', 1)`).Scan(&postmaster))
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		b.Skip(err)
	}
	const tick = time.Second / 100 // USER_HZ
	return func() (spent time.Duration) {
		stats, err := filepath.Glob("/proc/[0-9]*/stat")
		require.NoError(b, err)
		for _, file := range stats {
			text, err := os.ReadFile(file)
			if err != nil {
				continue // the process has ended
			}
			pid, rest, _ := strings.Cut(string(text), " (")
			fields := strings.Fields(rest[strings.LastIndex(rest, ")")+1:]) // begins at the third field, the state
			counted := fields[11:13]                                        // its own time, in user and system mode
			switch postmaster {
			case pid:
				counted = fields[11:15] // and the time of its ended children
			case fields[1]:
			default:
				continue
			}
			for _, ticks := range counted {
				n, err := strconv.ParseInt(ticks, 10, 64)
				require.NoError(b, err)
				spent += time.Duration(n) * tick
			}
		}
		return spent
	}
}
