// Package lanetest helps to test the parts of a lane. It has an outbox with one leased lane, whose answers
// a test can delay or change, and a sink that records its deliveries.
package lanetest

import (
	"context"
	"database/sql"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder/internal/budget"
	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/forwarder/internal/dispatch"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// TTL is how long the lease of a bench lasts.
const TTL = 15 * time.Second

// Memory is the dispatcher's budget in bytes.
const Memory = 1 << 20

// Bench is an SQLite outbox in a bubble of testing/synctest, a lease of the only lane of its only sink, and
// the dispatcher of that sink, which makes one delivery at a time. Its functions are called between the
// engine and the database; Answer decides the result of a delivery. nil changes nothing. Set them before
// the engine runs.
type Bench struct {
	*sqlite.Store
	DB         *sql.DB
	Lease      store.Lease
	Dispatcher *dispatch.Dispatcher

	OnCheckpoint func(ctx context.Context, c store.Checkpoint, next func() error) error
	OnDue        func(ctx context.Context)
	OnHeldKeys   func(ctx context.Context, after string) ([]store.HeldKey, error)
	OnPage       func()
	Asked        time.Time // Page.Asked of all pages; zero: the engine sets it
	Old          int       // of OldVersions
	Answer       func(ctx context.Context, d *notification.Delivery) error

	t     *testing.T
	log   store.Reader
	mu    sync.Mutex
	given []string // ids, in order
}

// Run runs a test on a bench.
func Run(t *testing.T, test func(t *testing.T, b *Bench)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outbox.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := sqlite.OpenDB(path)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		_, err = sqlite.Migrate(t.Context(), db, sqlite.Config{})
		require.NoError(t, err)
		s, err := sqlite.Open(t.Context(), db, sqlite.Config{})
		require.NoError(t, err)
		_, err = s.Cut(t.Context(), "sink", 1, "")
		require.NoError(t, err)
		b := &Bench{Store: s, DB: db, t: t}
		b.Lease, err = s.Acquire(t.Context(), store.NewLane("sink", 0, 1), "test", TTL)
		require.NoError(t, err)
		b.log, err = s.NewReader(nil, store.Filter{Slots: b.Lease.Lane.Slots, Types: notification.AllTypes})
		require.NoError(t, err)
		routes, err := route.New(route.Routes{"*": route.To("sink")}, []string{"sink"}, nil)
		require.NoError(t, err)
		b.Dispatcher = dispatch.New(dispatch.Config{
			Sink: "sink", Caller: &caller.Caller{Deliver: b.deliver, Path: routes.To("sink")}, TypeOf: func(name string) string { return name },
			Budget: budget.New(Memory), Logger: slog.New(slog.DiscardHandler),
			Settings: policy.Settings{Parallelism: settings.Parallelism{Threshold: 1}.WithDefaults(), Retry: settings.Retry{}.WithDefaults(),
				Breaker: settings.Breaker{}.WithDefaults(), Timeout: time.Minute},
		})
		t.Cleanup(b.Dispatcher.Stop)
		test(t, b)
	})
}

// Append commits notifications.
func (b *Bench) Append(ids ...string) {
	b.t.Helper()
	for _, id := range ids {
		b.AppendSized(id, 2)
	}
}

// AppendSized commits a notification with a payload of the given size.
func (b *Bench) AppendSized(id string, size int) {
	b.t.Helper()
	_, err := b.DB.ExecContext(b.t.Context(), `INSERT INTO outbox (id, type, payload) VALUES (?, 't', zeroblob(?))`, id, size)
	require.NoError(b.t, err)
}

// Read reads the next page of the log for the test.
func (b *Bench) Read(limit int) store.Page {
	b.t.Helper()
	target, err := b.Probe(b.t.Context())
	require.NoError(b.t, err)
	page, err := b.log.Next(b.t.Context(), target, limit)
	require.NoError(b.t, err)
	return page
}

// Given returns the ids of the deliveries that the sink got, in order.
func (b *Bench) Given() []string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.given)
}

func (b *Bench) deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	b.mu.Lock()
	b.given = append(b.given, d.ID)
	b.mu.Unlock()
	if b.Answer == nil {
		return "", nil
	}
	return "", b.Answer(ctx, d)
}

// Checkpoint calls OnCheckpoint, then the store.
func (b *Bench) Checkpoint(ctx context.Context, c store.Checkpoint) error {
	next := func() error { return b.Store.Checkpoint(ctx, c) }
	if b.OnCheckpoint == nil {
		return next()
	}
	return b.OnCheckpoint(ctx, c, next)
}

// OldVersions returns Old.
func (b *Bench) OldVersions() int { return b.Old }

// Due calls OnDue, then the store.
func (b *Bench) Due(ctx context.Context, q store.DueQuery) ([]store.Parked, time.Time, error) {
	if b.OnDue != nil {
		b.OnDue(ctx)
	}
	return b.Store.Due(ctx, q)
}

// HeldKeys calls OnHeldKeys instead of the store if it is set.
func (b *Bench) HeldKeys(ctx context.Context, lane store.Lane, halt bool, after string, limit int) ([]store.HeldKey, error) {
	if b.OnHeldKeys != nil {
		return b.OnHeldKeys(ctx, after)
	}
	return b.Store.HeldKeys(ctx, lane, halt, after, limit)
}

// NewReader returns the store's reader, which calls OnPage before each page.
func (b *Bench) NewReader(position json.RawMessage, f store.Filter) (store.Reader, error) {
	r, err := b.Store.NewReader(position, f)
	return reader{r, b}, err
}

type reader struct {
	store.Reader
	bench *Bench
}

func (r reader) Next(ctx context.Context, t store.Target, limit int) (store.Page, error) {
	if r.bench.OnPage != nil {
		r.bench.OnPage()
	}
	page, err := r.Reader.Next(ctx, t, limit)
	page.Asked = r.bench.Asked
	return page, err
}

// Sleep waits, unless ctx is done first.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
