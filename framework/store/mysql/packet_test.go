package mysql_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
	"github.com/waybill-go/waybill/registry"
)

// smallPackets is a server whose packets have at most a megabyte.
func smallPackets(t *testing.T) (dsn string) {
	t.Helper()
	mysqltest.Shared(t) // skips the test if no server is available
	server, err := mysqltest.Start(t.Context(), mysqltest.Options{Private: true, Settings: map[string]string{"max_allowed_packet": "1M"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	name, _, err := server.CreateDatabase(t.Context())
	require.NoError(t, err)
	return server.DSN(name)
}

// quotes are a JSON text, of which each byte takes two in a statement.
func quotes(size int) []byte { return []byte(`"` + strings.Repeat(`\"`, size/2-1) + `"`) }

func TestWhatTheLogHasFitsIntoStatements(t *testing.T) {
	t.Parallel()
	dsn := smallPackets(t)
	db := openDB(t, dsn)
	s := openStore(t, db, mysql.Config{Receipts: true})
	theirs, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = theirs.Close() })
	texts, err := sql.Open("mysql", dsn+"?interpolateParams=true")
	require.NoError(t, err)
	t.Cleanup(func() { _ = texts.Close() })
	_, err = s.Cut(t.Context(), "mail", 1, store.StartOldest)
	require.NoError(t, err)
	lease, err := s.Acquire(t.Context(), store.NewLane("mail", 0, 1), "w", time.Hour)
	require.NoError(t, err)
	publisher, err := outbox.New(registry.New(), s, outbox.Config{})
	require.NoError(t, err)
	number := int64(0)
	for name, c := range map[string]struct{ rows, bytes, late int }{
		"many small":     {1500, 800, 0},
		"some large":     {7, 300 << 10, 100},
		"one that fills": {2, 1<<20 - 12<<10, 0},
		"late texts":     {200, 100, 8 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			envelopes := make([]notification.Envelope, c.rows)
			for i := range envelopes {
				envelopes[i] = notification.Envelope{ID: fmt.Sprint(name, i), Type: "t", Version: 1, OccurredOn: time.Now(), Payload: quotes(c.bytes)}
			}
			handles := []*sql.DB{db, theirs, texts}
			if 2*c.bytes > 1<<20 {
				handles = handles[:1] // the driver would write the text of the whole payload
			}
			for _, handle := range handles {
				tx := begin(t, handle)
				require.NoError(t, publisher.Append(t.Context(), tx, envelopes...))
				require.NoError(t, tx.Rollback())
			}
			parked := make([]store.Parked, c.rows)
			refs := make([]store.Ref, c.rows)
			receipts := make([]store.Receipt, c.rows)
			for i := range parked {
				envelopes[i].Offset = int64(i + 1)
				parked[i] = store.Parked{Envelope: envelopes[i], State: store.StateRetrying, DueAt: time.Now(), LastError: strings.Repeat("'", c.late)}
				for range store.MaxPastAttempts {
					parked[i].Attempts = store.WithPastAttempt(parked[i].Attempts, store.PastAttempt{Error: strings.Repeat(`"`, min(c.late, 1000))})
				}
				refs[i] = store.RefOf(&envelopes[i])
				receipts[i] = store.Receipt{Offset: refs[i].Offset, ID: refs[i].ID, Receipt: notification.Receipt(strings.Repeat("'", c.late)), DeliveredAt: time.Now()}
			}
			number += 2
			require.NoError(t, s.Checkpoint(t.Context(), store.Checkpoint{Lease: lease, TTL: time.Hour, Number: number - 1, Park: parked}))
			due, _, err := s.Due(t.Context(), store.DueQuery{Lane: lease.Lane, Now: time.Now().Add(time.Second), Limit: c.rows})
			require.NoError(t, err)
			require.Len(t, due, min(c.rows, len(due)))
			require.Equal(t, envelopes[0].Payload, due[0].Envelope.Payload)
			require.NoError(t, s.Checkpoint(t.Context(), store.Checkpoint{Lease: lease, TTL: time.Hour, Number: number, Unpark: refs, Receipts: receipts}))
			found, err := s.FindParked(t.Context(), store.ParkedFilter{}, store.ParkedPlace{}, 1)
			require.NoError(t, err)
			require.Empty(t, found)
		})
	}
	t.Run("too large", func(t *testing.T) {
		err := publisher.Append(t.Context(), begin(t, db), notification.Envelope{ID: "x", Type: "t", Version: 1, OccurredOn: time.Now(), Payload: quotes(1 << 20)})
		require.ErrorIs(t, err, outbox.ErrTooLarge)
		require.ErrorContains(t, err, "max_allowed_packet")
	})
}
