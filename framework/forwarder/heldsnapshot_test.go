package forwarder_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// heldVariable is how long TestCheckpointsUnderAHeldSnapshot measures, such as 30m.
const heldVariable = "WAYBILL_HELD_SNAPSHOT"

// TestCheckpointsUnderAHeldSnapshot measures what checkpoints cost while a transaction keeps VACUUM from
// removing any version of a cursor: 2,000 notifications a second in four lanes.
func TestCheckpointsUnderAHeldSnapshot(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv(heldVariable))
	if err != nil {
		t.Skip("set " + heldVariable + " to how long to measure, such as 30m")
	}
	h := newHeld(t)
	h.hold()
	h.forward(4)
	h.publish(2000)
	for end := time.Now().Add(length); time.Now().Before(end); {
		step := min(length/10, time.Minute)
		took, cpu := h.measure(step)
		t.Logf("%s left: %.0f checkpoints/s, p50 %s, p99 %s, %.0f%% of a core for the server, %s",
			time.Until(end).Round(time.Second), float64(len(took))/step.Seconds(), percentile(took, 50), percentile(took, 99), 100*cpu.Seconds()/step.Seconds(), h.sizes())
	}
}

// A lane writes a checkpoint in a second at most, instead of forty, while the server keeps many versions of cursors.
func TestLanesWriteFewCheckpointsWhileTheServerKeepsTheirVersions(t *testing.T) {
	t.Parallel()
	h := newHeld(t)
	h.hold()
	h.age(20_000)
	h.forward(1)
	h.publish(200)
	var ended []time.Time
	require.Eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		ended = slices.Clone(h.ended)
		return len(ended) >= 5
	}, patience, 50*time.Millisecond)
	// The first one asks for the number of versions. After one that a stall of the machine made slow, the next comes at once.
	require.Greater(t, ended[4].Sub(ended[2]), mostLinger/2)
}

// mostLinger is how long settled rows wait if there are many versions.
const mostLinger = time.Second

// held is an outbox whose rows an open transaction keeps.
type held struct {
	t     *testing.T
	dsn   string
	db    *sql.DB
	store *postgres.Store

	mu    sync.Mutex
	took  []time.Duration // by checkpoints since the last look
	ended []time.Time     // of all checkpoints
}

