package mysql

import (
	"database/sql"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/session"
)

// Address has the parts of a DSN.
type Address struct {
	// Host is host:port, or the path of a socket.
	User, Host, Database string
}

// ParseAddress parses a DSN as OpenDB does. It does not connect. Its error does not repeat the DSN.
func ParseAddress(dsn string) (Address, error) {
	config, err := session.ParseDSN(dsn)
	if err != nil {
		return Address{}, err
	}
	return Address{User: config.User, Host: config.Addr, Database: config.DBName}, nil
}

// OpenDB opens a database with go-sql-driver. dsn is a URL such as
// mysql://user:password@host:3306/name?tls=true, or the driver's own form. It does not connect yet.
// The handle has these settings:
//
//   - sessions are in READ COMMITTED, so that parking for one lane does not delay other lanes;
//   - sessions have their own value of each variable on which the meaning of statements depends, such as
//     autocommit, sql_mode and sql_select_limit, whatever the server's global value is;
//   - times are time.Time in UTC, and arguments travel with their statements in one round trip;
//   - connecting times out after 10 s, unless dsn has a timeout;
//   - the server ends a session that sends nothing for 5 min, unless its wait_timeout is shorter or
//     dsn has one: a client that vanished in a transaction would otherwise keep its locks for hours;
//   - each session knows the identity and the start of its server, see Store;
//   - it keeps up to 10 idle connections instead of 2, each for up to a minute.
//
// The application may use the same handle for its own tables.
func OpenDB(dsn string) (*sql.DB, error) { return session.OpenDB(dsn, nil) }

// OpenDBWithin is OpenDB for several handles that share a number of connections: each connection takes
// a permit.
func OpenDBWithin(dsn string, permit store.Permit) (*sql.DB, error) {
	return session.OpenDB(dsn, permit)
}
