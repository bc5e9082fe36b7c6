package postgrestest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// startTimeout bounds the start of the shared server, including fetching binaries.
const startTimeout = 3 * time.Minute

// shared is the server of all tests of this process. It keeps the error of a failed start, since
// another start would fail too.
var shared struct {
	mu     sync.Mutex
	server *Server
	err    error
}

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
	server, err := sharedServer()
	if err != nil {
		t.Fatal(err)
	}
	name, err := server.createDatabase(t.Context())
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
func Main(m *testing.M) {
	code := m.Run()
	if err := Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// Stop stops the shared server if a test has started it. It is for a TestMain that does more than
// Main.
func Stop() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		return nil
	}
	server := shared.server
	shared.server = nil
	if err := server.Stop(); err != nil {
		return fmt.Errorf("postgrestest: stop the shared server: %w", err)
	}
	return nil
}

func sharedServer() (*Server, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil && shared.err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		shared.server, shared.err = Start(ctx, Options{})
	}
	return shared.server, shared.err
}
