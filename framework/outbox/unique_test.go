package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/registry"
)

func once(id, key string) outbox.Item {
	return outbox.With(orderPlaced{OrderID: id}, outbox.ID(id), outbox.Unique(key, time.Hour))
}

func publishedIDs(t testing.TB, s store.Log) (ids []string) {
	t.Helper()
	for _, e := range published(t, s) {
		ids = append(ids, e.ID)
	}
	return ids
}

func inTx(t *testing.T, db *sql.DB, f func(tx *sql.Tx)) {
	t.Helper()
	var silent *outbox.Publisher
	require.NoError(t, silent.RunInTx(t.Context(), db, nil, func(_ context.Context, tx *sql.Tx) error { f(tx); return nil }))
}

func TestADuplicateIsRefusedAndTheTransactionContinues(t *testing.T) {
	onEach(t, outbox.Config{}, func(t *testing.T, db *sql.DB, s database, p *outbox.Publisher) {
		inTx(t, db, func(tx *sql.Tx) { require.NoError(t, p.Publish(t.Context(), tx, once("first", "k"))) })
		inTx(t, db, func(tx *sql.Tx) {
			err := p.Publish(t.Context(), tx, orderPlaced{OrderID: "beside"}, once("x", "a"), once("second", "k"), once("y", "z"))
			require.ErrorIs(t, err, outbox.ErrDuplicate)
			var duplicate *outbox.DuplicateError
			require.ErrorAs(t, err, &duplicate)
			require.Equal(t, "order.placed", duplicate.Type)
			require.Equal(t, "k", duplicate.Key)
			require.WithinDuration(t, time.Now().Add(time.Hour), duplicate.Until, time.Minute)
			require.ErrorContains(t, err, `order.placed: the uniqueness key "k" is taken until 2`)
			require.NoError(t, p.Publish(t.Context(), tx, once("third", "a")), "the refused call used no other key")
		})
		require.Equal(t, []string{"first", "third"}, publishedIDs(t, s))
	})
}

func TestAUniquenessKeyTwiceInOneCallIsADuplicate(t *testing.T) {
	onEach(t, outbox.Config{}, func(t *testing.T, db *sql.DB, s database, p *outbox.Publisher) {
		inTx(t, db, func(tx *sql.Tx) {
			require.ErrorIs(t, p.Publish(t.Context(), tx, once("a", "k"), once("b", "other"), once("c", "k")), outbox.ErrDuplicate)
			require.NoError(t, p.Publish(t.Context(), tx, once("d", "k"), once("e", "other")))
		})
		require.Equal(t, []string{"d", "e"}, publishedIDs(t, s))
	})
}

func TestAWrapperThatCannotQueryStillReportsADuplicate(t *testing.T) {
	onEach(t, outbox.Config{}, func(t *testing.T, db *sql.DB, s database, p *outbox.Publisher) {
		inTx(t, db, func(tx *sql.Tx) {
			w := onlyExec{tx}
			require.NoError(t, p.Publish(t.Context(), w, once("a", "k")))
			var duplicate *outbox.DuplicateError
			require.ErrorAs(t, p.Publish(t.Context(), w, once("b", "k")), &duplicate)
			require.Zero(t, duplicate.Until)
			require.NotContains(t, duplicate.Error(), "until")
		})
		require.Equal(t, []string{"a"}, publishedIDs(t, s))
	})
}

// onlyExec is a wrapper with only the methods of Tx.
type onlyExec struct{ tx *sql.Tx }

func (w onlyExec) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return w.tx.ExecContext(ctx, query, args...)
}
func (w onlyExec) Commit() error   { return w.tx.Commit() }
func (w onlyExec) Rollback() error { return w.tx.Rollback() }

