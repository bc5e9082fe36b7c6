package waybillpgx

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

// idleTime is how long a connection may be idle before it is closed.
const idleTime = time.Minute

// errPooler refuses a session that a pooler may move from one process of the server to another.
var errPooler = fmt.Errorf("%w: the pool's address leads through a pooler; set Listen to an address of the server itself", store.ErrNoPresence)

// sessions opens connections as a pool does, outside of it.
type sessions struct{ as *pgxpool.Config }

var _ postgres.Sessions = sessions{}

// Open returns a handle for connections that no pooler is in between: a pooler has its own number for a session.
func (s sessions) Open() *sql.DB {
	return s.open(func(ctx context.Context, conn *pgx.Conn) error {
		var process uint32
		err := conn.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&process)
		if err == nil && process != conn.PgConn().PID() {
			err = errPooler
		}
		return err
	})
}

// open returns a handle for connections of which each must pass a check, without a limit.
func (s sessions) open(check func(context.Context, *pgx.Conn) error) *sql.DB {
	config := s.as.ConnConfig.Copy()
	config.OnPgError = leaving(config.OnPgError)
	options := []stdlib.OptionOpenDB{stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) (err error) {
		if s.as.AfterConnect != nil {
			err = s.as.AfterConnect(ctx, conn)
		}
		if err == nil && check != nil {
			err = check(ctx, conn)
		}
		if err != nil {
			_ = conn.Close(ctx) // database/sql would leave it open
		}
		return err
	})}
	if s.as.BeforeConnect != nil {
		options = append(options, stdlib.OptionBeforeConnect(func(ctx context.Context, c *pgx.ConnConfig) error {
			*c = *c.Copy() // as a pool does: this copy shares maps
			return s.as.BeforeConnect(ctx, c)
		}))
	}
	db := stdlib.OpenDB(*config, options...)
	db.SetConnMaxLifetime(s.as.MaxConnLifetime)
	db.SetConnMaxIdleTime(idleTime)
	return db
}

// readOnly is the code of the error with which a server refuses to write.
const readOnly = "25006"

// leaving ends the connections to a server that turns out to be read-only, such as a primary that is one no
// more: the next ones may lead to another server.
func leaving(then pgconn.PgErrorHandler) pgconn.PgErrorHandler {
	return func(c *pgconn.PgConn, err *pgconn.PgError) bool {
		return err.Code != readOnly && (then == nil || then(c, err))
	}
}

// Await implements [postgres.Sessions].
func (s sessions) Await(ctx context.Context, conn *sql.Conn) (payload string, err error) {
	err = conn.Raw(func(c any) error {
		n, err := c.(*stdlib.Conn).Conn().WaitForNotification(ctx)
		if err == nil {
			payload = n.Payload
		}
		return err
	})
	return payload, err
}
