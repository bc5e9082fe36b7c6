// Package storetest tests implementations of the interfaces of package store. Waybill's stores run
// it, and so should others:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Dialect{
//			NewDB:   newDB,
//			Migrate: …,
//			Open:    …,
//			Append:  …,
//			Restart: []string{`TRUNCATE outbox RESTART IDENTITY`},
//		})
//	}
//
// The suite uses SQL on the tables where the interfaces do not suffice: it acts as a producer that
// writes plain SQL, as an operator who looks at the tables, and as the clock that lets a lease
// expire. Those statements work in all SQL databases; Dialect says how to quote identifiers and
// write times.
package storetest

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
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Store is everything that the suite tests.
type Store interface {
	store.Log
	store.Leases
	store.Deliveries
	store.Inspector
	store.Sampler
	store.Operator
	store.Pruner
	store.Inbox
	store.Schedules
	store.Canceller
	store.Claimer
}

// Dialect is what the suite must know about a store.
type Dialect struct {
	// NewDB creates an empty database, which is removed when the test ends. The suite opens up to
	// eight connections to it.
	NewDB func(t *testing.T) *sql.DB
	// Migrate creates the tables, with store.DefaultPrefix.
	Migrate func(ctx context.Context, db *sql.DB) error
	// Open opens the store, with receipts.
	Open func(ctx context.Context, db *sql.DB) (Store, error)
	// Append publishes in the transaction with outbox.Publisher.Append, all envelopes in one
	// statement.
	Append func(ctx context.Context, s Store, tx *sql.Tx, envelopes ...notification.Envelope) error
	// Restart is SQL that empties the log and makes its offsets begin at the first one again.
	Restart []string
	// Quote is the character around an identifier; default: the double quote.
	Quote string
	// Time returns a time as SQL; default: a text in RFC 3339 form, in UTC.
	Time func(t time.Time) string
	// Gap is SQL after which the next offset is 1,000,000.
	Gap string
	// OldChecks is SQL that gives the log the checks of the first migration, so that Migrate
	// applies the next ones again. OldTimes are times that those checks took.
	OldChecks, OldTimes []string
	// BinaryPayload means that the opened store accepts payloads that are not JSON.
	BinaryPayload bool
	// NoZones means that times in SQL carry no zone.
	NoZones bool
	// Slots means that the database distributes rows over the slots. Otherwise all rows are in
	// slot 0.
	Slots bool
	// Collides reports whether a method failed only because another transaction was in its way, so
	// that it may be called again; default: none fails for that.
	Collides func(err error) bool
}

// Run tests the whole contract, in a separate database for each fact.
func Run(t *testing.T, d Dialect) {
	t.Run("Start", func(t *testing.T) { runStart(t, d) })
	for _, group := range []struct {
		name  string
		facts []fact
	}{
		{"Reading", readingFacts},
		{"Filter", filterFacts},
		{"Lease", leaseFacts},
		{"Membership", membershipFacts},
		{"NewSink", newSinkFacts},
		{"Checkpoint", checkpointFacts},
		{"Parked", parkedFacts},
		{"Status", statusFacts},
		{"Sample", sampleFacts},
		{"Pruning", pruningFacts},
		{"Forget", forgetFacts},
		{"Operator", operatorFacts},
		{"Replay", replayFacts},
		{"Reroute", rerouteFacts},
		{"Route", routeFacts},
		{"Trace", traceFacts},
		{"Related", relatedFacts},
		{"Browse", browseFacts},
		{"Types", typesFacts},
		{"Inbox", inboxFacts},
		{"Schedules", schedulesFacts},
		{"Cancel", cancelFacts},
		{"Claim", claimFacts},
		{"Values", valuesFacts},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, f := range group.facts {
				t.Run(f.name, func(t *testing.T) {
					t.Parallel()
					f.check(t, open(t, d))
				})
			}
		})
	}
}

// fact is one sentence of the contract, and its test.
type fact struct {
	name  string
	check func(t *testing.T, o *outbox)
}

// outbox is a new store and its database.
type outbox struct {
	Dialect
	Store
	db *sql.DB
}

func open(t *testing.T, d Dialect) *outbox {
	t.Helper()
	db := d.NewDB(t)
	require.NoError(t, d.Migrate(t.Context(), db))
	s, err := d.Open(t.Context(), db)
	require.NoError(t, err)
	return &outbox{d, s, db}
}

// publish appends the envelopes in one transaction and commits it.
func (o *outbox) publish(t *testing.T, envelopes ...notification.Envelope) {
	t.Helper()
	tx := o.begin(t)
	require.NoError(t, o.Append(t.Context(), o.Store, tx, envelopes...))
	require.NoError(t, tx.Commit())
}

func (o *outbox) begin(t *testing.T) *sql.Tx {
	t.Helper()
	tx, err := o.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() }) // has no effect after the transaction has ended
	return tx
}

// repeat calls a method until no other transaction is in its way, as a forwarder does.
func (o *outbox) repeat(method func() error) error {
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := method()
		if err == nil || o.Collides == nil || !o.Collides(err) || time.Since(start) > time.Minute {
			return err
		}
	}
}

