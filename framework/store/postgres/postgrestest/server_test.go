package postgrestest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// victimVariable names a folder. With it the test program starts a server there, reports it and waits to
// be killed.
const victimVariable = "POSTGRESTEST_VICTIM"

// TestMain looks for leaked goroutines while the shared server still runs, because the server must not
// have any.
func TestMain(m *testing.M) {
	if os.Getenv(victimVariable) != "" {
		beVictim()
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}))
}

func TestNewDatabaseIsEmptyAndTakesWrites(t *testing.T) {
	t.Parallel()
	db := New(t)
	require.Equal(t, 0, tables(t, db))
	execute(t, db, "CREATE TABLE parcels (id int)")
	execute(t, db, "INSERT INTO parcels VALUES (1), (2)")
	require.Equal(t, 2, query[int](t, db, "SELECT count(*) FROM parcels"))
}

func TestDatabasesAreIsolated(t *testing.T) {
	t.Parallel()
	one, other := New(t), New(t)
	execute(t, one, "CREATE TABLE parcels (id int)")
	require.Equal(t, 1, tables(t, one))
	require.Equal(t, 0, tables(t, other))
}

func TestDatabaseIsDroppedWhenItsTestEnds(t *testing.T) {
	t.Parallel()
	var name string
	var left *sql.DB
	t.Run("the test", func(t *testing.T) {
		dsn := DSN(t)
		var err error
		left, err = sql.Open("postgres", dsn)
		require.NoError(t, err)
		name = query[string](t, left, "SELECT current_database()") // the session stays open
	})
	require.NoError(t, left.Close())
	require.Equal(t, 0, query[int](t, New(t), "SELECT count(*) FROM pg_database WHERE datname = $1", name))
}

func TestCreatedDatabaseIsRemovedByDrop(t *testing.T) {
	t.Parallel()
	server, err := shared.Get()
	require.NoError(t, err)
	dsn, drop, err := server.CreateDatabase(t.Context())
	require.NoError(t, err)
	require.NoError(t, open(t, dsn).Ping())
	drop()
	require.ErrorContains(t, open(t, dsn).Ping(), "does not exist")
}

func TestRestartKeepsAddressAndCommittedRows(t *testing.T) {
	t.Parallel()
	server := startPrivate(t, Options{})
	db := open(t, server.DSN())
	execute(t, db, "CREATE TABLE parcels (id int)")
	for i, mode := range []Mode{Immediate, Fast} {
		execute(t, db, "INSERT INTO parcels VALUES (1)")
		started := query[time.Time](t, db, "SELECT pg_postmaster_start_time()")
		require.NoError(t, server.Restart(mode))

		after := open(t, server.DSN())
		require.Equal(t, i+1, query[int](t, after, "SELECT count(*) FROM parcels"))
		require.NotEqual(t, started, query[time.Time](t, after, "SELECT pg_postmaster_start_time()"))
	}
}

func TestAClusterThatIsDownRefusesConnectionsUntilItIsUp(t *testing.T) {
	t.Parallel()
	server := startPrivate(t, Options{})
	for _, mode := range []Mode{Fast, Immediate} {
		require.NoError(t, server.Down(mode))
		require.ErrorContains(t, open(t, server.DSN()).Ping(), "connection refused")
		require.NoError(t, server.Up())
		require.NoError(t, open(t, server.DSN()).Ping())
	}
}

func TestAPromotedStandbyTakesItsPrimarysPlace(t *testing.T) {
	t.Parallel()
	primary := startPrivate(t, Options{})
	db := open(t, primary.DSN())
	execute(t, db, "CREATE TABLE parcels (id int)")
	identifier := query[string](t, db, "SELECT system_identifier FROM pg_control_system()")
	standby, err := primary.Standby(t.Context())
	if errors.Is(err, ErrNoProgram) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Stop()) })
	require.NotEqual(t, primary.DSN(), standby.DSN())
	require.True(t, query[bool](t, open(t, standby.DSN()), "SELECT pg_is_in_recovery()"))

	execute(t, db, "INSERT INTO parcels VALUES (1)")
	require.NoError(t, primary.Down(Fast)) // a fast shutdown first sends everything to the standbys
	require.NoError(t, standby.Promote())
	after := open(t, standby.DSN())
	require.Equal(t, 1, query[int](t, after, "SELECT count(*) FROM parcels"))
	require.Equal(t, identifier, query[string](t, after, "SELECT system_identifier FROM pg_control_system()"))
	execute(t, after, "INSERT INTO parcels VALUES (2)")
}