// Calls that share keys in different orders do not deadlock, and one of them publishes.
func TestOneOfSeveralConcurrentPublishersPublishes(t *testing.T) {
	onEach(t, outbox.Config{}, func(t *testing.T, db *sql.DB, s database, p *outbox.Publisher) {
		db.SetMaxOpenConns(8)
		var published, refused atomic.Int32
		var all errgroup.Group
		for i := range 8 {
			all.Go(func() error {
				keys := []string{"a", "b", "c"}
				return p.RunInTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
					var items []any
					for j := range keys {
						items = append(items, once(fmt.Sprintf("%d-%d", i, j), keys[(i+j)%3]))
					}
					err := p.Publish(ctx, tx, items...)
					switch {
					case err == nil:
						published.Add(1)
					case strings.Contains(err.Error(), "uniqueness key"):
						refused.Add(1)
						err = nil
					}
					return err
				})
			})
		}
		require.NoError(t, all.Wait())
		require.EqualValues(t, 1, published.Load())
		require.EqualValues(t, 7, refused.Load())
		require.Len(t, publishedIDs(t, s), 3)
	})
}

func TestInvalidUniquenessIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	onEach(t, outbox.Config{}, func(t *testing.T, db *sql.DB, s database, p *outbox.Publisher) {
		for name, c := range map[string]struct {
			option outbox.Option
			want   error
		}{
			"no key":          {outbox.Unique("", time.Hour), outbox.ErrUnique},
			"no period":       {outbox.Unique("k", 0), outbox.ErrUnique},
			"negative period": {outbox.Unique("k", -1), outbox.ErrUnique},
			"long key":        {outbox.Unique(strings.Repeat("k", 1025), time.Hour), notification.ErrInvalid},
			"NUL":             {outbox.Unique("a\x00b", time.Hour), notification.ErrInvalid},
			"not UTF-8":       {outbox.Unique("\xff", time.Hour), notification.ErrInvalid},
		} {
			inTx(t, db, func(tx *sql.Tx) {
				err := p.Publish(t.Context(), tx, once("ok", "k"), outbox.With(orderPlaced{OrderID: "o"}, c.option))
				require.ErrorIs(t, err, c.want, name)
				require.ErrorContains(t, err, "notification 2 of 2: order.placed", name)
			})
		}
		require.Empty(t, published(t, s))
		inTx(t, db, func(tx *sql.Tx) { require.NoError(t, p.Publish(t.Context(), tx, once("ok", "k"))) })
	})
}

func TestATransactionOfAnotherDatabaseIsNamedAndNothingIsWritten(t *testing.T) {
	onEach(t, outbox.Config{}, func(t *testing.T, db *sql.DB, s database, p *outbox.Publisher) {
		dsn := ""
		if _, ok := s.(*postgres.Store); ok {
			dsn = postgrestest.DSN(t)
		}
		empty := open(t, dsn)
		for table, call := range map[string]func(tx outbox.Tx) error{
			`outbox"`:           func(tx outbox.Tx) error { return p.Publish(t.Context(), tx, orderPlaced{OrderID: "o"}) },
			`outbox_unique"`:    func(tx outbox.Tx) error { return p.Publish(t.Context(), tx, once("o", "k")) },
			`outbox_cancelled"`: func(tx outbox.Tx) error { _, err := p.CancelID(t.Context(), tx, "o"); return err },
			`outbox_inbox"`:     func(tx outbox.Tx) error { _, err := s.First(t.Context(), tx, "invoices", "o"); return err },
		} {
			tx, err := empty.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			err = call(tx)
			require.NoError(t, tx.Rollback())
			require.ErrorIs(t, err, store.ErrOtherDatabase)
			require.ErrorContains(t, err, table+": use a transaction of the database that the outbox was opened on, or migrate this one by waybill migrate")
		}

		otherwise := func(ctx context.Context) { // other errors are returned unchanged
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			err = p.Publish(ctx, tx, orderPlaced{OrderID: "o"})
			require.Error(t, err)
			require.NotErrorIs(t, err, store.ErrOtherDatabase)
			_ = tx.Rollback()
		}
		ended, end := context.WithCancel(t.Context())
		end()
		otherwise(ended)
		_, err := db.ExecContext(t.Context(), `ALTER TABLE outbox RENAME COLUMN occurred_on TO renamed`)
		require.NoError(t, err)
		otherwise(t.Context())
	})
}

