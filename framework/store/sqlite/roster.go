package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// Join tells of a forwarder; see store.Store. Rows of those that died are taken
// away on the way.
func (s *Store) Heartbeat(ctx context.Context, member store.Member, ttl time.Duration) error {
	sinks, err := json.Marshal(member.Sinks)
	if err != nil {
		return err
	}
	state, err := store.EncodeStates(member.States)
	if err != nil {
		return err
	}
	if err := s.join(ctx, member.Owner, string(sinks), state, ttl); err != nil {
		return fmt.Errorf("join the forwarders: %w", err)
	}
	return nil
}

func (s *Store) join(ctx context.Context, owner, sinks, state string, ttl time.Duration) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // of no effect behind the commit
	_, err = tx.ExecContext(ctx,
		`INSERT INTO `+s.prefix+`_forwarders (owner, sinks, state, live_until) VALUES (?, ?, ?, `+nowPlus+`)
		ON CONFLICT (owner) DO UPDATE SET sinks = excluded.sinks, state = excluded.state, live_until = excluded.live_until`,
		owner, sinks, state, milliseconds(ttl))
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx,
		`DELETE FROM `+s.prefix+`_forwarders WHERE live_until < strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '-1 hour')`)
	if err != nil {
		return err
	}
	return tx.Commit()
}

// Leave ends what Join began; see store.Store.
func (s *Store) Leave(ctx context.Context, owner string) error {
	if _, err := s.db.ExecContext(ctx, `DELETE FROM `+s.prefix+`_forwarders WHERE owner = ?`, owner); err != nil {
		return fmt.Errorf("leave the forwarders: %w", err)
	}
	return nil
}

// Roster lists who works on what; see store.Store.
func (s *Store) Membership(ctx context.Context) (r store.Membership, err error) {
	if r.Members, err = s.members(ctx); err == nil {
		r.Lanes, err = s.lanes(ctx)
	}
	if err != nil {
		return store.Membership{}, fmt.Errorf("list the forwarders and lanes: %w", err)
	}
	return r, nil
}

func (s *Store) members(ctx context.Context) (members []store.Member, err error) {
	rows, err := s.db.QueryContext(ctx, `SELECT owner, sinks, state FROM `+s.prefix+`_forwarders WHERE live_until > `+now+` ORDER BY owner`)
	if err != nil {
		return nil, err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		var m store.Member
		var sinks, state string
		if err := rows.Scan(&m.Owner, &sinks, &state); err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte(sinks), &m.Sinks); err != nil {
			return nil, fmt.Errorf("sinks of %s: %w", m.Owner, err)
		}
		if m.States, err = store.DecodeStates(state); err != nil {
			return nil, fmt.Errorf("state of %s: %w", m.Owner, err)
		}
		members = append(members, m)
	}
	return members, rows.Err()
}

func (s *Store) lanes(ctx context.Context) (states []store.LaneState, err error) {
	rows, err := s.db.QueryContext(ctx,
		`SELECT sink, lane, lanes, coalesce(wanted, 0), CASE WHEN lease_until > `+now+` THEN coalesce(owner, '') ELSE '' END,
			coalesce((julianday('now') - julianday(coalesce(lease_until, updated_at))) * 86400000, 0), paused, revision
		FROM `+s.prefix+`_cursors WHERE sink <> ? ORDER BY sink, lane`, store.SinkPruner)
	if err != nil {
		return nil, err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		var r store.LaneRow
		var free float64 // milliseconds
		if err := rows.Scan(&r.Sink, &r.Number, &r.Of, &r.Wanted, &r.Owner, &free, &r.Paused, &r.Revision); err != nil {
			return nil, err
		}
		r.Free = time.Duration(free * float64(time.Millisecond))
		states = append(states, store.NewLaneState(r))
	}
	return states, rows.Err()
}
