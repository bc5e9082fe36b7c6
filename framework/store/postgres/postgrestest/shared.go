package postgrestest

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/internal/testserver"
	"github.com/waybill-go/waybill/framework/store/postgres/internal/catalog"
)

// A machine with many tests may stall between two statements. Other programs keep their limits.
func init() {
	if testing.Testing() {
		catalog.IdleTime, catalog.TakenTime = time.Minute, time.Minute
	}
}

// shared is the server of all tests of this process.
var shared = testserver.Shared[*Server]{Start: func(ctx context.Context) (*Server, error) { return Start(ctx, Options{}) }}

// New returns an open, empty database for this test only. It is closed and dropped when the test
// ends. The tests of a process share the server, which the first of them starts. New may be called
// in parallel.
func New(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("postgrestest: close the database: %v", err)
		}
	})
	return db
}

// DSN returns the URL of an empty database, like that of New, for a test that connects by itself.
func DSN(t testing.TB) string {
	t.Helper()
	return copyOf(t, empty)
}

// copyOf returns the URL of a copy of a database, for this test only.
func copyOf(t testing.TB, template string) string {
	t.Helper()
	server, err := shared.Get()
	if err != nil {
		t.Fatal(err)
	}
	name, err := server.createDatabase(t.Context(), template)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.dropDatabase(name); err != nil {
			t.Error(err)
		}
	})
	return withDatabase(server.address, name)
}

// Main runs a package's tests, stops the shared server and ends the process:
//
//	func TestMain(m *testing.M) { postgrestest.Main(m) }
//
// It is for tests that need the server to end before the process does. Without Main, the server
// ends shortly after the process.
func Main(m *testing.M) { shared.Main(m) }

// Stop stops the shared server if a test has started it. It is for a TestMain that does more than
// Main.
func Stop() error { return shared.Stop() }
