package postgres_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/storetest"
)

// TestConformanceOnReservedConnections runs the suite on a store with reserved connections.
func TestConformanceOnReservedConnections(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the whole suite once more")
	}
	var tests sync.Map // by database
	d := dialect(postgres.Config{Receipts: true}, newDB)
	d.Open = func(ctx context.Context, db *sql.DB) (storetest.Store, error) {
		s, err := postgres.Open(ctx, db, postgres.Config{Receipts: true})
		if err != nil {
			return nil, err
		}
		release, err := s.Reserve(ctx, 2)
		if err != nil {
			return nil, err
		}
		of, _ := tests.Load(db)
		of.(*testing.T).Cleanup(release)
		return s, nil
	}
	conform(t, d, func(t *testing.T, db *sql.DB) { tests.Store(db, t) })
}

// reserving opens a store on a pool of four connections and reserves two of them.
func reserving(t *testing.T) (s *postgres.Store, db *sql.DB, release func()) {
	t.Helper()
	db = newDB(t)
	s = openStore(t, db, postgres.Config{})
	db.SetMaxOpenConns(4)
	require.Equal(t, 4, s.MaxConnections())
	release, err := s.Reserve(t.Context(), 2)
	require.NoError(t, err)
	t.Cleanup(release)
	return s, db, release
}

// useAll uses all connections of the pool that are not reserved, until the test ends or free is called.
func useAll(t *testing.T, db *sql.DB) (free func()) {
	t.Helper()
	var conns []*sql.Conn
	for range 2 {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		conns = append(conns, conn)
	}
	free = sync.OnceFunc(func() {
		for _, conn := range conns {
			_ = conn.Close() // the connection may be broken
		}
	})
	t.Cleanup(free)
	return free
}

func promptly(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestReservedConnectionsWorkWhileThePoolIsExhausted(t *testing.T) {
	t.Parallel()
	s, db, _ := reserving(t)
	useAll(t, db)
	ctx := promptly(t)
	require.NoError(t, s.Heartbeat(ctx, store.Member{Owner: "w1"}, time.Hour))
	var work sync.WaitGroup
	for range 20 {
		work.Go(func() {
			if _, err := s.Membership(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	_, _, err := s.Due(ctx, store.DueQuery{Lane: store.NewLane("mail", 0, 1), Now: time.Now(), Limit: 1})
	require.NoError(t, err)
}

func TestAReservedConnectionThatBreaksIsReplaced(t *testing.T) {
	t.Parallel()
	s, db, _ := reserving(t)
	admin, err := db.Conn(t.Context())
	require.NoError(t, err)
	for range 3 {
		// This ends all sessions except its own.
		exec(t, admin, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`)
		require.Eventually(t, func() bool { return s.Heartbeat(promptly(t), store.Member{Owner: "w1"}, time.Hour) == nil },
			time.Minute, 10*time.Millisecond)
	}
	require.NoError(t, admin.Close())
	useAll(t, db)
	for range 10 {
		require.NoError(t, s.Heartbeat(promptly(t), store.Member{Owner: "w1"}, time.Hour))
	}
	require.LessOrEqual(t, db.Stats().OpenConnections, 4)
}

func TestReservedConnectionsAreReleasedByTheLastUser(t *testing.T) {
	t.Parallel()
	s, db, first := reserving(t)
	second, err := s.Reserve(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, 2, db.Stats().InUse)
	first()
	first() // has no effect
	require.Equal(t, 2, db.Stats().InUse)
	second()
	require.Zero(t, db.Stats().InUse)
	require.NoError(t, s.Heartbeat(promptly(t), store.Member{Owner: "w1"}, time.Hour), "back to the pool")
}

func TestConnectionsThatAreInUseCannotBeReserved(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	db.SetMaxOpenConns(2)
	free := useAll(t, db)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Reserve(ctx, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	free()
	require.NoError(t, s.Heartbeat(promptly(t), store.Member{Owner: "w1"}, time.Hour))
	require.Zero(t, db.Stats().InUse)
}
