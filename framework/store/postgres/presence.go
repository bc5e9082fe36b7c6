package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
	"github.com/waybill-go/waybill/framework/store/postgres/internal/catalog"
)

var _ store.Presences = (*Store)(nil)

// presence is a session with an advisory lock. Only a direct connection keeps one, so it uses the address at
// which the store listens.
type presence struct {
	tables.Presence
	pool    *sql.DB // of the session alone
	session *sql.Conn
	pid     int
	life    string
	answer  string // asks the session
	gone    string // asks for the forwarders that are gone
}

// OpenPresence implements store.Presences. A store that is not configured to listen has no presence.
func (s *Store) OpenPresence(ctx context.Context, owner string) (_ store.Presence, err error) {
	if !s.listening.on() {
		return nil, fmt.Errorf("%w: the store does not listen; set Listen, or forwarder.listen", store.ErrNoPresence)
	}
	p, err := s.presenceSession(ctx)
	if err != nil {
		return nil, fmt.Errorf("open a session that shows that this process is alive: %w", err)
	}
	key := int(rand.Int32())
	if err := p.lock(ctx, s.lockClass(), key, s.sql.server); err != nil {
		return nil, errors.Join(fmt.Errorf("take the lock that shows that this process is alive: %w", err), p.Close())
	}
	p.Presence = s.NewPresence(owner, p.life+"/"+strconv.Itoa(key), tables.SQL(s.sql.server+` = ?`, p.life))
	p.answer, p.gone = `SELECT pg_backend_pid(), `+s.sql.server, s.goneSQL(owner)
	return p, nil
}

// presenceSession connects like a listener: a server that is silent for too long fails the session.
func (s *Store) presenceSession(ctx context.Context) (*presence, error) {
	pool, err := s.listening.open(ctx)
	if err != nil {
		return nil, err
	}
	session, err := pool.Conn(ctx)
	if err == nil {
		_, err = session.ExecContext(ctx, `SET lock_timeout = '100ms'`)
	}
	if err != nil {
		return nil, errors.Join(withAdvice(err), pool.Close())
	}
	return &presence{pool: pool, session: session}, nil
}

// open returns a handle for direct sessions. Those of lib/pq end with ctx.
func (l listening) open(ctx context.Context) (*sql.DB, error) {
	if l.sessions != nil {
		return l.sessions.Open(), nil
	}
	dsn, err := l.address(ctx)
	if err != nil {
		return nil, err
	}
	connector, err := pq.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	connector.Dialer(aliveDialer{ctx: ctx, dial: l.dial, silence: l.silence})
	return sql.OpenDB(connector), nil
}

// lockClass keeps the locks of this log apart from others in the database. If an application takes the same
// lock nevertheless, a process that is gone seems to be alive until its leases run out.
func (s *Store) lockClass() int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte("waybill presence " + s.names.Log())) // never fails
	return int32(h.Sum32())                                     //nolint:gosec // any 32 bits will do
}

// lock takes the lock. A transaction pooler runs the second statement in another session, or has released the
// lock before it.
func (p *presence) lock(ctx context.Context, class int32, key int, server string) error {
	var taken, standby, holds bool
	err := p.session.QueryRowContext(ctx, fmt.Sprintf(`SELECT pg_try_advisory_lock(%d, %d), pg_backend_pid(), %s, pg_is_in_recovery()`, class, key, server)).
		Scan(&taken, &p.pid, &p.life, &standby)
	if err != nil {
		return err
	}
	err = p.session.QueryRowContext(ctx, fmt.Sprintf(`SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2
		AND pid = pg_backend_pid() AND pid = %d AND classid::bigint = %d AND objid::bigint = %d)`, p.pid, uint32(class), key)).Scan(&holds)
	switch {
	case err != nil:
		return err
	case !taken || standby:
		return fmt.Errorf("lock taken: %t, standby: %t", taken, standby)
	case !holds:
		return fmt.Errorf("%w: the address leads through a pooler that does not keep sessions", store.ErrNoPresence)
	}
	return nil
}

// goneSQL returns the forwarders of this life whose locks are free. To find out, it takes such a lock until
// the end of the statement.
func (s *Store) goneSQL(owner string) string {
	return fmt.Sprintf(`SELECT owner, presence FROM %[2]s WHERE owner <> %[3]s AND CASE WHEN split_part(presence, '/', 1) = %[1]s
		THEN pg_try_advisory_xact_lock_shared(%[4]d, split_part(presence, '/', 2)::int) END`,
		s.sql.server, s.names.Table("forwarders"), pq.QuoteLiteral(owner), s.lockClass())
}

// Beat implements store.Presence. If another session answers, there is a pooler; another life begins when
// the server's statistics are reset, too. That the table of forwarders is locked says nothing about the
// session.
func (p *presence) Beat(ctx context.Context) (gone []store.Gone, err error) {
	var pid int
	var life string
	if err := p.session.QueryRowContext(ctx, p.answer).Scan(&pid, &life); err != nil {
		return nil, err
	}
	if pid != p.pid || life != p.life {
		return nil, fmt.Errorf("the session was process %d in the life %s of the server, now it is %d in %s", p.pid, p.life, pid, life)
	}
	gone, err = tables.ListRows(ctx, p.session, func(rows *sql.Rows, g *store.Gone) error { return rows.Scan(&g.Owner, &g.Presence) }, p.gone)
	if catalog.Refused(err, lockNotAvailable) {
		return nil, nil
	}
	return gone, err
}

// lockNotAvailable is the code of a statement that has waited for lock_timeout.
const lockNotAvailable = "55P03"

// Close implements store.Presence.
func (p *presence) Close() error { return errors.Join(p.session.Close(), p.pool.Close()) }
