package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
)

// order is an aggregate with a Recorder.
type order struct {
	outbox.Recorder
	id string
}

func (o *order) place(total int) { o.Record(orderPlaced{OrderID: o.id, Total: total}) }

// basket is an aggregate that does not depend on Waybill.
type basket struct {
	id     string
	events []any
}

func (b *basket) fill(total int) {
	b.events = append(b.events, orderPlaced{OrderID: b.id, Total: total})
}
func (b *basket) Events() []any     { return b.events }
func (b *basket) ClearEvents(n int) { b.events = b.events[n:] }

var _ outbox.Aggregate = (*basket)(nil)

// payloads returns the payloads in the log.
func payloads(t *testing.T, s store.Log) []string {
	t.Helper()
	var all []string
	for _, e := range published(t, s) {
		all = append(all, string(e.Payload))
	}
	return all
}

// runUnit runs a unit that only tracks aggregates.
func runUnit(t *testing.T, db *sql.DB, p *outbox.Publisher, aggregates ...outbox.Aggregate) error {
	t.Helper()
	return p.RunUnit(t.Context(), db, nil, func(_ context.Context, _ *sql.Tx, u *outbox.Unit) error {
		u.Track(aggregates...)
		return nil
	})
}

func TestAUnitPublishesRecordedEventsAndClearsThemAfterTheCommit(t *testing.T) {
	onEach(t, outbox.Config{}, func(t *testing.T, db *sql.DB, s database, p *outbox.Publisher) {
		a, b := &order{id: "a"}, &basket{id: "b"}
		a.place(1)
		require.NoError(t, p.RunUnit(t.Context(), db, nil, func(_ context.Context, _ *sql.Tx, u *outbox.Unit) error {
			u.Track(a, b)
			u.Track(b, a) // a second time, without effect
			b.fill(2)
			a.place(3) // a tracked aggregate may record more
			return nil
		}))
		require.Empty(t, a.Events())
		require.Empty(t, b.Events())
		want := []string{`{"order_id":"a","total":1}`, `{"order_id":"a","total":3}`, `{"order_id":"b","total":2}`}
		require.Equal(t, want, payloads(t, s))

		require.NoError(t, runUnit(t, db, p, a, b))
		require.Equal(t, want, payloads(t, s), "no event is left")
	})
}