// exec runs statements in read committed, so that no other transaction makes them fail.
func (o *outbox) exec(t *testing.T, statements ...string) {
	t.Helper()
	tx, err := o.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
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
func (o *outbox) sql(t *testing.T, statement string) string {
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

// dump returns the result of a query, one line for each row, without the named columns.
func (o *outbox) dump(t *testing.T, query string, without ...string) string {
	t.Helper()
	rows, err := o.db.QueryContext(t.Context(), o.sql(t, query))
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

// dumpAll returns the rows of all tables that a checkpoint writes.
func (o *outbox) dumpAll(t *testing.T, without ...string) string {
	t.Helper()
	return o.dump(t, `SELECT * FROM outbox_cursors ORDER BY sink, lane`, without...) +
		o.dump(t, `SELECT * FROM outbox_parked ORDER BY sink, {offset}`, without...) +
		o.dump(t, `SELECT * FROM outbox_receipts ORDER BY sink, {offset}`, without...)
}

// all is a filter that matches everything.
var all = store.Filter{Slots: store.SlotRange{First: 0, Last: store.Slots - 1}, Types: notification.AllTypes}

func (o *outbox) probe(t *testing.T) store.Target {
	t.Helper()
	target, err := o.Probe(t.Context())
	require.NoError(t, err)
	return target
}

func (o *outbox) reader(t *testing.T, position json.RawMessage, filter store.Filter) store.Reader {
	t.Helper()
	r, err := o.NewReader(position, filter)
	require.NoError(t, err)
	return r
}

// read reads from a position to the end of the log, in pages of limit, and returns the position
// after it.
func (o *outbox) read(t *testing.T, position json.RawMessage, filter store.Filter, limit int) ([]notification.Envelope, json.RawMessage) {
	t.Helper()
	return drain(t, o.reader(t, position, filter), o.probe(t), limit)
}

// drain reads up to a target, in pages of limit.
func drain(t *testing.T, r store.Reader, target store.Target, limit int) ([]notification.Envelope, json.RawMessage) {
	t.Helper()
	var envelopes []notification.Envelope
	for {
		page, err := r.Next(t.Context(), target, limit)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page.Envelopes), limit)
		require.Empty(t, page.Rebased)
		envelopes = append(envelopes, page.Envelopes...)
		if page.CaughtUp {
			return envelopes, marshal(t, page.End)
		}
	}
}

func marshal(t require.TestingT, position store.Position) json.RawMessage {
	raw, err := position.MarshalJSON()
	require.NoError(t, err)
	require.True(t, json.Valid(raw), "position %s", raw)
	return raw
}

// moment is a time that every database can store exactly.
var moment = time.Date(2026, 2, 28, 23, 59, 58, 123456000, time.UTC)

// envelope returns an envelope with a type and a key, as a publisher makes it.
func envelope(typ, key string) notification.Envelope {
	return notification.Envelope{
		ID:         notification.NewID(),
		Type:       typ,
		Version:    1,
		Key:        key,
		OccurredOn: moment,
		Metadata:   notification.Metadata{},
		Payload:    []byte(`{"n":1}`),
	}
}

// several returns n envelopes without a key.
func several(n int) []notification.Envelope {
	envelopes := make([]notification.Envelope, n)
	for i := range envelopes {
		envelopes[i] = envelope("order.placed", "")
	}
	return envelopes
}

// ids returns the ids of envelopes.
func ids(envelopes []notification.Envelope) []string {
	list := make([]string, len(envelopes))
	for i := range envelopes {
		list[i] = envelopes[i].ID
	}
	return list
}

// requireSame compares every field that a publisher sets.
func requireSame(t *testing.T, want, got notification.Envelope) {
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

// lane returns the only lane of a sink.
func lane(sink string) store.Lane { return store.Lanes(sink, 1)[0] }

// Cut creates cursors that begin at the oldest row; newSinkFacts test other starts.
func (o *outbox) Cut(ctx context.Context, sink string, lanes int) error {
	_, err := o.Store.Cut(ctx, sink, lanes, store.StartOldest)
	return err
}

// Acquire leases a lane of a sink, and creates its cursors if necessary.
func (o *outbox) Acquire(ctx context.Context, lane store.Lane, owner string, ttl time.Duration) (store.Lease, error) {
	lease, err := o.Store.Acquire(ctx, lane, owner, ttl)
	if !errors.Is(err, store.ErrLanes) {
		return lease, err
	}
	if err := o.Cut(ctx, lane.Sink, lane.Of); err != nil {
		return lease, err
	}
	return o.Store.Acquire(ctx, lane, owner, ttl)
}

// acquire leases the only lane of a sink for longer than the test.
func (o *outbox) acquire(t *testing.T, sink string) store.Lease {
	t.Helper()
	lease, err := o.Acquire(t.Context(), lane(sink), "w1", time.Hour)
	require.NoError(t, err)
	return lease
}

// checkpoint writes a checkpoint that fill has filled in.
func (o *outbox) checkpoint(t *testing.T, lease store.Lease, fill func(c *store.Checkpoint)) {
	t.Helper()
	c := store.Checkpoint{Lease: lease, TTL: time.Hour}
	fill(&c)
	require.NoError(t, o.Checkpoint(t.Context(), c))
}

// expireLeases lets all leases expire.
func (o *outbox) expireLeases(t *testing.T) {
	t.Helper()
	o.exec(t, `UPDATE outbox_cursors SET lease_until = {2000-01-01T00:00:00Z}`)
}

// eventually waits up to ten seconds until ask returns true.
func eventually(t *testing.T, ask func() bool, what string) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for tick := time.NewTicker(time.Millisecond); !ask(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within ten seconds: %s", what)
		}
	}
}
