package mysql_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
)

const insertOne = `INSERT INTO outbox (type, payload) VALUES ('t', '{}')`

var allRows = store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Types: notification.AllTypes}

// read reads up to the newest target.
func read(t *testing.T, s *mysql.Store, r store.Reader) (offsets []int64) {
	t.Helper()
	target, err := s.Probe(t.Context())
	require.NoError(t, err)
	for {
		page, err := r.Next(t.Context(), target, 100)
		require.NoError(t, err)
		for _, e := range page.Envelopes {
			offsets = append(offsets, e.Offset)
		}
		if page.CaughtUp {
			return offsets
		}
	}
}

// decided probes until no offset is undecided.
func decided(t *testing.T, s *mysql.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		target, err := s.Probe(ctx)
		require.NoError(t, err)
		if mysql.Holes(target) == 0 {
			return
		}
	}
}

func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func exec(t *testing.T, db interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, query string) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), query)
	require.NoError(t, err)
}

func TestAnOpenTransactionDelaysNoOtherRow(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, mysql.Config{})
	r, err := s.NewReader(nil, allRows)
	require.NoError(t, err)
	open := begin(t, db)
	exec(t, open, insertOne)
	exec(t, db, insertOne)
	require.Equal(t, []int64{2}, read(t, s, r))
	exec(t, db, insertOne)
	require.Equal(t, []int64{3}, read(t, s, r))
	require.NoError(t, open.Commit())
	require.Equal(t, []int64{1}, read(t, s, r))
	require.Empty(t, read(t, s, r))
}

func TestRolledBackOffsetsAreForgotten(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, mysql.Config{})
	r, err := s.NewReader(nil, allRows)
	require.NoError(t, err)
	for range 3 {
		gone := begin(t, db)
		exec(t, gone, insertOne)
		require.NoError(t, gone.Rollback())
		exec(t, db, insertOne)
	}
	require.Equal(t, []int64{2, 4, 6}, read(t, s, r))
	decided(t, s)
	require.Empty(t, read(t, s, r))
}

func TestWithoutPROCESSVoidRowsFillRolledBackOffsets(t *testing.T) {
	t.Parallel()
	db := unprivileged(t)
	s, err := mysql.Open(t.Context(), db, mysql.Config{WithoutProcess: mysql.ProofVoid})
	require.NoError(t, err)
	s.SetVoidAfter(time.Second)
	r, err := s.NewReader(nil, allRows)
	require.NoError(t, err)
	gone := begin(t, db)
	exec(t, gone, insertOne)
	require.NoError(t, gone.Rollback())
	exec(t, db, insertOne)
	require.Equal(t, []int64{2}, read(t, s, r))
	decided(t, s)
	require.Empty(t, read(t, s, r), "no reader gets void rows")
	var typ string
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT type FROM outbox WHERE `offset` = 1").Scan(&typ))
	require.Equal(t, mysql.VoidType, typ)
}

// After a crash the server may assign an offset again.
func TestTargetsAndCheckpointsEndWithTheServersLife(t *testing.T) {
	t.Parallel()
	mysqltest.Shared(t) // skips the test if no server is available
	server, err := mysqltest.Start(t.Context(), mysqltest.Options{Private: true, Durable: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Stop()) }()
	name, _, err := server.CreateDatabase(t.Context())
	require.NoError(t, err)
	db, err := mysql.OpenDB(server.DSN(name))
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	s := openStore(t, db, mysql.Config{})
	_, err = s.Cut(t.Context(), "mail", 1, store.StartOldest)
	require.NoError(t, err)
	lease, err := s.Acquire(t.Context(), store.NewLane("mail", 0, 1), "w", time.Hour)
	require.NoError(t, err)
	filter := allRows
	filter.Server = lease.Server
	r, err := s.NewReader(lease.Position, filter)
	require.NoError(t, err)
	exec(t, db, insertOne)
	require.Equal(t, []int64{1}, read(t, s, r))
	lost := begin(t, db)
	exec(t, lost, insertOne)
	exec(t, db, insertOne)
	require.Equal(t, []int64{3}, read(t, s, r))

	require.NoError(t, server.Kill())
	time.Sleep(time.Second) // the server reports its start in whole seconds
	require.NoError(t, server.Up(t.Context()))
	target, err := s.Probe(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(3), target.Last())
	_, err = r.Next(t.Context(), target, 10)
	require.ErrorIs(t, err, store.ErrServerChanged)
	require.ErrorIs(t, s.Checkpoint(t.Context(), store.Checkpoint{Lease: lease, TTL: time.Hour}), store.ErrServerChanged)

	again, err := s.Acquire(t.Context(), store.NewLane("mail", 0, 1), "w", time.Hour)
	require.NoError(t, err)
	require.NotEqual(t, lease.Server, again.Server)
	require.NoError(t, s.Checkpoint(t.Context(), store.Checkpoint{Lease: again, TTL: time.Hour}))
	fresh, err := s.NewReader(again.Position, store.Filter{Slots: allRows.Slots, Types: allRows.Types, Server: again.Server})
	require.NoError(t, err)
	require.Equal(t, []int64{1, 3}, read(t, s, fresh))
}