func newHeld(t *testing.T) *held {
	t.Helper()
	dsn := postgrestest.DSN(t)
	db := openPlain(t, dsn)
	_, err := postgres.Migrate(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	s, err := postgres.Open(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	return &held{t: t, dsn: dsn, db: db, store: s}
}

// hold keeps a snapshot until the end of the test, as a backup does.
func (h *held) hold() {
	h.t.Helper()
	tx, err := h.db.BeginTx(h.t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = tx.Rollback() })
	_, err = tx.ExecContext(h.t.Context(), `SELECT count(*) FROM outbox_cursors`)
	require.NoError(h.t, err)
}

// age makes versions of cursors.
func (h *held) age(versions int) {
	h.t.Helper()
	const cursors = 1000
	writer, err := postgres.OpenDB(h.dsn)
	require.NoError(h.t, err)
	_, err = writer.ExecContext(h.t.Context(), `INSERT INTO outbox_cursors (sink, lane, lanes) SELECT 'other', i, $1::int FROM generate_series(0, $1::int - 1) i`, cursors)
	require.NoError(h.t, err)
	for range versions / cursors {
		_, err := writer.ExecContext(h.t.Context(), `UPDATE outbox_cursors SET updated_at = clock_timestamp()`)
		require.NoError(h.t, err)
	}
	require.NoError(h.t, writer.Close()) // a session that ends reports what it did
	eventually(h.t, func() bool {
		var counted int
		err := h.db.QueryRowContext(h.t.Context(), `SELECT pg_stat_get_dead_tuples('outbox_cursors'::regclass)`).Scan(&counted)
		return err == nil && counted >= versions
	}, "the server counts the versions")
}

// forward delivers to nowhere until the end of the test.
func (h *held) forward(lanes int) {
	h.t.Helper()
	f, err := forwarder.New(forwarder.Config{
		Store: h.store, Routes: route.Routes{"*": route.To("nowhere")}, Logger: slog.New(slog.DiscardHandler), Lanes: lanes,
		Sinks:    map[string]forwarder.Sink{"nowhere": {Sink: &counter{n: -1}}},
		Observer: event.Func(h.observe),
	})
	require.NoError(h.t, err)
	h.until(f.Run)
}

// until runs in the background until the end of the test.
func (h *held) until(work func(context.Context) error) {
	ctx, stop := context.WithCancel(h.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- work(ctx) }()
	h.t.Cleanup(func() { stop(); require.NoError(h.t, <-ended) })
}

// publish publishes at a rate until the end of the test.
func (h *held) publish(rate int) {
	h.until(func(ctx context.Context) error {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for began, published := time.Now(), 0; ; {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			all := int(time.Since(began).Seconds() * float64(rate))
			due := min(all-published, rate/4) // a machine that stalled is no reason for a burst
			_, err := h.db.ExecContext(ctx, `INSERT INTO outbox (type, key, payload) SELECT 't', 'k' || i % 1000, '{}' FROM generate_series($1::int + 1, $1::int + $2::int) i`, published, due)
			if err != nil && ctx.Err() == nil {
				return err
			}
			published = all
		}
	})
}

func (h *held) observe(e event.Event) {
	if c, ok := e.(*event.Checkpoint); ok {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.took, h.ended = append(h.took, c.Duration), append(h.ended, time.Now())
	}
}

// measure returns the durations of the checkpoints of the next step, sorted, and the processor time that
// the server takes in it.
func (h *held) measure(step time.Duration) (took []time.Duration, cpu time.Duration) {
	h.t.Helper()
	before := h.processorTime()
	h.mu.Lock()
	h.took = nil
	h.mu.Unlock()
	time.Sleep(step)
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.Sort(h.took)
	return h.took, h.processorTime() - before
}

func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)-1)*p/100].Round(10 * time.Microsecond)
}

// sizes describes the tables whose rows are updated, and reads one row and all rows of the cursors.
func (h *held) sizes() string {
	h.t.Helper()
	var cursors, forwarders, dead int64
	require.NoError(h.t, h.db.QueryRowContext(h.t.Context(), `SELECT pg_total_relation_size('outbox_cursors'), pg_total_relation_size('outbox_forwarders'),
		pg_stat_get_dead_tuples('outbox_cursors'::regclass)`).Scan(&cursors, &forwarders, &dead))
	began := time.Now()
	_, err := h.db.ExecContext(h.t.Context(), `SELECT count(position) FROM outbox_cursors`)
	require.NoError(h.t, err)
	return fmt.Sprintf("cursors %d kB with %d dead versions, read in %s, forwarders %d kB", cursors>>10, dead, time.Since(began).Round(10*time.Microsecond), forwarders>>10)
}

// processorTime is how long the processes of the server have run; 0 if they are not on this machine.
func (h *held) processorTime() (total time.Duration) {
	h.t.Helper()
	var data string
	require.NoError(h.t, h.db.QueryRowContext(h.t.Context(), `SHOW data_directory`).Scan(&data))
	text, err := os.ReadFile(data + "/postmaster.pid")
	if err != nil {
		return 0
	}
	server, _, _ := strings.Cut(string(text), "\n")
	processes, _ := os.ReadDir("/proc")
	for _, p := range processes {
		stat, err := os.ReadFile("/proc/" + p.Name() + "/stat")
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest) // from the third one, the state; see proc(5)
		ticks := func(i int) time.Duration {
			n, _ := strconv.ParseInt(fields[i-3], 10, 64)
			return time.Duration(n) * 10 * time.Millisecond
		}
		switch {
		case p.Name() == server:
			total += ticks(14) + ticks(15) + ticks(16) + ticks(17)
		case fields[4-3] == server:
			total += ticks(14) + ticks(15)
		}
	}
	return total
}
