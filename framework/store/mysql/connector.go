package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/waybill-go/waybill/framework/store"
)

// idleConnections is how many idle connections a handle keeps. A forwarder probes, reads and writes
// checkpoints at the same time: with the two of package sql it would keep opening new connections.
const idleConnections = 10

const (
	// waitTime is how long the server waits for the next statement of a session.
	waitTime = 5 * time.Minute
	// idleTime is how long a handle keeps an idle connection. It is shorter than waitTime, so that the
	// server does not end it.
	idleTime = time.Minute
)

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
func OpenDB(dsn string) (*sql.DB, error) { return OpenDBWithin(dsn, nil) }

// OpenDBWithin is OpenDB for several handles that share a number of connections: each connection takes
// a permit.
func OpenDBWithin(dsn string, permit store.Permit) (*sql.DB, error) {
	config, err := parseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("the database's address %w", err)
	}
	c, err := mysql.NewConnector(config)
	if err != nil {
		return nil, errors.New("the database's address cannot be used") // without the error, which may contain a password
	}
	db := sql.OpenDB(&connector{c, permit})
	db.SetMaxIdleConns(idleConnections)
	db.SetConnMaxIdleTime(idleTime)
	return db, nil
}

// connector opens sessions that know their server.
type connector struct {
	driver.Connector
	permit store.Permit
}

// driverSession has all interfaces of database/sql that a connection of the driver implements.
type driverSession interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

// session is a connection that knows the life of its server. It cannot outlive that life.
type session struct {
	driverSession
	life    string
	release func()
}

// Close returns the permit. database/sql calls it once.
func (s *session) Close() error {
	defer s.release()
	return s.driverSession.Close()
}

// Connect opens a session.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	var s *session
	release, err := c.permit.Connect(ctx, func() (err error) {
		s, err = c.connect(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.release = release
	return s, nil
}

func (c *connector) connect(ctx context.Context) (*session, error) {
	made, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{}
	var ok bool
	if s.driverSession, ok = made.(driverSession); !ok {
		return nil, errors.Join(fmt.Errorf("%T lacks interfaces of database/sql", made), made.Close())
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, made.Close())
	}
	return s, nil
}

func (s *session) prepare(ctx context.Context) error {
	for _, statement := range []string{settle, `SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE`} {
		if _, err := s.ExecContext(ctx, statement, nil); err != nil {
			return err
		}
	}
	for _, family := range families {
		_, err := s.ExecContext(ctx, family.noteLife, nil)
		if family.foreign(err) {
			continue
		}
		if err == nil {
			s.life, err = s.text(ctx, `SELECT @waybill_life`)
		}
		return err
	}
	return errNoLife
}

// text returns the single value of a query.
func (s *session) text(ctx context.Context, query string) (string, error) {
	rows, err := s.QueryContext(ctx, query, nil)
	if err != nil {
		return "", err
	}
	row := make([]driver.Value, 1)
	if err := rows.Next(row); err != nil && !errors.Is(err, io.EOF) {
		return "", errors.Join(err, rows.Close())
	}
	text, _ := row[0].([]byte)
	if len(text) == 0 {
		return "", errors.Join(errNoLife, rows.Close())
	}
	return string(text), rows.Close()
}
