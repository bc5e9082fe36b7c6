package mysqltest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/framework/internal/testserver"
)

// shared is the server of all tests of this process.
var shared = testserver.Shared[*Server]{Start: func(ctx context.Context) (*Server, error) { return Start(ctx, Options{}) }}

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
	server, err := shared.Get()
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
func Main(m *testing.M) { shared.Main(m) }

// Stop stops the shared server if a test has started it. It is for a TestMain that does more than Main.
func Stop() error { return shared.Stop() }

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
