package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/framework/waybilltest"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/serializer/protobuf"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

type orderPlaced struct {
	OrderID string `json:"order_id"`
	Total   int    `json:"total"`
}

type unserializable struct {
	C chan int `json:"-"`
	F float64  `json:"f"`
}

func newTypes(t testing.TB) *registry.Registry {
	t.Helper()
	types := registry.New()
	require.NoError(t, registry.Register[orderPlaced](types, "order.placed", registry.Version(1),
		registry.Key(func(o orderPlaced) string { return o.OrderID })))
	return types
}

// open opens an empty database: PostgreSQL, or an SQLite file without an address.
func open(t testing.TB, dsn string) (db *sql.DB) {
	t.Helper()
	var err error
	if dsn != "" {
		db, err = postgres.OpenDB(dsn)
	} else {
		db, err = sqlite.OpenDB(filepath.Join(t.TempDir(), "outbox.db"))
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// database are the interfaces of a store that publishers use.
type database interface {
	store.Log
	outbox.Log
	store.Inbox
}

// onEach runs a test with a publisher on each database.
func onEach(t *testing.T, c outbox.Config, test func(t *testing.T, db *sql.DB, s database, p *outbox.Publisher)) {
	t.Helper()
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		db, s, p := setup(t, c)
		test(t, db, s, p)
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		o := waybilltest.New(t, registry.New())
		p, err := outbox.New(newTypes(t), o.Store, c)
		require.NoError(t, err)
		test(t, o.DB, o.Store, p)
	})
}

// setup returns a migrated database, its store, and a publisher of newTypes.
func setup(t testing.TB, c outbox.Config) (*sql.DB, *postgres.Store, *outbox.Publisher) {
	t.Helper()
	db, s := outboxtest.PostgreSQL(t, outboxtest.DSN(t), postgres.Config{})
	p, err := outbox.New(newTypes(t), s, c)
	require.NoError(t, err)
	return db, s, p
}

// publish commits notifications.
func publish(t testing.TB, db *sql.DB, p *outbox.Publisher, notifications ...any) {
	t.Helper()
	require.NoError(t, p.RunInTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
		return p.Publish(ctx, tx, notifications...)
	}))
}

// published returns the rows of the log.
func published(t testing.TB, s store.Log) []notification.Envelope {
	t.Helper()
	target, err := s.Probe(t.Context())
	require.NoError(t, err)
	reader, err := s.NewReader(nil, store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Types: notification.AllTypes})
	require.NoError(t, err)
	var all []notification.Envelope
	for {
		page, err := reader.Next(t.Context(), target, 5000)
		require.NoError(t, err)
		all = append(all, page.Envelopes...)
		if page.CaughtUp {
			return all
		}
	}
}

func TestANotificationExistsOnlyIfItsTransactionCommits(t *testing.T) {
	t.Parallel()
	db, s, p := setup(t, outbox.Config{})
	for id, end := range map[string]func(*sql.Tx) error{"kept": (*sql.Tx).Commit, "gone": (*sql.Tx).Rollback} {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, p.Publish(t.Context(), tx, orderPlaced{OrderID: id, Total: 7}))
		require.NoError(t, end(tx))
	}
	all := published(t, s)
	require.Len(t, all, 1)
	e := all[0]
	require.Equal(t, "order.placed", e.Type)
	require.Equal(t, 1, e.Version)
	require.Equal(t, "kept", e.Key)
	require.JSONEq(t, `{"order_id":"kept","total":7}`, string(e.Payload))
	require.Equal(t, "application/json", e.Metadata.Get(notification.MetadataContentType))
	require.WithinDuration(t, time.Now(), e.OccurredOn, time.Minute)
	require.Len(t, e.ID, 36)
	require.Equal(t, byte('7'), e.ID[14], "a UUIDv7")
}

