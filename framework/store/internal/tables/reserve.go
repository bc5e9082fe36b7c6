package tables

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
)

// reservation is a pool of connections that are taken out of another pool and kept, for statements
// that must not wait for what an application does with the other pool.
type reservation struct {
	mu    sync.Mutex
	users int // of the reservation; the last one ends it
}

// Own returns the pool for the engine's statements about leases, checkpoints and parked deliveries:
// the reserved connections, if any, otherwise the application's.
func (r *Runner) Own() *sql.DB {
	if reserved := r.reserved.Load(); reserved != nil {
		return reserved
	}
	return r.DB
}

// MaxConnections returns how many connections the pool may open; see store.Reserver.
func (t *Tables) MaxConnections() int { return t.run.DB.Stats().MaxOpenConnections }

// Reserve takes connections out of the pool; see store.Reserver.
func (t *Tables) Reserve(ctx context.Context, n int) (release func(), err error) {
	r := &t.reserved
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users == 0 {
		if t.MaxConnections() == 0 {
			if err := fill(ctx, t.run.DB, n+2); err != nil {
				return nil, t.run.Failed(err, "see whether %d connections can be reserved", n)
			}
		}
		pool := sql.OpenDB(borrower{t.run.DB})
		pool.SetMaxOpenConns(n)
		pool.SetMaxIdleConns(n)
		if err := fill(ctx, pool, n); err != nil {
			return nil, t.run.Failed(errors.Join(err, pool.Close()), "reserve %d connections", n)
		}
		t.run.reserved.Store(pool)
	}
	r.users++
	return sync.OnceFunc(t.release), nil
}

// fill makes a pool connect, so that it need not do so while the other pool is in use.
func fill(ctx context.Context, pool *sql.DB, n int) error {
	for range n {
		conn, err := pool.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }() // only gives it back
	}
	return nil
}

func (t *Tables) release() {
	r := &t.reserved
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users--; r.users == 0 {
		_ = t.run.reserved.Swap(nil).Close() // gives the connections back, and writes nothing
	}
}

// borrower is a connector whose connections come from another pool.
type borrower struct{ from *sql.DB }

// Driver returns the other pool's driver.
func (b borrower) Driver() driver.Driver { return b.from.Driver() }

// Connect takes a connection out of the other pool. The driver's connection is used outside of Raw,
// which is normally forbidden because others may use it: here no one else can use it until Close
// gives it back.
func (b borrower) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := b.from.Conn(ctx)
	if err != nil {
		return nil, err
	}
	borrowed := &borrowed{conn: conn}
	err = conn.Raw(func(of any) (err error) {
		borrowed.full, err = asFull(of)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return borrowed, nil
}

// full is what every current driver implements. Other interfaces are checked at each use.
type full interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

func asFull(conn any) (full, error) {
	if c, ok := conn.(full); ok {
		return c, nil
	}
	return nil, fmt.Errorf("connections of the driver cannot be reserved: %T lacks interfaces that database/sql expects", conn)
}

// borrowed is a connection of another pool.
type borrowed struct {
	full
	conn   *sql.Conn
	broken bool
}

var (
	_ driver.NamedValueChecker = (*borrowed)(nil)
	_ driver.Pinger            = (*borrowed)(nil)
	_ driver.SessionResetter   = (*borrowed)(nil)
	_ driver.Validator         = (*borrowed)(nil)
)

// met takes note of a connection that the driver gives up.
func (b *borrowed) met(err error) error {
	b.broken = b.broken || errors.Is(err, driver.ErrBadConn)
	return err
}

func (b *borrowed) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	tx, err := b.full.BeginTx(ctx, options)
	return tx, b.met(err)
}

func (b *borrowed) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := b.full.PrepareContext(ctx, query)
	return stmt, b.met(err)
}

func (b *borrowed) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	result, err := b.full.ExecContext(ctx, query, args)
	return result, b.met(err)
}

func (b *borrowed) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := b.full.QueryContext(ctx, query, args)
	return rows, b.met(err)
}

// CheckNamedValue implements driver.NamedValueChecker.
func (b *borrowed) CheckNamedValue(v *driver.NamedValue) error {
	if c, ok := b.full.(driver.NamedValueChecker); ok {
		return c.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// Ping implements driver.Pinger.
func (b *borrowed) Ping(ctx context.Context) error {
	if c, ok := b.full.(driver.Pinger); ok {
		return b.met(c.Ping(ctx))
	}
	return nil
}

// ResetSession implements driver.SessionResetter.
func (b *borrowed) ResetSession(ctx context.Context) error {
	if c, ok := b.full.(driver.SessionResetter); ok {
		return b.met(c.ResetSession(ctx))
	}
	return nil
}

// IsValid implements driver.Validator.
func (b *borrowed) IsValid() bool {
	c, ok := b.full.(driver.Validator)
	return !b.broken && (!ok || c.IsValid())
}

// Close gives the connection back; the other pool closes a broken one.
func (b *borrowed) Close() error {
	if !b.IsValid() {
		_ = b.conn.Raw(func(any) error { return driver.ErrBadConn })
		return nil
	}
	return b.conn.Close()
}