func TestAStandbyThatWasDownCatchesUp(t *testing.T) {
	t.Parallel()
	primary := startPrivate(t, Options{})
	standby, err := primary.Standby(t.Context())
	if errors.Is(err, ErrNoProgram) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Stop()) })
	require.NoError(t, standby.Down(Fast))

	db := open(t, primary.DSN())
	execute(t, db, "CREATE TABLE parcels (id int)")
	for range 3 { // the primary removes each segment that no checkpoint and no slot needs
		execute(t, db, "INSERT INTO parcels VALUES (1)")
		execute(t, db, "SELECT pg_switch_wal()")
		execute(t, db, "CHECKPOINT")
	}
	require.NoError(t, standby.Up())
	caughtUp := open(t, standby.DSN())
	require.Eventually(t, func() bool {
		var n int
		err := caughtUp.QueryRowContext(t.Context(), "SELECT count(*) FROM parcels").Scan(&n)
		return err == nil && n == 3
	}, time.Minute, 10*time.Millisecond)
}

func TestSettings(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options Options
		want    map[string]string
	}{
		"defaults": {
			Options{},
			map[string]string{
				"fsync": "off", "synchronous_commit": "on", "shared_buffers": "256MB",
				"max_connections": "200", "listen_addresses": "127.0.0.1", "unix_socket_directories": "",
			},
		},
		"durable": {
			Options{Durable: true, Settings: map[string]string{"shared_buffers": "64MB", "cluster_name": "it's"}},
			map[string]string{"fsync": "on", "shared_buffers": "64MB", "max_connections": "200", "cluster_name": "it's"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := startPrivate(t, test.options)
			db := open(t, server.DSN())
			for setting, want := range test.want {
				got := query[string](t, db, "SELECT current_setting($1)", setting)
				require.Equal(t, want, got, setting)
			}
		})
	}
}

func TestFailedStartShowsTheServersLogAndLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := parentFolder(t)
	_, err := Start(t.Context(), Options{Private: true, Dir: dir, Settings: map[string]string{"shared_buffers": "plenty"}})
	require.ErrorContains(t, err, `invalid value for parameter "shared_buffers": "plenty"`)
	requireEmpty(t, dir)
}

func TestStopLeavesNothingAndMayBeRepeated(t *testing.T) {
	t.Parallel()
	dir := parentFolder(t)
	server := startPrivate(t, Options{Dir: dir})
	require.NoError(t, server.Stop())
	requireEmpty(t, dir)
	connection, err := net.Dial("tcp", server.address.Host)
	if err == nil {
		require.NoError(t, connection.Close())
	}
	require.Error(t, err, "the server still listens")
	require.NoError(t, server.Stop())
}

func TestServerOfTheEnvironmentIsUsedAndLeftAlone(t *testing.T) {
	given := startPrivate(t, Options{})
	port := given.address.Port()
	t.Setenv(Variable, given.DSN())
	server, err := Start(t.Context(), Options{})
	require.NoError(t, err)
	require.Equal(t, port, server.address.Port())

	inside, drop, err := server.CreateDatabase(t.Context())
	require.NoError(t, err)
	defer drop()
	require.Regexp(t, `^postgres://postgres@127.0.0.1:`+port+`/waybill_\w+\?sslmode=disable$`, inside)
	require.NoError(t, open(t, inside).Ping())

	require.ErrorIs(t, server.Restart(Immediate), ErrNotOurs)
	require.ErrorIs(t, server.Down(Immediate), ErrNotOurs)
	require.ErrorIs(t, server.Up(), ErrNotOurs)
	require.ErrorIs(t, server.Promote(), ErrNotOurs)
	_, err = server.Standby(t.Context())
	require.ErrorIs(t, err, ErrNotOurs)
	require.NoError(t, server.Stop())
	require.NoError(t, open(t, given.DSN()).Ping())
}

func TestUnusableServerOfTheEnvironmentIsAnError(t *testing.T) {
	t.Setenv(Variable, "postgres://me:secret@127.0.0.1:1/db?sslmode=disable")
	_, err := Start(t.Context(), Options{})
	require.ErrorContains(t, err, "127.0.0.1:1")
	require.NotContains(t, err.Error(), "secret")

	t.Setenv(Variable, "postgres://127.0.0.1:port/db")
	_, err = Start(t.Context(), Options{})
	require.ErrorContains(t, err, Variable)
}

func TestStartEndsWithItsContext(t *testing.T) {
	t.Parallel()
	dir := parentFolder(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Start(ctx, Options{Private: true, Dir: dir})
	require.ErrorIs(t, err, context.Canceled)
	requireEmpty(t, dir)
}

// beVictim never returns.
func beVictim() {
	server, err := Start(context.Background(), Options{Private: true, Dir: os.Getenv(victimVariable)})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(server.cluster.Folder)
	select {}
}

func startPrivate(t *testing.T, options Options) *Server {
	t.Helper()
	options.Private = true
	server, err := Start(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	return server
}

// parentFolder is like t.TempDir, but accessible to the user who runs the server in place of root.
func parentFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "postgrestest-*")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o777))
	return dir
}

func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func execute(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), statement)
	require.NoError(t, err)
}

func query[T any](t *testing.T, db *sql.DB, query string, args ...any) T {
	t.Helper()
	var value T
	require.NoError(t, db.QueryRowContext(t.Context(), query, args...).Scan(&value))
	return value
}

func tables(t *testing.T, db *sql.DB) int {
	t.Helper()
	return query[int](t, db, "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'")
}
