package postgres

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres/internal/catalog"
)

const (
	// connectTime bounds connecting to one host, including authentication, unless
	// connect_timeout is set.
	connectTime = 10 * time.Second
	// cancelTime is how long a session may take to end a statement whose context is done.
	// After that the connection is closed.
	cancelTime = time.Second
	// deadTime is how long the other machine may be silent before the operating system closes
	// a connection: it acknowledges nothing, or does not answer keepalive probes.
	deadTime = 30 * time.Second
)

// connector opens sessions whose statements end with their contexts. lib/pq itself only asks the
// server, over another connection, to cancel a statement, and then waits for the answer: forever,
// if the network drops everything or the server hangs.
//
// Silence alone has no deadline. A session may wait for its answer as long as its context allows:
// a migration may take long.
type connector struct {
	address string
	config  pq.Config
	// era increases when a server turns out to be read-only. Sessions of an earlier era are not
	// used again: they lead to that server too, or to one that the address no longer means.
	era atomic.Int64
	// unprepared means that sessions prepare nothing: see prepared.
	unprepared atomic.Bool
	// permit, if set, bounds the sessions of several handles together.
	permit store.Permit
}

var _ driver.Connector = (*connector)(nil)

// newConnector returns a connector for a DSN of lib/pq.
func newConnector(dsn string) (*connector, error) {
	config, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	if config.ConnectTimeout <= 0 {
		config.ConnectTimeout = connectTime
	}
	return &connector{address: dsn, config: config}, nil
}

// Driver returns lib/pq's driver, with the address.
func (c *connector) Driver() driver.Driver { return &addressed{address: c.address} }

// addressed is lib/pq's driver in a handle that OpenDB has opened.
type addressed struct {
	pq.Driver
	address string
}

// AddressOf returns the address of a handle that [OpenDB] has opened, with its password; "" for another
// handle. With it an address is given once:
//
//	db, err := postgres.OpenDB(address)
//	o := waybill.Postgres(db, waybill.PostgresConfig{Listen: postgres.AddressOf(db)})
func AddressOf(db *sql.DB) string {
	if d, ours := db.Driver().(*addressed); ours {
		return d.address
	}
	return ""
}

// Connect opens a session within ctx, including authentication.
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
	era := c.era.Load()
	w := &wire{timeout: c.config.ConnectTimeout}
	dialing, err := pq.NewConnectorConfig(c.config)
	if err != nil {
		return nil, err
	}
	dialing.Dialer(w)
	defer context.AfterFunc(ctx, w.giveUp)()
	made, err := dialing.Connect(ctx)
	if ctx.Err() != nil {
		if err == nil {
			_ = made.Close()
		}
		return nil, fmt.Errorf("connect to PostgreSQL: %w", context.Cause(ctx))
	}
	if err != nil {
		return nil, withAdvice(err)
	}
	s, ok := made.(pqSession)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T lacks interfaces that database/sql expects", made), made.Close())
	}
	w.connected()
	return &session{pqSession: s, wire: w, connector: c, era: era, names: make(map[string]string)}, nil
}

// pqSession is what a connection of lib/pq offers to database/sql.
type pqSession interface {
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

// session is a connection of lib/pq. database/sql does not keep it after it was interrupted, or
// if its server turns out to be read-only.
type session struct {
	pqSession
	wire      *wire
	connector *connector
	era       int64
	reading   bool              // the transaction is read-only
	names     map[string]string // of prepared statements, by their text
	release   func()
}

// Close releases the permit. database/sql calls it once.
func (s *session) Close() error {
	defer s.release()
	return s.pqSession.Close()
}

// BeginTx begins a transaction; lib/pq itself does not interrupt that.
func (s *session) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	defer context.AfterFunc(ctx, s.wire.interrupt)()
	s.reading = options.ReadOnly
	tx, err := s.pqSession.BeginTx(ctx, options)
	if e := pq.As(err); e != nil && e.Code == "0A000" && !options.ReadOnly {
		err = fmt.Errorf("%w: %w", errReadOnly, err) // the answer of a standby to BEGIN READ WRITE
	}
	return tx, s.met(err)
}

func (s *session) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := s.pqSession.QueryContext(ctx, query, args)
	return rows, s.met(err)
}

func (s *session) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	result, err := s.pqSession.ExecContext(ctx, query, args)
	return result, s.met(err)
}

