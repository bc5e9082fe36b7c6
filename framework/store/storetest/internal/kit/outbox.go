package kit

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
)

// Store is everything that the suite tests.
type Store interface {
	store.Log
	store.Leases
	store.Deliveries
	store.Inspector
	store.Operator
	store.Pruner
	store.Inbox
	store.Schedules
	store.Endpoints
	store.Canceller
	store.Claimer
	store.PrivateKeys
	store.Personal
	outbox.Log
}

// Dialect is documented in package storetest.
type Dialect struct {
	NewDB               func(t *testing.T) *sql.DB
	Migrate             func(ctx context.Context, db *sql.DB) (applied []string, err error)
	Migrated            func(t *testing.T) *sql.DB
	Open                func(ctx context.Context, db *sql.DB) (Store, error)
	Restart             []string
	Quote               string
	Time                func(t time.Time) string
	Gap                 string
	OldChecks, OldTimes []string
	NoZones             bool
	Slots               bool
	Collides            func(err error) bool
}

// Outbox is a new store and its database.
type Outbox struct {
	Dialect
	Store
	DB        *sql.DB
	publisher *outbox.Publisher
}

// migrated returns a database with tables.
func (d Dialect) migrated(t *testing.T) *sql.DB {
	t.Helper()
	if d.Migrated != nil {
		return d.Migrated(t)
	}
	db := d.NewDB(t)
	_, err := d.Migrate(t.Context(), db)
	require.NoError(t, err)
	return db
}

// Open opens a new outbox.
func Open(t *testing.T, d Dialect) *Outbox {
	t.Helper()
	db := d.migrated(t)
	s, err := d.Open(t.Context(), db)
	require.NoError(t, err)
	publisher, err := outbox.New(registry.New(), s, outbox.Config{MaxPayload: 64 << 20})
	require.NoError(t, err)
	return &Outbox{d, s, db, publisher}
}

// Append appends envelopes in a transaction, as publishers do, with one statement.
func (o *Outbox) Append(ctx context.Context, tx *sql.Tx, envelopes ...notification.Envelope) error {
	return o.publisher.Append(ctx, tx, envelopes...)
}

// Publish appends the envelopes in one transaction and commits it.
func (o *Outbox) Publish(t *testing.T, envelopes ...notification.Envelope) {
	t.Helper()
	require.NoError(t, o.Repeat(func() error {
		tx, err := o.DB.BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // has no effect after the commit
		if err := o.Append(t.Context(), tx, envelopes...); err != nil {
			return err
		}
		return tx.Commit()
	}))
}

// Tx begins a transaction, which rolls back at the end of the test unless it has ended.
func (o *Outbox) Tx(t *testing.T) *sql.Tx {
	t.Helper()
	tx, err := o.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() }) // has no effect after the transaction has ended
	return tx
}

// Repeat calls a method until no other transaction is in its way, as a forwarder does.
func (o *Outbox) Repeat(method func() error) error {
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := method()
		if err == nil || o.Collides == nil || !o.Collides(err) || time.Since(start) > time.Minute {
			return err
		}
	}
}

// Checkpoint is the store's, repeated.
func (o *Outbox) Checkpoint(ctx context.Context, c store.Checkpoint) error {
	return o.Repeat(func() error { return o.Store.Checkpoint(ctx, c) })
}

// Release is the store's, repeated.
func (o *Outbox) Release(ctx context.Context, lease store.Lease) error {
	return o.Repeat(func() error { return o.Store.Release(ctx, lease) })
}

// Heartbeat is the store's, repeated.
func (o *Outbox) Heartbeat(ctx context.Context, member store.Member, ttl time.Duration) error {
	return o.Repeat(func() error { return o.Store.Heartbeat(ctx, member, ttl) })
}

