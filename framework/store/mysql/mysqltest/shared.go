package mysqltest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// startTimeout limits the start of the shared server. It includes time to download binaries.
const startTimeout = 3 * time.Minute

// shared is the server of all tests of this process. It keeps the error of a failed start, since another
// start would fail too.
var shared struct {
	mu     sync.Mutex
	server *Server
	err    error
}

// DSN creates an empty database for the test, which is dropped when the test ends, and returns its address
// in the form of the driver. The tests of a process share a server, which the first of them starts. If no
// server is available, the test is skipped, or fails if the environment asks for one.
func DSN(t testing.TB) string {
	t.Helper()
	server, name := database(t)
	return server.DSN(name)
}

// URL is like DSN, but returns the address in the form of Waybill's configuration.
func URL(t testing.TB) string {
	t.Helper()
	server, name := database(t)
	return server.URL(name)
}

// Shared returns the server of all tests of this process; see DSN.
func Shared(t testing.TB) *Server {
	t.Helper()
	server, err := sharedServer()
	if errors.Is(err, ErrNoServer) && os.Getenv(Variable) == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return server
}

func database(t testing.TB) (*Server, string) {
	t.Helper()
	server := Shared(t)
	name, drop, err := server.CreateDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := drop(); err != nil {
			t.Error(err)
		}
	})
	return server, name
}

// Main runs a package's tests, stops the shared server and ends the process:
//
//	func TestMain(m *testing.M) { mysqltest.Main(m) }
func Main(m *testing.M) {
	code := m.Run()
	if err := Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// Stop stops the shared server if a test has started it. It is for a TestMain that does more than Main.
func Stop() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		return nil
	}
	server := shared.server
	shared.server = nil
	if err := server.Stop(); err != nil {
		return fmt.Errorf("mysqltest: stop the shared server: %w", err)
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

// User creates a user with privileges only on the test's database, to which db belongs. The password is the
// name. The user is dropped when the test ends.
func User(t testing.TB, db *sql.DB, privileges string) (name string) {
	t.Helper()
	name = "u" + strings.ToLower(rand.Text())
	var database string
	err := db.QueryRowContext(t.Context(), `SELECT DATABASE()`).Scan(&database)
	for _, statement := range []string{
		`CREATE USER '` + name + `'@'%' IDENTIFIED BY '` + name + `'`,
		`GRANT ` + privileges + ` ON ` + database + `.* TO '` + name + `'@'%'`,
	} {
		if err == nil {
			_, err = db.ExecContext(t.Context(), statement)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Shared(t).Execute(context.Background(), `DROP USER '`+name+`'`) })
	return name
}
