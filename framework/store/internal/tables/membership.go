package tables

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/store"
)

// buried is how long the row of a dead forwarder stays in the table.
const buried = time.Hour

// Heartbeat records that a forwarder is running; see store.Leases. It removes the rows of dead ones.
func (t *Tables) Heartbeat(ctx context.Context, member store.Member, ttl time.Duration) (err error) {
	defer t.run.Tried(&err, "record the heartbeat of forwarder %s", member.Owner)
	sinks, err := json.Marshal(member.Sinks)
	if err != nil {
		return err
	}
	states, err := encodeStates(member.States)
	if err != nil {
		return err
	}
	running, err := json.Marshal(member.Running)
	if err != nil {
		return err
	}
	for _, write := range t.run.Dialect.Together(
		SQL(`DELETE FROM {forwarders} WHERE owner <> ? AND live_until < ?`, member.Owner, t.run.Dialect.NowPlus(-buried)),
		SQL(`INSERT INTO {forwarders} (owner, sinks, state, running, live_until) VALUES (?, ?, ?, ?, ?)`+
			t.run.Dialect.OnConflict([]string{"owner"}, []string{"seen_at", "sinks", "state", "running", "live_until"}, Condition{}),
			member.Owner, string(sinks), states, string(running), t.run.Dialect.NowPlus(ttl)),
	) {
		if _, err := t.run.Write(ctx, failpoint.Heartbeat, `?`, write); err != nil {
			return err
		}
	}
	return nil
}

// departed begins the names of rows with the last figures of forwarders that have ended. They are never alive, and no
// forwarder has such a name.
const departed = "~"

// depart keeps the figures of a forwarder whose row is deleted next.
func (r *Runner) depart(owner string) Expr {
	return SQL(`INSERT INTO {forwarders} (owner, sinks, state, running, live_until) SELECT ?, sinks, state, running, {now} FROM {forwarders} WHERE owner = ?`+
		r.Dialect.OnConflict([]string{"owner"}, []string{"seen_at", "running", "live_until"}, Condition{}), departed+owner, owner)
}

// Leave ends what Heartbeat began; see store.Leases. It announces this to listeners: until then they
// count the forwarder, and so do not lease the lanes that it has released.
func (t *Tables) Leave(ctx context.Context, owner string) (err error) {
	defer t.run.Tried(&err, "remove forwarder %s", owner)
	if _, err := t.run.Write(ctx, failpoint.Leave, `?`, t.run.depart(owner)); err != nil {
		return err
	}
	_, err = t.run.Write(ctx, failpoint.Leave, `?`, t.run.Dialect.Announce(SQL(`DELETE FROM {forwarders} WHERE owner = ?`, owner)))
	return err
}

// Membership returns the running forwarders and the lanes; see store.Leases.
func (t *Tables) Membership(ctx context.Context) (m store.Membership, err error) {
	defer t.run.Tried(&err, "list the forwarders and lanes")
	if m.Members, err = t.members(ctx, SQL(`live_until > {now}`)); err == nil {
		m.Lanes, err = t.lanes(ctx)
	}
	return m, err
}

// Departed returns forwarders that have ended; see store.Inspector.
func (t *Tables) Departed(ctx context.Context) ([]store.Member, error) {
	members, err := t.members(ctx, SQL(`live_until <= {now}`))
	if err != nil {
		return nil, t.run.Failed(err, "list the forwarders that have ended")
	}
	for i := range members {
		members[i].Owner = strings.TrimPrefix(members[i].Owner, departed)
	}
	return members, nil
}

func (t *Tables) members(ctx context.Context, where Expr) ([]store.Member, error) {
	return List(ctx, t.run, t.run.Own(), func(rows *sql.Rows, m *store.Member) (err error) {
		var sinks, states, running string
		if err := rows.Scan(&m.Owner, t.run.Into(&m.Since), t.run.Into(&m.SeenAt), &sinks, &states, &running); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(sinks), &m.Sinks); err != nil {
			return fmt.Errorf("sinks of %s: %w", m.Owner, err)
		}
		if m.States, err = decodeStates(states); err != nil {
			return fmt.Errorf("state of %s: %w", m.Owner, err)
		}
		if err := json.Unmarshal([]byte(running), &m.Running); err != nil {
			return fmt.Errorf("running of %s: %w", m.Owner, err)
		}
		return nil
	}, `SELECT owner, since, seen_at, sinks, state, running FROM {forwarders} WHERE ? ORDER BY owner {whole forwarders}`, where)
}

func (t *Tables) lanes(ctx context.Context) ([]store.LaneState, error) {
	return List(ctx, t.run, t.run.Own(), func(rows *sql.Rows, s *store.LaneState) error {
		var sink string
		var number, of int
		var ago int64 // since the lease expired; negative if it has not
		var types, wanted sql.NullString
		err := rows.Scan(&sink, &number, &of, &s.Wanted, &s.Owner, &ago, &s.Paused, &s.Revision, &types, &wanted)
		if err == nil {
			s.Types, err = DecodeTypes(types)
		}
		if err == nil {
			s.WantedTypes, err = DecodeTypes(wanted)
		}
		if err != nil {
			return err
		}
		s.Lane = store.NewLane(sink, number, of)
		if s.Owner == "" {
			s.Free = time.Duration(max(0, ago)) * time.Microsecond
		} else {
			s.Left = time.Duration(max(0, -ago)) * time.Microsecond
		}
		return nil
	}, `SELECT sink, lane, lanes, coalesce(wanted, 0), `+ownerNow+`, `+t.run.Dialect.Elapsed(`coalesce(lease_until, updated_at)`)+`, paused, revision, types, types_wanted
		FROM {cursors} WHERE sink <> ? ORDER BY sink, lane {whole cursors}`, store.SinkPruner)
}

// encodeStates encodes a member's states; {} for none.
func encodeStates(states map[string]store.SinkState) (string, error) {
	if len(states) == 0 {
		return "{}", nil
	}
	raw, err := json.Marshal(states)
	return string(raw), err
}

// decodeStates is the inverse of encodeStates; nil for none.
func decodeStates(text string) (states map[string]store.SinkState, err error) {
	if text == "{}" {
		return nil, nil
	}
	err = json.Unmarshal([]byte(text), &states)
	return states, err
}