// Together calls a function in eight simultaneous transactions, half of which roll back, and returns
// the sum of the counts of those that committed. If the database makes them serializable, a
// transaction that collides fails and is repeated.
func (o *Outbox) Together(t *testing.T, do func(tx *sql.Tx) (int, error)) int {
	t.Helper()
	attempt := func(commit bool) (int, error) {
		tx, err := o.DB.BeginTx(t.Context(), nil)
		if err != nil {
			return 0, err
		}
		defer func() { _ = tx.Rollback() }()
		n, err := do(tx)
		if err != nil || !commit {
			return 0, err
		}
		return n, tx.Commit()
	}
	var counted atomic.Int64
	var all errgroup.Group
	for i := range 8 {
		all.Go(func() (err error) {
			for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(10 * time.Millisecond) {
				n := 0
				if n, err = attempt(i%2 == 0); err == nil {
					counted.Add(int64(n))
					return nil
				}
			}
			return err
		})
	}
	require.NoError(t, all.Wait())
	return int(counted.Load())
}

// Exec runs statements in read committed, so that no other transaction makes them fail.
func (o *Outbox) Exec(t *testing.T, statements ...string) {
	t.Helper()
	tx, err := o.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }() // has no effect after the commit
	for _, statement := range statements {
		_, err := tx.ExecContext(t.Context(), o.sql(t, statement))
		require.NoError(t, err, statement)
	}
	require.NoError(t, tx.Commit())
}

var marks = regexp.MustCompile(`\{(offset|key|\d{4}-[^}]*)\}`)

// sql translates a statement for the dialect: {offset} and {key} are columns, and a text that begins
// with a year is a time.
func (o *Outbox) sql(t *testing.T, statement string) string {
	t.Helper()
	return marks.ReplaceAllStringFunc(statement, func(mark string) string {
		mark = mark[1 : len(mark)-1]
		if mark == "offset" || mark == "key" {
			quote := cmp.Or(o.Quote, `"`)
			return quote + mark + quote
		}
		at, err := time.Parse(time.RFC3339Nano, mark)
		require.NoError(t, err)
		if o.Time != nil {
			return o.Time(at)
		}
		return `'` + at.UTC().Format("2006-01-02T15:04:05.000000Z") + `'`
	})
}

// Dump returns the result of a query, one line for each row, without the named columns.
func (o *Outbox) Dump(t *testing.T, query string, without ...string) string {
	t.Helper()
	rows, err := o.DB.QueryContext(t.Context(), o.sql(t, query))
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	columns, err := rows.Columns()
	require.NoError(t, err)

	var b strings.Builder
	for rows.Next() {
		values := make([]any, len(columns))
		dest := make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		require.NoError(t, rows.Scan(dest...))
		for i, v := range values {
			if text, isBytes := v.([]byte); isBytes {
				v = string(text)
			}
			if !slices.Contains(without, columns[i]) {
				fmt.Fprintf(&b, "%s=%v ", columns[i], v)
			}
		}
		b.WriteString("\n")
	}
	require.NoError(t, rows.Err())
	return b.String()
}

// DumpAll returns the rows of all tables that a checkpoint writes.
func (o *Outbox) DumpAll(t *testing.T, without ...string) string {
	t.Helper()
	return o.Dump(t, `SELECT * FROM outbox_cursors ORDER BY sink, lane`, without...) +
		o.Dump(t, `SELECT * FROM outbox_parked ORDER BY sink, {offset}`, without...) +
		o.Dump(t, `SELECT * FROM outbox_collections ORDER BY sink, collect_group`, without...) +
		o.Dump(t, `SELECT * FROM outbox_receipts ORDER BY sink, {offset}`, without...)
}

// All is a filter that matches everything.
var All = store.Filter{Slots: store.SlotRange{First: 0, Last: store.Slots - 1}, Types: notification.AllTypes}

// OfLane is a filter for the rows of a lane.
func OfLane(l store.Lane) store.Filter {
	return store.Filter{Slots: l.Slots, Types: notification.AllTypes}
}

// Target returns the end of the log.
func (o *Outbox) Target(t *testing.T) store.Target {
	t.Helper()
	target, err := o.Probe(t.Context())
	require.NoError(t, err)
	return target
}

