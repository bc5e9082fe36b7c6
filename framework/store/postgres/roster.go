package postgres

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
	_, err = s.db.ExecContext(ctx,
		`WITH dead AS (DELETE FROM `+s.sql.prefix+`_forwarders WHERE owner <> $1 AND live_until < clock_timestamp() - interval '1 hour')
		INSERT INTO `+s.sql.prefix+`_forwarders (owner, sinks, state, live_until)
		VALUES ($1, $2, $4, clock_timestamp() + $3 * interval '1 microsecond')
		ON CONFLICT (owner) DO UPDATE SET sinks = EXCLUDED.sinks, state = EXCLUDED.state, live_until = EXCLUDED.live_until`,
		member.Owner, string(sinks), ttl.Microseconds(), state)
	if err != nil {
		return fmt.Errorf("join the forwarders: %w", advise(err))
	}
	return nil
}

// Leave ends what Join began; see store.Store. It tells those who listen: while
// they knew of the forwarder, lanes that it gave back were left for it.
func (s *Store) Leave(ctx context.Context, owner string) error {
	_, err := s.db.ExecContext(ctx,
		`WITH gone AS (DELETE FROM `+s.sql.prefix+`_forwarders WHERE owner = $1 RETURNING owner) SELECT pg_notify($2, $3) FROM gone`,
		owner, s.listening.channel, lanesNews)
	if err != nil {
		return fmt.Errorf("leave the forwarders: %w", advise(err))
	}
	return nil
}

// Roster lists who works on what; see store.Store.
func (s *Store) Membership(ctx context.Context) (r store.Membership, err error) {
	if r.Members, err = s.members(ctx); err == nil {
		r.Lanes, err = s.lanes(ctx)
	}
	if err != nil {
		return store.Membership{}, fmt.Errorf("list the forwarders and lanes: %w", advise(err))
	}
	return r, nil
}

func (s *Store) members(ctx context.Context) (members []store.Member, err error) {
	rows, err := s.db.QueryContext(ctx,
		`SELECT owner, sinks::text, state::text FROM `+s.sql.prefix+`_forwarders WHERE live_until > clock_timestamp() ORDER BY owner`)
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
		`SELECT sink, lane, lanes, coalesce(wanted, 0), CASE WHEN lease_until > clock_timestamp() THEN coalesce(owner, '') ELSE '' END,
			(extract(epoch FROM clock_timestamp() - coalesce(lease_until, updated_at)) * 1000000)::bigint, paused, revision
		FROM `+s.sql.prefix+`_cursors WHERE sink <> $1 ORDER BY sink, lane`, store.SinkPruner)
	if err != nil {
		return nil, err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		var r store.LaneRow
		var free int64
		if err := rows.Scan(&r.Sink, &r.Number, &r.Of, &r.Wanted, &r.Owner, &free, &r.Paused, &r.Revision); err != nil {
			return nil, err
		}
		r.Free = time.Duration(free) * time.Microsecond
		states = append(states, store.NewLaneState(r))
	}
	return states, rows.Err()
}
