package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
)

var (
	_ outbox.Log = (*postgres.Store)(nil)
	_ outbox.Log = (*sqlite.Store)(nil)
)

// paperLog is a log without a database.
type paperLog struct{}

func (paperLog) InsertInto() string       { return "INSERT INTO paper VALUES" }
func (paperLog) Placeholder(n int) string { return "$" + strconv.Itoa(n) }
func (paperLog) Limits() store.Limits {
	return store.Limits{Parameters: 8 * 1500, Bytes: store.StatementBytes}
}
func (paperLog) BindPayload(payload []byte) any { return string(payload) }
func (paperLog) BinaryPayload() bool            { return false }
func (paperLog) CheckPayload(payload []byte) error {
	return store.CheckJSON(payload)
}
func (paperLog) BindTime(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}

// paperTx is a transaction without a database. It records the statements.
type paperTx struct {
	discardingTx
	statements []statement
}

type statement struct {
	sql  string
	args []any
}

func (p *paperTx) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	p.statements = append(p.statements, statement{query, args})
	return nil, nil
}

// inserting returns the statement that inserts a number of rows.
func inserting(rows int) string {
	var texts []string
	for i := range rows {
		var placeholders []string
		for n := range 8 {
			placeholders = append(placeholders, fmt.Sprint("$", 8*i+n+1))
		}
		texts = append(texts, "("+strings.Join(placeholders, ", ")+")")
	}
	return "INSERT INTO paper VALUES " + strings.Join(texts, ", ")
}

func newPaperPublisher(t testing.TB) *outbox.Publisher {
	t.Helper()
	p, err := outbox.New(newTypes(t), paperLog{}, outbox.Config{})
	require.NoError(t, err)
	return p
}

func TestAStatementHasARowForEachNotification(t *testing.T) {
	t.Parallel()
	p := newPaperPublisher(t)
	for _, n := range []int{3, 1, 2, 1024, 40, 1025, 1500, 4} {
		tx := new(paperTx)
		require.NoError(t, p.Publish(t.Context(), tx, placed(n)...))
		require.Len(t, tx.statements, 1)
		require.Equal(t, inserting(n), tx.statements[0].sql)
		require.Len(t, tx.statements[0].args, 8*n)
	}
	tx := new(paperTx)
	require.NoError(t, p.Publish(t.Context(), tx, placed(1503)...))
	require.Len(t, tx.statements, 2)
	require.Equal(t, inserting(1500), tx.statements[0].sql)
	require.Equal(t, inserting(3), tx.statements[1].sql)
	require.Equal(t, "key-1500", tx.statements[1].args[3], "the second statement continues after the first")
}

func TestPublishersInParallelGetTheirOwnStatements(t *testing.T) {
	t.Parallel()
	p := newPaperPublisher(t)
	var publishing sync.WaitGroup
	for worker := range 8 {
		publishing.Go(func() {
			for i := range 50 {
				n := (worker*50+i*7)%90 + 1
				tx := new(paperTx)
				if err := p.Publish(t.Context(), tx, placed(n)...); err != nil || tx.statements[0].sql != inserting(n) {
					t.Errorf("%d rows: %v", n, err)
				}
			}
		})
	}
	publishing.Wait()
}

func placed(n int) []any {
	many := make([]any, n)
	for i := range many {
		many[i] = orderPlaced{OrderID: fmt.Sprint("key-", i)}
	}
	return many
}

func TestARowHasTheEnvelopesFieldsInTheOrderOfTheColumns(t *testing.T) {
	t.Parallel()
	p := newPaperPublisher(t)
	zone := time.FixedZone("", 3600)
	at := time.Date(2031, 2, 3, 4, 5, 6, 789_123_456, zone)
	utc := time.Date(2031, 2, 3, 3, 5, 6, 789_123_000, time.UTC)
	tx := new(paperTx)
	require.NoError(t, p.Append(t.Context(), tx,
		notification.Envelope{
			ID: "i", Type: "a", Version: 3, Key: "k", OccurredOn: at, DeliverAt: at.Add(time.Hour), Payload: []byte(`{}`),
			Metadata: notification.Metadata{"tenant": "acme", "_waybill_type": `"x"`},
		},
		notification.Envelope{ID: "j", Type: "b", OccurredOn: at, Payload: []byte(`1`)},
	))
	require.Equal(t, []any{
		"i", "a", 3, "k", utc, utc.Add(time.Hour), `{"_waybill_type":"\"x\"","tenant":"acme"}`, `{}`,
		"j", "b", 1, "", utc, nil, `{}`, `1`,
	}, tx.statements[0].args)
}

func TestAppendAddsDefaultsWithoutChangingTheEnvelopes(t *testing.T) {
	t.Parallel()
	db, s, _ := setup(t, outbox.Config{})
	woken := 0
	p, err := outbox.New(registry.New(), s, outbox.Config{Wake: func() { woken++ }})
	require.NoError(t, err)
	made := []notification.Envelope{{Type: "order.placed", Payload: []byte(`{"n":1}`)}, {Type: "order.shipped", Payload: []byte(`{"n":2}`)}}
	require.NoError(t, p.RunInTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
		return p.Append(ctx, tx, made...)
	}))
	require.Equal(t, 1, woken)
	require.Empty(t, made[0].ID, "the caller's envelopes are not changed")
	all := published(t, s)
	require.Len(t, all, 2)
	require.Equal(t, "order.placed", all[0].Type)
	require.Len(t, all[0].ID, 36)
	require.Equal(t, 1, all[0].Version)
	require.WithinDuration(t, time.Now(), all[0].OccurredOn, time.Minute)
	require.True(t, all[0].DeliverAt.IsZero())
	require.Equal(t, `{"n":2}`, string(all[1].Payload))
}

func TestAppendRefusesInvalidEnvelopesBeforeItWrites(t *testing.T) {
	t.Parallel()
	p := newPaperPublisher(t)
	good := notification.Envelope{Type: "a", Payload: []byte(`{}`)}
	for name, c := range map[string]struct {
		bad notification.Envelope
		is  error
	}{
		"no type":                 {notification.Envelope{Payload: []byte(`{}`)}, notification.ErrInvalid},
		"no payload":              {notification.Envelope{Type: "a"}, outbox.ErrBinaryPayload},
		"not JSON":                {notification.Envelope{Type: "a", Payload: []byte{0xff}}, outbox.ErrBinaryPayload},
		"another content type":    {notification.Envelope{Type: "a", Payload: []byte(`{}`), Metadata: notification.Metadata{"content-type": "application/protobuf"}}, outbox.ErrBinaryPayload},
		"a payload above a limit": {notification.Envelope{Type: "a", Payload: make([]byte, outbox.DefaultMaxPayload+1)}, outbox.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tx := new(paperTx)
			err := p.Append(t.Context(), tx, good, c.bad)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, "notification 2 of 2")
			require.Empty(t, tx.statements)
		})
	}
	require.ErrorIs(t, p.Append(t.Context(), nil, good), outbox.ErrNotTransaction)
	require.NoError(t, p.Append(t.Context(), new(paperTx)), "a call without envelopes does nothing")
}