// An application's trigger that fails for lack of a table does not mean that the outbox lacks one.
func TestATriggerWithoutItsTableIsNotAnotherDatabase(t *testing.T) {
	t.Parallel()
	db, _, p := setup(t, outbox.Config{})
	_, err := db.ExecContext(t.Context(), `CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO audits VALUES (1); RETURN NEW; END $$;
		CREATE TRIGGER audit BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION audit()`)
	require.NoError(t, err)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	err = p.Publish(t.Context(), tx, orderPlaced{OrderID: "o"})
	require.ErrorContains(t, err, `relation "audits" does not exist`)
	require.NotErrorIs(t, err, store.ErrOtherDatabase)
}

func TestAPublisherCancelsScheduledNotifications(t *testing.T) {
	onEach(t, outbox.Config{}, func(t *testing.T, db *sql.DB, s database, _ *outbox.Publisher) {
		types := registry.New()
		require.NoError(t, registry.Register[orderPlaced](types, "order.placed", registry.Aliases("order.was-placed"),
			registry.Key(func(o orderPlaced) string { return o.OrderID })))
		p, err := outbox.New(types, s, outbox.Config{})
		require.NoError(t, err)
		tomorrow := outbox.DeliverAt(time.Now().Add(24 * time.Hour))
		inTx(t, db, func(tx *sql.Tx) {
			require.NoError(t, p.Publish(t.Context(), tx, outbox.With(orderPlaced{OrderID: "a"}, outbox.ID("1"), tomorrow),
				outbox.With(orderPlaced{OrderID: "b"}, outbox.ID("2"), tomorrow), orderPlaced{OrderID: "c"}))
			require.NoError(t, p.Append(t.Context(), tx, notification.Envelope{ID: "4", Type: "order.was-placed", Key: "b", Payload: []byte("{}"), DeliverAt: time.Now().Add(time.Hour)}))
			n, err := p.CancelID(t.Context(), onlyExec{tx}, "1")
			require.NoError(t, err)
			require.Equal(t, 1, n, "one of the same transaction")
			n, err = p.CancelKey(t.Context(), tx, "order.placed", "b")
			require.NoError(t, err)
			require.Equal(t, 2, n, "with the notification of its alias")
			n, err = p.CancelKey(t.Context(), tx, "order.placed", "c")
			require.NoError(t, err)
			require.Zero(t, n, "it is not scheduled")
		})
		require.Len(t, published(t, s), 1)
		inTx(t, db, func(tx *sql.Tx) {
			for _, err := range []error{
				second(p.CancelID(t.Context(), tx, "")), second(p.CancelKey(t.Context(), tx, "", "k")), second(p.CancelKey(t.Context(), tx, "order.placed", "")),
				second(p.CancelID(t.Context(), tx, "\x00")), second(p.CancelKey(t.Context(), tx, "order.placed", "\xff")), second(p.CancelKey(t.Context(), tx, "order *", "k")),
			} {
				require.ErrorIs(t, err, outbox.ErrCancel)
			}
		})
		require.ErrorIs(t, second(p.CancelID(t.Context(), db, "1")), outbox.ErrNotTransaction)
	})
}

func second(_ int, err error) error { return err }

// A log that can only append returns an error for everything else.
func TestALogThatOnlyAppendsRefusesOtherOperations(t *testing.T) {
	t.Parallel()
	db, s, _ := setup(t, outbox.Config{})
	p, err := outbox.New(newTypes(t), struct{ outbox.Log }{s}, outbox.Config{Announcer: outbox.Silent})
	require.NoError(t, err)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	require.ErrorIs(t, second(p.CancelID(t.Context(), tx, "1")), outbox.ErrLog)
	require.ErrorIs(t, p.Publish(t.Context(), tx, once("a", "k")), outbox.ErrLog)
	require.NoError(t, p.Publish(t.Context(), tx, orderPlaced{OrderID: "o"}))
}
