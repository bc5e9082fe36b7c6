package database

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"regexp"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

// Pools opens the outboxes of many databases within one number of connections. Those with one address have
// one pool, also schemas of one PostgreSQL. It is safe for concurrent use.
type Pools struct {
	permits *semaphore.Weighted

	mu    sync.Mutex
	pools map[string]*pool
}

// pool is the handle of one address.
type pool struct {
	db    *sql.DB
	users int
}

const (
	// keptIdle is how many idle connections a pool keeps while there are permits.
	keptIdle = 4
	// evictPause is between two tries to get a permit while all are in use.
	evictPause = 5 * time.Millisecond
)

// NewPools returns pools of so many connections together.
func NewPools(connections int) *Pools {
	return &Pools{permits: semaphore.NewWeighted(int64(connections)), pools: make(map[string]*pool)}
}

// Store opens the outbox of a configuration. release is called after its last use.
func (p *Pools) Store(ctx context.Context, c config.Tables) (s Store, release func(), err error) {
	d := dialectOf(c)
	address := c.Database.DSN()
	if own, ok := d.(postgresDialect); ok {
		address, own.schema = splitSchema(address)
		d = own
	}
	if c.Database.Dialect() == config.SQLite { // a file has no connections that would have to be bounded
		db, err := d.connect(address, false)
		if err != nil {
			return nil, nil, err
		}
		return p.open(ctx, c, d, db, func() { _ = db.Close() })
	}
	db, err := p.take(c.Database.Dialect(), address)
	if err != nil {
		return nil, nil, err
	}
	return p.open(ctx, c, d, db, sync.OnceFunc(func() { p.giveBack(address) }))
}

func (p *Pools) open(ctx context.Context, c config.Tables, d dialect, db *sql.DB, release func()) (Store, func(), error) {
	s, err := d.open(ctx, db, reading{logger: c.Logger})
	if err != nil {
		release()
		return nil, nil, err
	}
	return s, release, nil
}

// take returns the pool of an address, and makes it if there is none.
func (p *Pools) take(kind config.Dialect, address string) (*sql.DB, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.pools[address]; known != nil {
		known.users++
		return known.db, nil
	}
	open := postgres.OpenDBWithin
	if kind == config.MySQL {
		open = mysql.OpenDBWithin
	}
	db, err := open(address, p.permit)
	if err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(keptIdle)
	db.SetConnMaxIdleTime(maxIdleTime)
	p.pools[address] = &pool{db: db, users: 1}
	return db, nil
}

func (p *Pools) giveBack(address string) {
	p.mu.Lock()
	its := p.pools[address]
	its.users--
	if its.users > 0 {
		its = nil
	} else {
		delete(p.pools, address)
	}
	p.mu.Unlock()
	if its != nil {
		_ = its.db.Close()
	}
}

// permit is a [store.Permit]. If none is free, idle connections of some pool are closed.
func (p *Pools) permit(ctx context.Context) (release func(), err error) {
	for !p.permits.TryAcquire(1) {
		p.evict()
		waiting, cancel := context.WithTimeout(ctx, evictPause)
		err := p.permits.Acquire(waiting, 1)
		cancel()
		switch {
		case err == nil:
			return p.release, nil
		case ctx.Err() != nil:
			return nil, errors.Join(errNoPermit, ctx.Err())
		}
	}
	return p.release, nil
}

var errNoPermit = errors.New("all of fleet.connections are in use")

func (p *Pools) release() { p.permits.Release(1) }

// evict closes the idle connections of an arbitrary pool.
func (p *Pools) evict() {
	p.mu.Lock()
	var idle *sql.DB
	for _, its := range p.pools {
		if its.db.Stats().Idle > 0 {
			idle = its.db
			break
		}
	}
	p.mu.Unlock()
	if idle != nil {
		idle.SetMaxIdleConns(0)
		idle.SetMaxIdleConns(keptIdle)
	}
}

// plainSchema is a search path of one schema.
var plainSchema = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_$]*$`)

// splitSchema takes the schema out of an address, so that schemas of one database have one address.
func splitSchema(address string) (rest, schema string) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" {
		return address, ""
	}
	query := u.Query()
	schema = query.Get("search_path")
	if !plainSchema.MatchString(schema) {
		return address, ""
	}
	query.Del("search_path")
	u.RawQuery = query.Encode()
	return u.String(), schema
}