// met handles an error that is about the server rather than the statement. A session that the server
// ended because it was idle (idle_session_timeout) has not run the statement: the pool uses another one.
func (s *session) met(err error) error {
	if catalog.Refused(err, idleSession) {
		return driver.ErrBadConn
	}
	if err != nil && !s.reading && isReadOnly(err) {
		s.connector.era.CompareAndSwap(s.era, s.era+1)
	}
	return err
}

// ResetSession is called before the pool uses a session again.
func (s *session) ResetSession(ctx context.Context) error {
	if !s.fresh() || s.wire.ended() {
		return driver.ErrBadConn
	}
	s.reading = false
	return s.pqSession.ResetSession(ctx)
}

// IsValid is called when a session returns to the pool.
func (s *session) IsValid() bool { return s.fresh() && s.pqSession.IsValid() }

func (s *session) fresh() bool {
	return !s.wire.interrupted.Load() && s.era == s.connector.era.Load()
}

// wire is a session's network connection, and the dialer that makes it. lib/pq uses the same
// dialer again for the connection with a cancel request: so the wire learns that a context is
// done.
type wire struct {
	timeout     time.Duration
	interrupted atomic.Bool

	mu     sync.Mutex
	conn   net.Conn
	given  bool // it was given up
	signed bool // connecting has ended
	bound  *time.Timer
}

var (
	_ pq.Dialer        = (*wire)(nil)
	_ pq.DialerContext = (*wire)(nil)
)

func (w *wire) Dial(network, address string) (net.Conn, error) {
	return w.DialTimeout(network, address, w.timeout)
}

func (w *wire) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return w.DialContext(ctx, network, address)
}

// DialContext connects. The timeout goes on until the first statement may run.
func (w *wire) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if w.isSigned() {
		return w.dialToCancel(ctx, network, address)
	}
	c, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bound != nil {
		w.bound.Stop() // of the previous host
	}
	w.conn = c
	w.bound = time.AfterFunc(w.timeout, w.giveUp)
	if w.given {
		_ = c.Close()
	}
	return &wireConn{Conn: c, wire: w, buffer: bufio.NewReaderSize(c, readBytes)}, nil
}

// dialToCancel connects for a request to cancel the statement. It waits at most cancelTime for
// the connection, and for the end of the statement.
func (w *wire) dialToCancel(ctx context.Context, network, address string) (net.Conn, error) {
	w.interrupt()
	ctx, cancel := context.WithTimeout(ctx, cancelTime)
	defer cancel()
	c, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	time.AfterFunc(cancelTime, func() { _ = c.Close() })
	return c, nil
}

// connected ends the timeout for connecting.
func (w *wire) connected() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.signed = true
	w.bound.Stop()
}

func (w *wire) isSigned() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.signed
}

// interrupt lets the session end within cancelTime. It is not used again.
func (w *wire) interrupt() {
	w.interrupted.Store(true)
	time.AfterFunc(cancelTime, w.giveUp)
}

// ended reports whether the server has closed the idle connection.
func (w *wire) ended() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return hasEnded(w.conn)
}

// giveUp closes the connection, so that nothing waits for it any more.
func (w *wire) giveUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.given = true
	if w.conn != nil {
		_ = w.conn.Close()
	}
}

// explain returns why a read or a write failed, with the same text each time: the errors of
// package net contain a local port.
func (w *wire) explain(err error) error {
	var failed *net.OpError
	if !errors.As(err, &failed) {
		return err
	}
	plain := *failed // lib/pq recognizes a lost connection by this type
	plain.Source = nil
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.given {
		plain.Err = errSilent
	}
	return &plain
}

// wireConn is the connection as lib/pq uses it.
type wireConn struct {
	net.Conn
	wire   *wire
	buffer *bufio.Reader
}

// readBytes is how much one system call reads: lib/pq asks for 4 KiB, which is a dozen rows.
const readBytes = 64 << 10

func (c *wireConn) Read(b []byte) (int, error) {
	n, err := c.buffer.Read(b)
	if err != nil {
		err = c.wire.explain(err)
	}
	return n, err
}

func (c *wireConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil {
		err = c.wire.explain(err)
	}
	return n, err
}

// dial makes a connection that the operating system closes when the other machine is silent for
// deadTime. This does not cover a server that hangs on a machine that answers, or behind a proxy
// that answers.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: deadTime / 2, Interval: deadTime / 6, Count: 3},
		Control:         limitUnacknowledged,
	}
	return dialer.DialContext(ctx, network, address)
}