func TestAUnitThatIsRolledBackKeepsItsEvents(t *testing.T) {
	t.Parallel()
	refused := errors.New("no stock")
	for name, fail := range map[string]func(ctx context.Context, tx *sql.Tx, u *outbox.Unit, a *order) error{
		"the function fails": func(context.Context, *sql.Tx, *outbox.Unit, *order) error { return refused },
		"the function panics": func(context.Context, *sql.Tx, *outbox.Unit, *order) error {
			panic(refused)
		},
		"something is not registered": func(_ context.Context, _ *sql.Tx, u *outbox.Unit, _ *order) error {
			var r outbox.Recorder
			r.Record(struct{ A int }{1})
			u.Track(&r)
			return nil
		},
		"the transaction is over": func(_ context.Context, tx *sql.Tx, _ *outbox.Unit, _ *order) error { return tx.Rollback() },
		"the commit fails": func(ctx context.Context, tx *sql.Tx, _ *outbox.Unit, _ *order) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO items VALUES ('no such product')`) // the COMMIT checks it
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, outbox.Config{}, func(t *testing.T, db *sql.DB, s database, p *outbox.Publisher) {
				_, err := db.ExecContext(t.Context(), `CREATE TABLE products (id VARCHAR(100) PRIMARY KEY)`)
				require.NoError(t, err)
				_, err = db.ExecContext(t.Context(), `CREATE TABLE items (product VARCHAR(100) REFERENCES products DEFERRABLE INITIALLY DEFERRED)`)
				require.NoError(t, err)
				a, b := &order{id: "a"}, &basket{id: "b"}
				a.place(1)
				b.fill(2)
				try := func(fail func(context.Context, *sql.Tx, *outbox.Unit, *order) error) (err error) {
					defer func() {
						if p := recover(); p != nil {
							err = p.(error)
						}
					}()
					return p.RunUnit(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx, u *outbox.Unit) error {
						u.Track(a, b)
						return fail(ctx, tx, u, a)
					})
				}
				if _, err := db.ExecContext(t.Context(), `PRAGMA foreign_keys = ON`); err == nil {
					db.SetMaxOpenConns(1) // on SQLite the setting belongs to the connection
				}
				require.Error(t, try(fail))
				require.Empty(t, payloads(t, s))
				require.Len(t, a.Events(), 1)
				require.Len(t, b.Events(), 1)
				require.NoError(t, try(func(context.Context, *sql.Tx, *outbox.Unit, *order) error { return nil }))
				require.Equal(t, []string{`{"order_id":"a","total":1}`, `{"order_id":"b","total":2}`}, payloads(t, s))
				require.Empty(t, a.Events())
				require.Empty(t, b.Events())
			})
		})
	}
}

// A commit whose answer is lost may have succeeded, so its notifications must not be published again
// without checking.
func TestACommitWhoseAnswerIsLostKeepsTheEvents(t *testing.T) {
	t.Parallel()
	db, s, p := setup(t, outbox.Config{})
	a := &order{id: "a"}
	a.place(1)
	u := p.NewUnit()
	u.Track(a)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	var server int
	require.NoError(t, tx.QueryRowContext(t.Context(), `SELECT pg_backend_pid()`).Scan(&server))
	require.NoError(t, u.Publish(t.Context(), tx))
	_, err = db.ExecContext(t.Context(), `SELECT pg_terminate_backend($1, 10000)`, server)
	require.NoError(t, err)
	require.Error(t, tx.Commit())
	require.Len(t, a.Events(), 1)
	require.Empty(t, payloads(t, s))
}

func TestAUnitWorksInTransactionsOfTheApplication(t *testing.T) {
	onEach(t, outbox.Config{}, func(t *testing.T, db *sql.DB, s database, p *outbox.Publisher) {
		a, b := &order{id: "a"}, &basket{id: "b"}
		u := p.NewUnit()
		u.Track(a, b)
		a.place(1)
		b.fill(2)
		for _, end := range []func(*sql.Tx) error{(*sql.Tx).Rollback, (*sql.Tx).Commit} {
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			require.NoError(t, u.Publish(t.Context(), tx))
			require.Len(t, a.Events(), 1, "the transaction may still roll back")
			require.NoError(t, end(tx))
		}
		a.place(3) // too late for that transaction
		b.fill(4)
		u.Committed()
		require.Equal(t, []any{orderPlaced{OrderID: "a", Total: 3}}, a.Events())
		require.Equal(t, []any{orderPlaced{OrderID: "b", Total: 4}}, b.Events())
		u.Committed()
		require.Len(t, a.Events(), 1, "no event was published twice")
		require.Equal(t, []string{`{"order_id":"a","total":1}`, `{"order_id":"b","total":2}`}, payloads(t, s))
	})
}

func TestAUnitWakesTheForwarderOnlyAfterTheCommit(t *testing.T) {
	t.Parallel()
	woken := 0
	db, _, p := setup(t, outbox.Config{Wake: func() { woken++ }})
	a := &order{id: "a"}
	a.place(1)
	require.NoError(t, runUnit(t, db, p, a))
	require.Equal(t, 1, woken)
	u := p.NewUnit()
	u.Track(a)
	require.NoError(t, u.Publish(t.Context(), discardingTx{}))
	require.Equal(t, 1, woken)
	u.Committed()
	require.Equal(t, 2, woken)
}

// All events of a customer have one key, in all aggregates.
func TestAggregatesThatShareARecorderKeepTheOrderOfTheirEvents(t *testing.T) {
	t.Parallel()
	db, s, p := setup(t, outbox.Config{})
	type shared struct{ *outbox.Recorder }
	r := new(outbox.Recorder)
	a, b := shared{r}, shared{r}
	a.Record(orderPlaced{OrderID: "a"})
	b.Record(orderPlaced{OrderID: "b"})
	a.Record(orderPlaced{OrderID: "c"})
	require.NoError(t, runUnit(t, db, p, r))
	var keys []string
	for _, e := range published(t, s) {
		keys = append(keys, e.Key)
	}
	require.Equal(t, []string{"a", "b", "c"}, keys)
}

func TestAUnitRefusesMisuse(t *testing.T) {
	t.Parallel()
	db, s, p := setup(t, outbox.Config{})
	for name, a := range map[string]outbox.Aggregate{"nil": nil, "a nil pointer": (*order)(nil), "a value": copied{}} {
		err := runUnit(t, db, p, a, a)
		require.ErrorIs(t, err, outbox.ErrUnit, name)
		require.ErrorContains(t, err, "is not a pointer to an aggregate", name)
	}
	a := &order{id: "a"}
	a.place(1)
	require.NoError(t, p.RunUnit(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx, u *outbox.Unit) error {
		u.Track(a)
		require.ErrorIs(t, u.Publish(ctx, tx), outbox.ErrUnit, "the events would be published twice")
		u.Committed() // has no effect
		return nil
	}))
	require.Len(t, payloads(t, s), 1)
	require.ErrorIs(t, p.NewUnit().Publish(t.Context(), db), outbox.ErrNotTransaction)
}

// copied is an aggregate that is passed by value and cannot be compared with ==.
type copied struct{ events []any }

func (c copied) Events() []any   { return c.events }
func (c copied) ClearEvents(int) {}
