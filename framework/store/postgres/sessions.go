package postgres

import (
	"cmp"
	"context"
	"database/sql"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/store"
)

// Sessions opens direct connections to the database with another driver than lib/pq. A store needs two of them, each in
// a handle that it closes: one listens, and the other shows that the process is alive. It is safe for concurrent use.
type Sessions interface {
	// Open returns a handle. It does not connect yet. Connecting fails with store.ErrNoPresence if there are no
	// direct connections; the store then polls.
	Open() *sql.DB
	// Await waits on a connection of such a handle for the next notification of the server, and returns its payload.
	// A connection whose ctx ends in the meantime stays usable.
	Await(ctx context.Context, conn *sql.Conn) (payload string, err error)
}

// await is run with a connection of Sessions.
func (l listening) await(ctx context.Context, hear func(store.News)) error {
	db := l.sessions.Open()
	defer func() { _ = db.Close() }()
	conn, err := l.subscribe(ctx, db)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	hear(store.NewsUnknown)
	for {
		payload, err := l.next(ctx, conn)
		if err != nil {
			return err
		}
		hear(newsOf(payload))
	}
}

// subscribe connects and begins to listen.
func (l listening) subscribe(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.silence, errSilent)
	defer cancel()
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	if _, err := conn.ExecContext(ctx, `LISTEN `+pq.QuoteIdentifier(l.channel)); err != nil {
		_ = conn.Close()
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	return conn, nil
}

// next returns the payload of the next notification. It pings a silent connection, as attend does.
func (l listening) next(ctx context.Context, conn *sql.Conn) (payload string, err error) {
	for {
		beat, cancel := context.WithTimeout(ctx, l.heartbeat)
		payload, err = l.sessions.Await(beat, conn)
		late := beat.Err() != nil
		cancel()
		if err == nil || !late || ctx.Err() != nil {
			return payload, err
		}
		answer, cancel := context.WithTimeoutCause(ctx, l.silence-l.heartbeat, errSilent)
		if err = conn.PingContext(answer); err != nil {
			err = cmp.Or(context.Cause(answer), err)
		}
		cancel()
		if err != nil {
			return "", err
		}
	}
}
