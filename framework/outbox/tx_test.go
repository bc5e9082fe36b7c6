package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/registry"
)

func TestACommitThatFailsWakesNoForwarder(t *testing.T) {
	t.Parallel()
	woken := 0
	db, s, p := setup(t, outbox.Config{Wake: func() { woken++ }})
	_, err := db.ExecContext(t.Context(), `CREATE TABLE orders (id text PRIMARY KEY, parent text REFERENCES orders DEFERRABLE INITIALLY DEFERRED)`)
	require.NoError(t, err)
	err = p.RunInTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES ('o', 'none')`)
		return errors.Join(err, p.Publish(ctx, tx, orderPlaced{OrderID: "o"}))
	})
	require.ErrorContains(t, err, "commit: ")
	require.Zero(t, woken)
	require.Empty(t, published(t, s))
}

func TestATransactionHasTheRequestedOptions(t *testing.T) {
	t.Parallel()
	woken := 0
	db, _, p := setup(t, outbox.Config{Wake: func() { woken++ }})
	err := p.RunInTx(t.Context(), db, &sql.TxOptions{Isolation: sql.LevelSerializable, ReadOnly: true}, func(ctx context.Context, tx *sql.Tx) error {
		var level string
		require.NoError(t, tx.QueryRowContext(ctx, `SHOW transaction_isolation`).Scan(&level))
		require.Equal(t, "serializable", level)
		return p.Publish(ctx, tx, orderPlaced{OrderID: "o"})
	})
	require.ErrorContains(t, err, "read-only")
	require.Zero(t, woken)
}

// After a conflict with another transaction, the caller runs its transaction again.
func TestRunInTxDoesNotRetry(t *testing.T) {
	t.Parallel()
	db, _, p := setup(t, outbox.Config{})
	calls, refused := 0, errors.New("serialization failure")
	require.ErrorIs(t, p.RunInTx(t.Context(), db, nil, func(context.Context, *sql.Tx) error {
		calls++
		return refused
	}), refused)
	require.Equal(t, 1, calls)
	require.ErrorContains(t, p.RunInTx(t.Context(), nil, nil, nil), "db is nil")
}

func TestATransactionThatIsOverIsRefusedWithTheReason(t *testing.T) {
	onEach(t, outbox.Config{}, func(t *testing.T, db *sql.DB, s database, p *outbox.Publisher) {
		for _, end := range []func(*sql.Tx) error{(*sql.Tx).Commit, (*sql.Tx).Rollback} {
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			require.NoError(t, end(tx))
			err = p.Publish(t.Context(), tx, orderPlaced{OrderID: "o"})
			require.ErrorIs(t, err, outbox.ErrTxOver)
			require.ErrorIs(t, err, sql.ErrTxDone)
			require.ErrorContains(t, err, "publish before the commit or rollback")
		}
		require.Empty(t, published(t, s))
	})
}

func TestAMisusedCallReturnsAHint(t *testing.T) {
	t.Parallel()
	p := newPaperPublisher(t)
	order := orderPlaced{OrderID: "o"}
	for name, c := range map[string]struct {
		notification any
		is           error
		says         string
	}{
		"a slice":                {[]orderPlaced{order}, registry.ErrUnregistered, "publish slice..."},
		"a slice of anything":    {[]any{order}, registry.ErrUnregistered, "publish slice..."},
		"an option":              {outbox.Key("k"), outbox.ErrOption, "With(notification, option)"},
		"options":                {[]outbox.Option{outbox.Key("k")}, outbox.ErrOption, "With(notification, option)"},
		"an option in With":      {outbox.With(outbox.Key("k")), outbox.ErrOption, "With(notification, option)"},
		"With without an option": {outbox.With(order, nil), outbox.ErrOption, "nil"},
		"nil in With":            {outbox.With(nil), registry.ErrNil, "publish a value"},
		"a pointer to nil":       {(*orderPlaced)(nil), registry.ErrNil, "orderPlaced"},
		"a pointer to a pointer": {new(*orderPlaced), registry.ErrGoType, "use *outbox_test.orderPlaced"},
		"an envelope":            {notification.Envelope{Type: "order.placed"}, registry.ErrUnregistered, "use Append"},
		"a pointer to envelope":  {&notification.Envelope{Type: "order.placed"}, registry.ErrUnregistered, "use Append"},
		"a second transaction":   {new(paperTx), registry.ErrUnregistered, "pass the transaction once"},
		"an unregistered type":   {struct{ A int }{}, registry.ErrUnregistered, "registry.Register"},
		"the name of a type":     {"order.placed", registry.ErrUnregistered, "pass only the notification"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tx := new(paperTx)
			err := p.Publish(t.Context(), tx, c.notification)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, p.Publish(t.Context(), tx, order, c.notification), "notification 2 of 2")
			require.Empty(t, tx.statements)
		})
	}
}

// The errors do not contain the messages of the library that writes the row.
func TestAnErrorOfTheDatabaseIsReportedAsItIs(t *testing.T) {
	t.Parallel()
	err := newPaperPublisher(t).Publish(t.Context(), failingTx{err: errors.New("disk full")}, orderPlaced{OrderID: "o"})
	require.EqualError(t, err, "append to the outbox: disk full")
}

// failingTx is a transaction whose statements all fail.
type failingTx struct {
	discardingTx
	err error
}

func (f failingTx) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, f.err
}
