package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strconv"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/session"
)

var _ store.Presences = (*Store)(nil)

// presence is a session of the pool with a lock of GET_LOCK. Nodes of a cluster have such locks apart, and
// lives too.
type presence struct {
	tables.Presence
	session *sql.Conn
	beat    string
}

// leastPool is the smallest pool with a bound that spares a connection: a forwarder uses 8.
const leastPool = 10

// OpenPresence implements store.Presences. It takes a connection of the pool for good. A handle that OpenDB did not open has no presence.
func (s *Store) OpenPresence(ctx context.Context, owner string) (_ store.Presence, err error) {
	if bound := s.db.Stats().MaxOpenConnections; bound > 0 && bound < leastPool {
		return nil, fmt.Errorf("%w: the pool allows only %d connections", store.ErrNoPresence, bound)
	}
	c, err := s.db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("open a session that shows that this process is alive: %w", err)
	}
	life := ""
	err = c.Raw(func(conn any) error {
		if ours, ok := conn.(*session.Session); ok {
			life = ours.Life
		}
		return nil
	})
	if err == nil && life == "" {
		err = store.ErrNoPresence
	}
	name := "waybill " + rand.Text()
	var taken sql.NullBool
	if err == nil {
		err = c.QueryRowContext(ctx, `SELECT GET_LOCK(`+literal(name)+`, 0)`).Scan(&taken)
	}
	if err == nil && !taken.Bool {
		err = store.ErrNoPresence
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("take the lock that shows that this process is alive: %w", err)
	}
	return &presence{s.NewPresence(owner, life+"/"+name, tables.SQL(`@waybill_life = ?`, life)), c, s.beatSQL(owner, life, name)}, nil
}

// beatSQL returns in each row whether the session has its lock, and a forwarder of this life whose lock is free;
// without any, one row.
func (s *Store) beatSQL(owner, life, name string) string {
	prefix := life + "/"
	return `SELECT coalesce(IS_USED_LOCK(` + literal(name) + `) = CONNECTION_ID(), 0), gone.owner, gone.presence FROM (SELECT 1 AS one) AS this LEFT JOIN ` +
		s.names.Table("forwarders") + ` AS gone ON gone.owner <> ` + literal(owner) + ` AND LEFT(gone.presence, ` + strconv.Itoa(len(prefix)) + `) = ` + literal(prefix) +
		` AND IS_FREE_LOCK(SUBSTRING(gone.presence, ` + strconv.Itoa(len(prefix)+1) + `)) = 1`
}

// Beat implements store.Presence.
func (p *presence) Beat(ctx context.Context) (gone []store.Gone, err error) {
	rows, err := p.session.QueryContext(ctx, p.beat)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var holds bool
		var owner, its sql.NullString
		if err := rows.Scan(&holds, &owner, &its); err != nil {
			return nil, err
		}
		if !holds {
			return nil, fmt.Errorf("the session has lost its lock: %w", store.ErrNoPresence)
		}
		if owner.Valid {
			gone = append(gone, store.Gone{Owner: owner.String, Presence: its.String})
		}
	}
	return gone, rows.Err()
}

// Close implements store.Presence. The pool does not get back a session with a lock.
func (p *presence) Close() error {
	_ = p.session.Raw(func(any) error { return driver.ErrBadConn })
	return p.session.Close()
}