// Reader returns a reader that begins at a position.
func (o *Outbox) Reader(t *testing.T, position json.RawMessage, filter store.Filter) store.Reader {
	t.Helper()
	r, err := o.NewReader(position, filter)
	require.NoError(t, err)
	return r
}

// Read reads from a position to the end of the log, in pages of limit, and returns the position
// after it.
func (o *Outbox) Read(t *testing.T, position json.RawMessage, filter store.Filter, limit int) ([]notification.Envelope, json.RawMessage) {
	t.Helper()
	return Drain(t, o.Reader(t, position, filter), o.Target(t), limit)
}

// NextPage returns the next page up to a target.
func NextPage(t *testing.T, r store.Reader, target store.Target, limit int) store.Page {
	t.Helper()
	page, err := r.Next(t.Context(), target, limit)
	require.NoError(t, err)
	return page
}

// Drain reads up to a target, in pages of limit.
func Drain(t *testing.T, r store.Reader, target store.Target, limit int) ([]notification.Envelope, json.RawMessage) {
	t.Helper()
	var envelopes []notification.Envelope
	for {
		page := NextPage(t, r, target, limit)
		require.LessOrEqual(t, len(page.Envelopes), limit)
		require.Empty(t, page.Rebased)
		envelopes = append(envelopes, page.Envelopes...)
		if page.CaughtUp {
			return envelopes, Marshal(t, page.End)
		}
	}
}

// Marshal returns a position as JSON.
func Marshal(t require.TestingT, position store.Position) json.RawMessage {
	raw, err := position.MarshalJSON()
	require.NoError(t, err)
	require.True(t, json.Valid(raw), "position %s", raw)
	return raw
}

// Moment is a time that every database can store exactly.
var Moment = time.Date(2026, 2, 28, 23, 59, 58, 123456000, time.UTC)

// Attempts returns past attempts of a delivery that was requeued after its fourth.
func Attempts() []store.PastAttempt {
	began := Moment.Truncate(time.Millisecond)
	return []store.PastAttempt{
		{Began: began, Duration: 12 * time.Millisecond, Number: 1, Class: "permanent", Error: "it's \"<b>\\ü👍</b>\": 100%", Forwarder: "host-1"},
		{Began: began.Add(-time.Hour), Number: 4, Class: "timeout", Error: "", Forwarder: "häst-2"},
	}
}

// Envelope returns an envelope with a type and a key, as a publisher makes it.
func Envelope(typ, key string) notification.Envelope {
	return notification.Envelope{
		ID:         notification.NewID(),
		Type:       typ,
		Version:    1,
		Key:        key,
		OccurredOn: Moment,
		Metadata:   notification.Metadata{},
		Payload:    []byte(`{"n":1}`),
	}
}

// Several returns n envelopes without a key.
func Several(n int) []notification.Envelope {
	envelopes := make([]notification.Envelope, n)
	for i := range envelopes {
		envelopes[i] = Envelope("order.placed", "")
	}
	return envelopes
}

// IDs returns the ids of envelopes.
func IDs(envelopes []notification.Envelope) []string {
	list := make([]string, len(envelopes))
	for i := range envelopes {
		list[i] = envelopes[i].ID
	}
	return list
}

// RequireSame compares every field that a publisher sets.
func RequireSame(t *testing.T, want, got notification.Envelope) {
	t.Helper()
	require.Equal(t, want.ID, got.ID)
	require.Equal(t, want.Type, got.Type)
	require.Equal(t, want.Version, got.Version)
	require.Equal(t, want.Key, got.Key)
	require.Equal(t, want.OccurredOn.UTC(), got.OccurredOn, "in UTC")
	require.Equal(t, want.DeliverAt.UTC(), got.DeliverAt, "in UTC")
	require.Equal(t, len(want.Metadata), len(got.Metadata))
	for name, value := range want.Metadata {
		require.Equal(t, value, got.Metadata[name], name)
	}
	require.Equal(t, string(want.Payload), string(got.Payload))
}

