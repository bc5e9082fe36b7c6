package session

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

// OpenDB opens a database; see mysql.OpenDB.
func OpenDB(dsn string, permit store.Permit) (*sql.DB, error) {
	config, err := ParseDSN(dsn)
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

// Session is a connection that knows the life of its server. It cannot outlive that life.
type Session struct {
	driverSession
	Life    string
	release func()
}

// Close returns the permit. database/sql calls it once.
func (s *Session) Close() error {
	defer s.release()
	return s.driverSession.Close()
}

// Connect opens a session.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	var s *Session
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

func (c *connector) connect(ctx context.Context) (*Session, error) {
	made, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	s := &Session{}
	var ok bool
	if s.driverSession, ok = made.(driverSession); !ok {
		return nil, errors.Join(fmt.Errorf("%T lacks interfaces of database/sql", made), made.Close())
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, made.Close())
	}
	return s, nil
}

func (s *Session) prepare(ctx context.Context) error {
	for _, statement := range []string{settle, `SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE`} {
		if _, err := s.ExecContext(ctx, statement, nil); err != nil {
			return err
		}
	}
	for _, family := range Families {
		_, err := s.ExecContext(ctx, family.NoteLife, nil)
		if family.foreign(err) {
			continue
		}
		if err == nil {
			s.Life, err = s.text(ctx, `SELECT @waybill_life`)
		}
		return err
	}
	return ErrNoLife
}

// text returns the single value of a query.
func (s *Session) text(ctx context.Context, query string) (string, error) {
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
		return "", errors.Join(ErrNoLife, rows.Close())
	}
	return string(text), rows.Close()
}
