package drivers

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/sinks"
)

func TestAHandleOfAPgxPoolBorrows(t *testing.T) {
	t.Parallel()
	_, ofPool := newPool(t)
	own, err := sql.Open("pgx", postgrestest.DSN(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = own.Close() })
	for db, borrows := range map[*sql.DB]bool{ofPool: true, own: false} {
		_, err := postgres.Migrate(t.Context(), db, postgres.Config{})
		require.NoError(t, err)
		s, err := postgres.Open(t.Context(), db, postgres.Config{})
		require.NoError(t, err)
		got, err := s.Borrows(t.Context())
		require.NoError(t, err)
		require.Equal(t, borrows, got)
	}
}

// logged is what a forwarder says.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestAForwarderReservesConnectionsOfAPgxPoolThatHasEnough(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		connections, reserved int32
		says                  string
	}{
		"enough":  {4, 2, "call db.SetMaxOpenConns with it"},
		"too few": {3, 0, "no connections are reserved"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, db := newPoolOf(t, c.connections)
			_, err := postgres.Migrate(t.Context(), db, postgres.Config{})
			require.NoError(t, err)
			s, err := postgres.Open(t.Context(), db, postgres.Config{})
			require.NoError(t, err)
			log := &logged{}
			delivered := make(chan struct{})
			sink := sinks.Func(func(context.Context, *notification.Delivery) (notification.Receipt, error) {
				close(delivered)
				return "", nil
			})
			f, err := forwarder.New(forwarder.Config{
				Store: s, Routes: route.Routes{"*": route.To("sink")}, Sinks: map[string]forwarder.Sink{"sink": {Sink: sink}},
				Lease: 3 * time.Second, Logger: slog.New(slog.NewTextHandler(log, nil)),
			})
			require.NoError(t, err)
			_, err = db.ExecContext(t.Context(), `INSERT INTO outbox (type, payload) VALUES ('t', '{}')`)
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- f.Run(ctx) }()
			<-delivered
			require.GreaterOrEqual(t, pool.Stat().AcquiredConns(), c.reserved)
			require.Contains(t, log.String(), c.says)
			stop()
			require.NoError(t, <-ended)
		})
	}
}