// Lane returns the only lane of a sink.
func Lane(sink string) store.Lane { return store.Lanes(sink, 1)[0] }

// Cut creates cursors that begin at the oldest row; the facts about new sinks test other starts.
func (o *Outbox) Cut(ctx context.Context, sink string, lanes int) error {
	_, err := o.Store.Cut(ctx, sink, lanes, store.StartOldest)
	return err
}

// Acquire leases a lane of a sink, and creates its cursors if necessary.
func (o *Outbox) Acquire(ctx context.Context, lane store.Lane, owner string, ttl time.Duration) (store.Lease, error) {
	lease, err := o.Store.Acquire(ctx, lane, owner, ttl)
	if !errors.Is(err, store.ErrLanes) {
		return lease, err
	}
	if err := o.Cut(ctx, lane.Sink, lane.Of); err != nil {
		return lease, err
	}
	return o.Store.Acquire(ctx, lane, owner, ttl)
}

// Hold leases the only lane of a sink for longer than the test.
func (o *Outbox) Hold(t *testing.T, sink string) store.Lease {
	t.Helper()
	return o.HoldLane(t, Lane(sink), "w1")
}

// HoldLane leases a lane for longer than the test.
func (o *Outbox) HoldLane(t *testing.T, lane store.Lane, owner string) store.Lease {
	t.Helper()
	var lease store.Lease
	require.NoError(t, o.Repeat(func() (err error) { lease, err = o.Acquire(t.Context(), lane, owner, time.Hour); return err }))
	return lease
}

// HoldLanes leases all lanes of a sink with that many lanes.
func (o *Outbox) HoldLanes(t *testing.T, sink string, count int) (leases []store.Lease) {
	t.Helper()
	for _, l := range store.Lanes(sink, count) {
		leases = append(leases, o.HoldLane(t, l, "w1"))
	}
	return leases
}

// Page returns the first page of the log.
func (o *Outbox) Page(t *testing.T, limit int) store.Page {
	t.Helper()
	return NextPage(t, o.Reader(t, nil, All), o.Target(t), limit)
}

// Passed lets a sink settle everything, and returns its lease.
func (o *Outbox) Passed(t *testing.T, sink string) store.Lease {
	t.Helper()
	lease := o.Hold(t, sink)
	r, target := o.Reader(t, lease.Position, All), o.Target(t)
	for {
		if page := NextPage(t, r, target, 1000); page.CaughtUp {
			o.Write(t, lease, func(c *store.Checkpoint) { c.Position = page.End })
			return lease
		}
	}
}

// Pass lets sinks settle everything.
func (o *Outbox) Pass(t *testing.T, sinks ...string) {
	t.Helper()
	for _, sink := range sinks {
		require.NoError(t, o.Release(t.Context(), o.Passed(t, sink)))
	}
}

// ForgetSink forgets a sink.
func (o *Outbox) ForgetSink(t *testing.T, sink string) store.Traces {
	t.Helper()
	traces, err := o.Forget(t.Context(), sink)
	require.NoError(t, err)
	return traces
}

// Members returns the running forwarders and the lanes.
func (o *Outbox) Members(t *testing.T) store.Membership {
	t.Helper()
	membership, err := o.Membership(t.Context())
	require.NoError(t, err)
	return membership
}

// ActionOf returns an action by its id.
func (o *Outbox) ActionOf(t *testing.T, id string) store.Action {
	t.Helper()
	action, err := o.Action(t.Context(), id)
	require.NoError(t, err)
	return action
}

// Write writes a checkpoint that fill has filled in.
func (o *Outbox) Write(t *testing.T, lease store.Lease, fill func(c *store.Checkpoint)) {
	t.Helper()
	c := store.Checkpoint{Lease: lease, TTL: time.Hour}
	fill(&c)
	require.NoError(t, o.Checkpoint(t.Context(), c))
}
