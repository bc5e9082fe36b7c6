package forwarder_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// TestARestoredDatabaseLosesNothing dumps a database and restores it into a cluster whose
// transaction ids are far below those of the dump, so that the restored rows seem to come from the
// future.
func TestARestoredDatabaseLosesNothing(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]postgres.Config{"one table": {}, "partitions": {PartitionRows: 30}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			restoreIntoAnotherCluster(t, config)
		})
	}
}

func restoreIntoAnotherCluster(t *testing.T, config postgres.Config) {
	t.Helper()
	source, target := startPrivate(t), startPrivate(t)
	fromDSN, _, err := source.CreateDatabase(t.Context())
	require.NoError(t, err)
	toDSN, _, err := target.CreateDatabase(t.Context())
	require.NoError(t, err)

	from := openPlain(t, fromDSN)
	_, err = postgres.Migrate(t.Context(), from, config)
	require.NoError(t, err)
	const burnt = 5000
	burn(t, from, burnt)
	settled, owed := numbered("settled", 20), numbered("owed", 30)
	publishPlain(t, from, settled...)
	before := &tally{}
	stop := forward(t, from, before)
	before.waitFor(t, settled...)
	stop()
	burn(t, from, burnt)
	publishPlain(t, from, owed...)
	copyDatabase(t, source, fromDSN, target, toDSN)

	// The application publishes before the forwarder starts and while it works. One transaction stays
	// open.
	to := openPlain(t, toDSN)
	publishPlain(t, to, "first")
	open, err := to.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = open.Rollback() }()
	_, err = open.ExecContext(t.Context(), `INSERT INTO outbox (id, type, payload) VALUES ('open', 't', '{}')`)
	require.NoError(t, err)
	var publishers sync.WaitGroup
	var published []string
	for p := range 4 {
		ids := numbered(fmt.Sprintf("new-%d-", p), 50)
		published = append(published, ids...)
		publishers.Go(func() {
			for _, id := range ids {
				if err := insertPlain(t.Context(), to, id); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	after := &tally{}
	stop = forward(t, to, after)
	publishers.Wait()
	after.waitFor(t, published...)
	after.waitFor(t, owed...)
	require.NoError(t, open.Commit())
	after.waitFor(t, "open")

	// The cluster's transaction ids pass those of the restored rows.
	burn(t, to, 3*burnt)
	publishPlain(t, to, "passed")
	after.waitFor(t, "passed")
	stop()
	require.Equal(t, 1, len(after.with("read again")), "the warning is logged once")

	stop = forward(t, to, after)
	publishPlain(t, to, "last")
	after.waitFor(t, "last")
	stop()
	require.Equal(t, 1, len(after.with("read again")), "and not again by the next forwarder")

	times := after.times()
	for _, id := range append(append(published, owed...), "first", "open", "passed", "last") {
		require.Equal(t, 1, times[id], id)
	}
	for _, id := range settled {
		require.LessOrEqual(t, times[id], 1, id)
	}
}

func startPrivate(t *testing.T) *postgrestest.Server {
	t.Helper()
	server, err := postgrestest.Start(t.Context(), postgrestest.Options{Private: true, Settings: map[string]string{"shared_buffers": "16MB"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	return server
}

// burn uses up transaction ids.
func burn(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), fmt.Sprintf(
		`DO $$ BEGIN FOR i IN 1..%d LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$`, n))
	require.NoError(t, err)
}

func publishPlain(t *testing.T, db *sql.DB, ids ...string) {
	t.Helper()
	for _, id := range ids {
		require.NoError(t, insertPlain(t.Context(), db, id))
	}
}

func insertPlain(ctx context.Context, db *sql.DB, id string) error {
	_, err := db.ExecContext(ctx, `INSERT INTO outbox (id, type, payload) VALUES ($1, 't', '{}')`, id)
	return err
}

// copyDatabase runs pg_dump | psql.
func copyDatabase(t *testing.T, source *postgrestest.Server, from string, target *postgrestest.Server, to string) {
	t.Helper()
	dump, err := source.Command(t.Context(), "pg_dump", "--dbname", from)
	if errors.Is(err, postgrestest.ErrNoProgram) {
		t.Skip(err)
	}
	require.NoError(t, err)
	restore, err := target.Command(t.Context(), "psql", "--quiet", "--no-psqlrc", "--set", "ON_ERROR_STOP=1", "--dbname", to)
	require.NoError(t, err)
	var complaints bytes.Buffer
	dump.Stderr, restore.Stderr = &complaints, &complaints
	var text bytes.Buffer
	dump.Stdout = &text
	err = dump.Run()
	require.NoError(t, err, complaints.String())
	restore.Stdin = &text
	require.NoError(t, restore.Run(), complaints.String())
}

// forward runs a forwarder with one sink until the returned function is called.
func forward(t *testing.T, db *sql.DB, to *tally) (stop func()) {
	t.Helper()
	s, err := postgres.Open(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	o := &outbox{t: t, db: db, store: s}
	return o.one(forwarder.Sink{Sink: to}, to.logging, inRealTime, func(c *forwarder.Config) { c.Retention, c.InboxRetention, c.Lease = 0, 0, 0 }).end
}

// tally is a sink with the log of its forwarder.
type tally struct {
	script
	lines
}

// waitFor waits until all these ids were delivered.
func (s *script) waitFor(t *testing.T, ids ...string) {
	t.Helper()
	eventually(t, func() bool {
		took := s.times()
		return !slices.ContainsFunc(ids, func(id string) bool { return took[id] == 0 })
	}, fmt.Sprintf("%v are all delivered", ids[:1]))
}