func TestOptionsReachTheEnvelope(t *testing.T) {
	t.Parallel()
	db, s, p := setup(t, outbox.Config{})
	at := time.Date(2031, 2, 3, 4, 5, 6, 789000, time.UTC)
	n := outbox.With(&orderPlaced{OrderID: "o"}, outbox.ID("my-id"), outbox.Key("my-key"), outbox.DeliverAt(at),
		outbox.OccurredOn(at.Add(-time.Hour)), outbox.Metadata("tenant", "acme"), outbox.CorrelationID("req-1"))
	publish(t, db, p, n)
	e := published(t, s)[0]
	require.Equal(t, "my-id", e.ID)
	require.Equal(t, "my-key", e.Key)
	require.Equal(t, at, e.DeliverAt)
	require.Equal(t, at.Add(-time.Hour), e.OccurredOn)
	require.Equal(t, notification.Metadata{"content-type": "application/json", "tenant": "acme", "correlation-id": "req-1"}, e.Metadata)
}

func TestManyNotificationsOfOneCallKeepTheirOrder(t *testing.T) {
	t.Parallel()
	db, s, p := setup(t, outbox.Config{})
	const n = 10_000 // more than one INSERT can carry
	require.Greater(t, n*8, s.Limits().Parameters)
	many := make([]any, n)
	for i := range many {
		many[i] = orderPlaced{OrderID: "o", Total: i}
	}
	publish(t, db, p, many...)
	all := published(t, s)
	require.Len(t, all, n)
	for i, e := range all {
		require.Equal(t, fmt.Sprintf(`{"order_id":"o","total":%d}`, i), string(e.Payload))
	}
}

func TestBadInputIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	db, s, p := setup(t, outbox.Config{MaxPayload: 100})
	good := orderPlaced{OrderID: "good"}
	types := registry.New()
	require.NoError(t, registry.Register[unserializable](types, "bad"))
	bad, err := outbox.New(types, s, outbox.Config{})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		publisher    *outbox.Publisher
		notification any
		is           error
		says         string
	}{
		"nil":                {p, nil, registry.ErrNil, "nil"},
		"not serializable":   {bad, unserializable{F: nan()}, registry.ErrEncode, "unserializable"},
		"payload too large":  {p, orderPlaced{OrderID: strings.Repeat("x", 200)}, outbox.ErrTooLarge, "the limit is 100"},
		"key too long":       {p, outbox.With(good, outbox.Key(strings.Repeat("k", 2000))), notification.ErrInvalid, "key is 2000 bytes"},
		"id too long":        {p, outbox.With(good, outbox.ID(strings.Repeat("i", 300))), notification.ErrInvalid, "id is 300 bytes"},
		"NUL in key":         {p, outbox.With(good, outbox.Key("a\x00b")), notification.ErrInvalid, "NUL"},
		"metadata not UTF-8": {p, outbox.With(good, outbox.Metadata("m", "\xff")), notification.ErrInvalid, "UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			err := p.RunInTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
				notifications := []any{c.notification}
				if c.publisher == p {
					notifications = []any{good, c.notification}
				}
				refused := c.publisher.Publish(ctx, tx, notifications...)
				require.ErrorIs(t, refused, c.is)
				require.ErrorContains(t, refused, c.says)
				return nil // the transaction is still usable, since nothing was written
			})
			require.NoError(t, err)
		})
	}
	require.Empty(t, published(t, s))
}

func nan() float64 { zero := 0.0; return zero / zero }

func TestAValueThatIsNoTransactionIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	db, s, p := setup(t, outbox.Config{})
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	for _, tx := range []outbox.Tx{nil, db, conn, (*sql.Tx)(nil)} {
		err := p.Publish(t.Context(), tx, orderPlaced{OrderID: "o"})
		require.ErrorIs(t, err, outbox.ErrNotTransaction)
	}
	require.ErrorContains(t, p.Publish(t.Context(), db, orderPlaced{OrderID: "o"}), "*sql.DB commits each statement separately")
	require.Empty(t, published(t, s))
}

