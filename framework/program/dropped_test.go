package program

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
)

// droppable is a database that drop removes with all its tables and makes again, empty.
type droppable struct {
	outbox
	drop func(t *testing.T)
}

var droppables = map[string]func(t *testing.T) droppable{
	"postgres": func(t *testing.T) droppable {
		o := databases["postgres"](t)
		server, err := url.Parse(o.address)
		require.NoError(t, err)
		name := strings.TrimPrefix(server.Path, "/")
		server.Path = "/postgres"
		admin, err := sql.Open("postgres", server.String())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, admin.Close()) })
		return droppable{o, func(t *testing.T) {
			run(t, admin, "DROP DATABASE "+name+" WITH (FORCE)", "CREATE DATABASE "+name)
		}}
	},
	"mysql": func(t *testing.T) droppable {
		address := mysqltest.URL(t)
		db, err := mysql.OpenDB(address)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		var name string
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&name))
		db.SetMaxIdleConns(0) // a connection has lost its database
		return droppable{outbox{address, db}, func(t *testing.T) {
			c, err := db.Conn(t.Context())
			require.NoError(t, err)
			defer c.Close()
			run(t, c, "DROP DATABASE "+name, "CREATE DATABASE "+name)
		}}
	},
	"sqlite": func(t *testing.T) droppable {
		o := databases["sqlite"](t)
		return droppable{o, func(t *testing.T) {
			var drops string
			require.NoError(t, o.db.QueryRowContext(t.Context(),
				`SELECT group_concat('DROP TABLE ' || name, ';') FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`).Scan(&drops))
			run(t, o.db, drops)
		}}
	},
}

func run(t *testing.T, db interface {
	ExecContext(ctx context.Context, statement string, arguments ...any) (sql.Result, error)
}, statements ...string) {
	t.Helper()
	for _, s := range statements {
		_, err := db.ExecContext(t.Context(), s)
		require.NoError(t, err, s)
	}
}

func TestForwardIsNotReadyWithoutItsTablesAndGoesOnWhenTheyAreBack(t *testing.T) {
	t.Parallel()
	for name, open := range droppables {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := open(t)
			o.migrate(t)
			partner := newReceiver(t)
			config := o.config(t, "1s", partner.URL)
			address := observed(t, config)
			f := start(t, "forward", "-c", config)
			publish := func(n int) {
				run(t, o.db, fmt.Sprintf(`INSERT INTO outbox (type, payload) VALUES ('order.placed', '{"n":%d}')`, n))
			}
			publish(1)
			partner.await(t, 1)
			awaitPage(t, address, "/readyz", http.StatusOK, "ready")

			o.drop(t)
			f.awaitLine(t, "looking at the log failed")
			awaitPage(t, address, "/readyz", http.StatusServiceUnavailable, "not ready: database: no round trip for")

			o.migrate(t)
			publish(2) // at the offset of the first one
			f.awaitLine(t, "the sink is new to this outbox")
			partner.await(t, 2)
			awaitPage(t, address, "/readyz", http.StatusOK, "ready")
		})
	}
}
