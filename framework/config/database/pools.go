package database

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"net/url"
	"regexp"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

// Pools opens the outboxes of many databases, which share a limited number of connections. Outboxes at the
// same address share a pool, and so do schemas of one PostgreSQL database. It is safe for concurrent use.
type Pools struct {
	permits *semaphore.Weighted
	// trials limits the attempts to connect to addresses at which the last attempt failed. Such attempts
	// may take long, and the other addresses need connections meanwhile.
	trials *semaphore.Weighted

	mu      sync.Mutex
	pools   map[string]*pool
	failed  map[string]time.Time // by address; a pool may end after each attempt
	waiting int                  // for a permit
	evicts  bool                 // idle connections are being closed
}

// pool is the handle of one address.
type pool struct {
	all     *Pools
	address string
	db      *sql.DB
	users   int
	trying  *semaphore.Weighted // one attempt at a time, if the last one failed
}

const (
	// keptIdle is how many idle connections a pool keeps while there are permits.
	keptIdle = 4
	// evictPause is the pause between closing idle connections while some wait for a permit.
	evictPause = 10 * time.Millisecond
	// remembered is how long an address that is not tried again counts as failed.
	remembered = time.Minute
)

// NewPools returns pools that share this number of connections.
func NewPools(connections int) *Pools {
	return &Pools{
		permits: semaphore.NewWeighted(int64(connections)), trials: semaphore.NewWeighted(max(1, int64(connections)/2)),
		pools: make(map[string]*pool), failed: make(map[string]time.Time),
	}
}

// Store opens the outbox of a configuration. Call release after its last use.
func (p *Pools) Store(ctx context.Context, c config.Tables) (s Store, release func(), err error) {
	d := dialectOf(c)
	address := c.Database.DSN()
	if own, ok := d.(postgresDialect); ok {
		address, own.schema = splitSchema(address)
		d = own
	}
	if c.Database.Dialect() == config.SQLite { // connections to a file are not limited
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
	s, err := d.open(ctx, db, nil)
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
	its := &pool{all: p, address: address, users: 1, trying: semaphore.NewWeighted(1)}
	var err error
	if its.db, err = open(address, its.connect); err != nil {
		return nil, err
	}
	its.db.SetMaxIdleConns(keptIdle)
	its.db.SetConnMaxIdleTime(maxIdleTime)
	p.pools[address] = its
	return its.db, nil
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

// connect is a [store.Permit].
func (its *pool) connect(ctx context.Context, connect func() error) (release func(), err error) {
	p := its.all
	if p.hasFailed(its.address) {
		for _, bound := range []*semaphore.Weighted{its.trying, p.trials} {
			if err := bound.Acquire(ctx, 1); err != nil {
				return nil, errors.Join(errNoPermit, err)
			}
			defer bound.Release(1)
		}
	}
	if err := p.permit(ctx); err != nil {
		return nil, errors.Join(errNoPermit, err)
	}
	err = connect()
	if p.note(its.address, err); err != nil {
		p.release()
		return nil, err
	}
	return p.release, nil
}

func (p *Pools) hasFailed(address string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, failed := p.failed[address]
	return failed
}

// note records the result of an attempt to connect.
func (p *Pools) note(address string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		delete(p.failed, address)
		return
	}
	maps.DeleteFunc(p.failed, func(_ string, at time.Time) bool { return time.Since(at) > remembered })
	p.failed[address] = time.Now()
}

var errNoPermit = errors.New("all of fleet.connections are in use")

// permit waits for a permit, in the order of the calls. Meanwhile idle connections are closed.
func (p *Pools) permit(ctx context.Context) error {
	if p.permits.TryAcquire(1) {
		return nil
	}
	p.mu.Lock()
	p.waiting++
	if !p.evicts {
		p.evicts = true
		go p.makeRoom()
	}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.waiting--
		p.mu.Unlock()
	}()
	return p.permits.Acquire(ctx, 1)
}

func (p *Pools) release() { p.permits.Release(1) }

// makeRoom closes idle connections until nothing waits for a permit.
func (p *Pools) makeRoom() {
	for {
		p.mu.Lock()
		if p.evicts = p.waiting > 0; !p.evicts {
			p.mu.Unlock()
			return
		}
		idle := p.idle(p.waiting)
		p.mu.Unlock()
		for _, db := range idle {
			db.SetMaxIdleConns(0)
			db.SetMaxIdleConns(keptIdle)
		}
		time.Sleep(evictPause)
	}
}

// idle returns up to n arbitrary handles with idle connections. The mutex is held.
func (p *Pools) idle(n int) (found []*sql.DB) {
	for _, its := range p.pools {
		if len(found) == n {
			break
		}
		if its.db.Stats().Idle > 0 {
			found = append(found, its.db)
		}
	}
	return found
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