func TestTheCallersContextBoundsTheInsert(t *testing.T) {
	t.Parallel()
	db, s, p := setup(t, outbox.Config{})
	blocker, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer blocker.Rollback()
	_, err = blocker.ExecContext(t.Context(), `LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)

	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.Error(t, p.Publish(ctx, tx, orderPlaced{OrderID: "o"}), "the INSERT waits for the lock until the context ends")
	require.Error(t, ctx.Err())
	require.NoError(t, blocker.Rollback())
	require.Empty(t, published(t, s))
}

func TestABinarySerializerNeedsABinaryColumn(t *testing.T) {
	t.Parallel()
	_, s, _ := setup(t, outbox.Config{})
	types := registry.New()
	require.NoError(t, registry.Register[*wrapperspb.StringValue](types, "text", registry.Serializer(protobuf.Serializer{})))
	_, err := outbox.New(types, s, outbox.Config{})
	require.ErrorIs(t, err, outbox.ErrBinaryPayload)
	require.ErrorContains(t, err, `migrate with the payload "bytea"`)

	binary := postgres.Config{Prefix: "binary_outbox", Payload: postgres.PayloadBytes}
	db := open(t, postgrestest.DSN(t))
	_, err = postgres.Migrate(t.Context(), db, binary)
	require.NoError(t, err)
	s, err = postgres.Open(t.Context(), db, binary)
	require.NoError(t, err)
	p, err := outbox.New(types, s, outbox.Config{})
	require.NoError(t, err)
	publish(t, db, p, wrapperspb.String("héllo"))
	all := published(t, s)
	require.Len(t, all, 1)
	value, err := registry.Decode[*wrapperspb.StringValue](types, &all[0])
	require.NoError(t, err)
	require.Equal(t, "héllo", value.GetValue())
}

func TestWrittenEnvelopesAreReportedBeforeTheCommit(t *testing.T) {
	t.Parallel()
	var reported []string
	db, _, p := setup(t, outbox.Config{Published: func(envelopes []notification.Envelope) {
		for _, e := range envelopes {
			reported = append(reported, e.Type+" "+e.Key)
		}
	}})
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, p.Publish(t.Context(), tx))
	require.Error(t, p.Publish(t.Context(), tx, orderPlaced{OrderID: "a"}, "of no type"))
	require.Empty(t, reported, "nothing was written")
	require.NoError(t, p.Publish(t.Context(), tx, orderPlaced{OrderID: "a"}, orderPlaced{OrderID: "b"}))
	require.NoError(t, p.Append(t.Context(), tx, notification.Envelope{Type: "order.paid", Key: "c", Payload: []byte(`{}`)}))
	require.Equal(t, []string{"order.placed a", "order.placed b", "order.paid c"}, reported)
	require.NoError(t, tx.Rollback())
	require.Error(t, p.Publish(t.Context(), tx, orderPlaced{OrderID: "d"}))
	require.Len(t, reported, 3, "an append to an ended transaction is not reported")
}

func TestRunInTxWakesTheForwarderOnlyAfterACommitWithNotifications(t *testing.T) {
	t.Parallel()
	woken, announced := 0, make(chan struct{}, 10)
	db, s, p := setup(t, outbox.Config{Wake: func() { woken++ }, Announcer: &announcer{do: func(context.Context, int) error {
		announced <- struct{}{}
		return nil
	}}})
	failure := errors.New("no stock")

	require.NoError(t, p.RunInTx(t.Context(), db, nil, func(context.Context, *sql.Tx) error { return nil }))
	require.ErrorIs(t, p.RunInTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
		require.NoError(t, p.Publish(ctx, tx, orderPlaced{OrderID: "o"}))
		return failure
	}), failure)
	require.Panics(t, func() {
		_ = p.RunInTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, p.Publish(ctx, tx, orderPlaced{OrderID: "o"}))
			panic("bug")
		})
	})
	require.Zero(t, woken)
	require.Empty(t, published(t, s))

	outside := t.Context() // what counts is the transaction
	require.NoError(t, p.RunInTx(t.Context(), db, nil, func(_ context.Context, tx *sql.Tx) error {
		return p.Publish(outside, tx, orderPlaced{OrderID: "o"})
	}))
	require.Equal(t, 1, woken)
	require.Len(t, published(t, s), 1)
	<-announced
	require.Empty(t, announced)
}
