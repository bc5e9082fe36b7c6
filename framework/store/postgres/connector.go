package postgres

import (
	"bufio"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/store"
)

const (
	// connectTime bounds connecting to one host, sign-on included, unless
	// connect_timeout says otherwise.
	connectTime = 10 * time.Second
	// cancelTime is how long a session may take to end a statement whose context is
	// done. Then it is closed beneath the driver.
	cancelTime = time.Second
	// deadTime is how long the other side's machine may be silent before the
	// operating system gives a connection up: what was sent is not acknowledged, or
	// keepalive probes get no answer.
	deadTime = 30 * time.Second
)

// connector opens sessions that do not outlast their contexts. lib/pq only asks
// the server, over a new connection, to cancel a statement, and then waits for the
// answer as long as it takes: for ever, where the network swallows everything, or
// the server stands still.
//
// There is no deadline on silence. A session may wait as long for its answer as
// its context lets it: a migration takes its time.
type connector struct {
	config pq.Config
	// era is raised when a server turns out to be read-only. Sessions of an earlier
	// one are not used again: they lead to that server too, or to another that is no
	// longer what the address means.
	era atomic.Int64
	// slot, if set, gives a session its place among those of several handles.
	slot store.Slot
}

var _ driver.Connector = (*connector)(nil)

// newConnector takes a DSN as lib/pq does.
func newConnector(dsn string) (*connector, error) {
	config, err := pq.NewConfig(dsn)
	if err != nil {
		return nil, err
	}
	if config.ConnectTimeout <= 0 {
		config.ConnectTimeout = connectTime
	}
	return &connector{config: config}, nil
}

// Driver is lib/pq's.
func (c *connector) Driver() driver.Driver { return &pq.Driver{} }

// Connect opens a session within ctx, sign-on included.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	release, err := c.slot.Take(ctx)
	if err != nil {
		return nil, err
	}
	s, err := c.connect(ctx)
	if err != nil {
		release()
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
		return nil, err
	}
	s, ok := made.(pqSession)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T lacks what database/sql wants", made), made.Close())
	}
	w.connected()
	return &session{pqSession: s, wire: w, connector: c, era: era}, nil
}

// pqSession is all that a connection of lib/pq offers to database/sql.
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

// session is a connection of lib/pq that database/sql does not keep once it was
// interrupted, or leads to a server that takes no writes.
type session struct {
	pqSession
	wire      *wire
	connector *connector
	era       int64
	reading   bool // the transaction asked for no more than reading
	release   func()
}

// Close gives the slot back. database/sql calls it once.
func (s *session) Close() error {
	defer s.release()
	return s.pqSession.Close()
}

// BeginTx is not interrupted by lib/pq itself.
func (s *session) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	defer context.AfterFunc(ctx, s.wire.interrupt)()
	s.reading = options.ReadOnly
	tx, err := s.pqSession.BeginTx(ctx, options)
	if e := pq.As(err); e != nil && e.Code == "0A000" && !options.ReadOnly {
		err = fmt.Errorf("%w: %w", errReadOnly, err) // a standby's answer to BEGIN READ WRITE
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

// met takes note of an error that speaks of the server more than of the statement.
func (s *session) met(err error) error {
	if err != nil && !s.reading && isReadOnly(err) {
		s.connector.era.CompareAndSwap(s.era, s.era+1)
	}
	return err
}

// ResetSession is called before a session of the pool is used again.
func (s *session) ResetSession(ctx context.Context) error {
	if !s.fresh() {
		return driver.ErrBadConn
	}
	s.reading = false
	return s.pqSession.ResetSession(ctx)
}

// IsValid is called when a session goes back to the pool.
func (s *session) IsValid() bool { return s.fresh() && s.pqSession.IsValid() }

func (s *session) fresh() bool {
	return !s.wire.interrupted.Load() && s.era == s.connector.era.Load()
}

// wire is a session's network connection, and the dialer that makes it. lib/pq
// asks the same dialer again for the connection that carries a cancel request,
// which is how the wire learns that a context is done.
type wire struct {
	timeout     time.Duration
	interrupted atomic.Bool

	mu     sync.Mutex
	conn   net.Conn
	given  bool // given up
	signed bool // connecting is over
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

// DialContext connects. The timeout goes on behind it, until all that comes before
// the first statement is through.
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
		w.bound.Stop() // of the host before
	}
	w.conn = c
	w.bound = time.AfterFunc(w.timeout, w.giveUp)
	if w.given {
		_ = c.Close()
	}
	return &wireConn{Conn: c, wire: w, buffer: bufio.NewReaderSize(c, readBytes)}, nil
}

// dialToCancel connects to ask the server to end a statement. Neither that nor the
// statement's end is waited for longer than cancelTime.
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

// connected ends the time for connecting.
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

// interrupt leaves the session a moment to end what it does. It is not used again.
func (w *wire) interrupt() {
	w.interrupted.Store(true)
	time.AfterFunc(cancelTime, w.giveUp)
}

// giveUp ends whatever waits for the other side.
func (w *wire) giveUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.given = true
	if w.conn != nil {
		_ = w.conn.Close()
	}
}

// explain returns why a read or a write failed, in words that are the same at each
// try: those of package net name our own port.
func (w *wire) explain(err error) error {
	var failed *net.OpError
	if !errors.As(err, &failed) {
		return err
	}
	told := *failed // lib/pq knows by the type that the connection is lost
	told.Source = nil
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.given {
		told.Err = errSilent
	}
	return &told
}

// wireConn is what lib/pq reads and writes.
type wireConn struct {
	net.Conn
	wire   *wire
	buffer *bufio.Reader
}

// readBytes is how much one call of the operating system reads: lib/pq asks for 4 KiB,
// which is a dozen rows.
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

// dial makes a connection that the operating system gives up when the other
// side's machine is silent for deadTime. That says nothing of the server: it may be
// stopped on a machine that answers, or behind a proxy that does.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: deadTime / 2, Interval: deadTime / 6, Count: 3},
		Control:         limitUnacknowledged,
	}
	return dialer.DialContext(ctx, network, address)
}
