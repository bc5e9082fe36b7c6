package postgres_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// attend opens and declares the presence of a forwarder.
func attend(t *testing.T, s *postgres.Store, owner string) store.Presence {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p, err := s.OpenPresence(ctx, owner)
	require.NoError(t, err)
	t.Cleanup(func() { cancel(); _ = p.Close() })
	require.NoError(t, s.Heartbeat(t.Context(), store.Member{Owner: owner}, time.Hour))
	declared, err := p.Declare(t.Context())
	require.NoError(t, err)
	require.True(t, declared)
	return p
}

func gone(t *testing.T, p store.Presence) (owners []string) {
	t.Helper()
	gone, err := p.Beat(t.Context())
	require.NoError(t, err)
	for _, g := range gone {
		owners = append(owners, g.Owner)
	}
	return owners
}

func TestAStoreThatDoesNotListenHasNoPresence(t *testing.T) {
	t.Parallel()
	_, err := openStore(t, newDB(t), postgres.Config{}).OpenPresence(t.Context(), "w1")
	require.ErrorIs(t, err, store.ErrNoPresence)
	require.ErrorContains(t, err, "set Listen")
}

func TestAPresenceWhoseSessionIsTerminatedIsGone(t *testing.T) {
	t.Parallel()
	db, s := listen(t, nil)
	first, second := attend(t, s, "w1"), attend(t, s, "w2")
	require.Empty(t, gone(t, second))
	exec(t, db, `SELECT pg_terminate_backend(pid) FROM pg_locks JOIN outbox_forwarders ON split_part(presence, '/', 2)::bigint = objid::bigint WHERE locktype = 'advisory' AND owner = 'w1'`)
	require.Eventually(t, func() bool { return len(gone(t, second)) > 0 }, patience, 10*time.Millisecond)
	require.Equal(t, []string{"w1"}, gone(t, second))
	_, err := first.Beat(t.Context())
	require.Error(t, err)
}

func TestALockedTableOfForwardersIsNoLossOfTheSession(t *testing.T) {
	t.Parallel()
	db, s := listen(t, nil)
	p := attend(t, s, "w1")
	tx := begin(t, db)
	exec(t, tx, `LOCK TABLE outbox_forwarders`)
	require.Empty(t, gone(t, p))
	require.NoError(t, tx.Rollback())
	require.Empty(t, gone(t, p))
}

func TestPresencesOfOutboxesInOneDatabaseAreApart(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	db := openDB(t, dsn)
	s, other := openStore(t, db, postgres.Config{Listen: dsn}), openStore(t, db, postgres.Config{Listen: dsn, Prefix: "other"})
	first, second := attend(t, s, "w1"), attend(t, other, "w2")
	require.NoError(t, first.Close())
	require.Empty(t, gone(t, second))
}

func TestAPresenceOfAnEarlierLifeOfTheServerSaysNothing(t *testing.T) {
	t.Parallel()
	server, err := postgrestest.Start(t.Context(), postgrestest.Options{Private: true, Settings: map[string]string{"shared_buffers": "16MB"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	dsn, _, err := server.CreateDatabase(t.Context())
	require.NoError(t, err)
	db := openDB(t, dsn)
	s := openStore(t, db, postgres.Config{Listen: dsn})
	first := attend(t, s, "w1")
	var presence string
	require.NoError(t, db.QueryRow(`SELECT presence FROM outbox_forwarders`).Scan(&presence))
	lease, err := lease(t, s, store.NewLane("mail", 0, 1))
	require.NoError(t, err)

	require.NoError(t, server.Restart(postgrestest.Immediate))
	_, err = first.Beat(t.Context())
	require.Error(t, err)
	second := attend(t, s, "w2")
	require.Empty(t, gone(t, second), "its lock is free, as all locks are")
	held, err := first.Withdraw(t.Context())
	require.NoError(t, err)
	require.True(t, held, "it may go on")
	require.NoError(t, s.Release(t.Context(), lease))

	first = attend(t, s, "w1")
	require.NoError(t, db.QueryRow(`SELECT presence FROM outbox_forwarders WHERE owner = 'w1'`).Scan(&presence))
	require.NoError(t, server.Restart(postgrestest.Immediate))
	evicted, err := second.Evict(t.Context(), store.Gone{Owner: "w1", Presence: presence})
	require.NoError(t, err)
	require.False(t, evicted, "that the lock was free was seen in another life")
	held, err = first.Withdraw(t.Context())
	require.NoError(t, err)
	require.True(t, held)
}

// A transaction pooler gives a client another session as soon as another client is faster.
func TestAPresenceThroughAPoolerIsNotTrusted(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	pooled, err := postgrestest.StartPooler(t, dsn, 3)
	if err != nil {
		t.Skip(err)
	}
	openStore(t, openDB(t, dsn), postgres.Config{})
	others := openDB(t, pooled)
	s := openStore(t, others, postgres.Config{Listen: pooled})
	p, err := s.OpenPresence(t.Context(), "w1")
	if err != nil {
		return
	}
	t.Cleanup(func() { _ = p.Close() })
	for range 3 {
		tx, err := others.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer tx.Rollback()
		exec(t, tx, `SELECT 1`)
		if _, err := p.Beat(t.Context()); err != nil {
			return
		}
	}
	t.Fatal("another session answered, and was taken for the one with the lock")
}

func TestARoleThatMayNotReadTheMembershipHasNoPresence(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	db := openDB(t, dsn)
	openStore(t, db, postgres.Config{})
	_, address := newRole(t, db, dsn)
	s, err := postgres.Open(t.Context(), db, postgres.Config{Listen: address})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p, err := s.OpenPresence(ctx, "w1")
	require.NoError(t, err)
	defer p.Close()
	_, err = p.Beat(t.Context())
	require.ErrorContains(t, err, "permission denied")
}

func TestALookForPresencesLeavesNoLock(t *testing.T) {
	t.Parallel()
	db, s := listen(t, nil)
	first, second := attend(t, s, "w1"), attend(t, s, "w2")
	require.NoError(t, first.Close())
	require.Eventually(t, func() bool { return len(gone(t, second)) > 0 }, patience, 10*time.Millisecond)
	require.Equal(t, 1, count(t, db, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`), "that of w2")
}

func count(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}
