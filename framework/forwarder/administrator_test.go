package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/sinks"
)

// operator performs the actions of a person on an outbox.
type operator struct {
	*outbox
	store.Operator
	actions int
}

func newOperator(o *outbox) *operator {
	for _, statement := range dueInTheBubble[o.isPostgres()] {
		_, err := o.db.Exec(statement)
		require.NoError(o.t, err)
	}
	return &operator{outbox: o, Operator: o.store}
}

// dueInTheBubble makes deliveries due in the bubble that the database made due at once, since the
// bubble's time is long before that of the database's clock.
var dueInTheBubble = map[bool][]string{
	true: {
		`CREATE OR REPLACE FUNCTION due_in_the_bubble() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN NEW.due_at = '2000-01-01T00:00:00Z'; RETURN NEW; END $$`,
		`DROP TRIGGER IF EXISTS due_in_the_bubble ON outbox_parked`,
		`CREATE TRIGGER due_in_the_bubble BEFORE INSERT OR UPDATE ON outbox_parked FOR EACH ROW
			WHEN (NEW.due_at > '2020-01-01T00:00:00Z') EXECUTE FUNCTION due_in_the_bubble()`,
	},
	false: {
		`CREATE TRIGGER IF NOT EXISTS due_in_the_bubble AFTER UPDATE ON outbox_parked WHEN NEW.due_at > '2020' BEGIN
			UPDATE outbox_parked SET due_at = '2000-01-01T00:00:00.000000Z' WHERE rowid = NEW.rowid; END`,
		`CREATE TRIGGER IF NOT EXISTS due_in_the_bubble_too AFTER INSERT ON outbox_parked WHEN NEW.due_at > '2020' BEGIN
			UPDATE outbox_parked SET due_at = '2000-01-01T00:00:00.000000Z' WHERE rowid = NEW.rowid; END`,
	},
}

func (o *outbox) isPostgres() bool {
	_, ok := o.store.(*postgres.Store)
	return ok
}

// begin starts an action and returns its id.
func (p *operator) begin() string {
	p.t.Helper()
	p.actions++
	id := fmt.Sprint("action", p.actions)
	require.NoError(p.t, p.Begin(p.t.Context(), store.Action{ID: id, Filter: []byte("{}")}))
	return id
}

func (p *operator) requeue(f store.ParkedFilter) (changed int) {
	p.t.Helper()
	f.Sink = "sink"
	result, err := p.Requeue(p.t.Context(), store.ParkedBatch{Action: p.begin(), Filter: f, Limit: 1000})
	require.NoError(p.t, err)
	return result.Changed
}

func (p *operator) skip() (changed int) {
	p.t.Helper()
	result, err := p.Discard(p.t.Context(), store.ParkedBatch{Action: p.begin(), Filter: store.ParkedFilter{Sink: "sink", Heads: true}, Limit: 1000})
	require.NoError(p.t, err)
	return result.Changed
}

func (p *operator) pause(paused bool) {
	p.t.Helper()
	changed, err := p.Pause(p.t.Context(), p.begin(), "sink", paused)
	require.NoError(p.t, err)
	require.True(p.t, changed)
}

// replay runs in small batches to the end of the log.
func (p *operator) replay(q store.ReplayQuery, limit int) (changed int) {
	p.t.Helper()
	target, err := p.store.Probe(p.t.Context())
	require.NoError(p.t, err)
	q.Sink, q.UpTo = "sink", target.Last()
	b := store.ReplayBatch{ReplayQuery: q, Action: p.begin(), Limit: limit}
	for b.After < q.UpTo {
		result, err := p.Replay(p.t.Context(), b)
		require.NoError(p.t, err)
		changed += result.Changed
		b.After = result.Through
		time.Sleep(time.Millisecond)
	}
	return changed
}

// lookEachSecond makes a forwarder read the membership once a second.
func lookEachSecond(c *forwarder.Config) { c.Lease = 20 * time.Second }

// oneLook gives the forwarder time to read the membership once and to react. That is far less time
// than it needs to compare all keys with the parked deliveries.
func oneLook() {
	pass(3 * time.Second)
}

func TestRequeuedDeliveriesAreDeliveredInOrderSoon(t *testing.T) {
	for _, lanes := range []int{1, 2} {
		t.Run(fmt.Sprint("lanes ", lanes), func(t *testing.T) {
			onEachStore(t, func(t *testing.T, o *outbox) {
				p := newOperator(o)
				s := down(sinks.Permanent(errors.New("refused")))
				o.one(forwarder.Sink{Sink: s}, named("a", lanes))
				o.append("t", "k", "a", "b", "c")
				o.append("t", "", "d")
				oneLook()
				require.Len(t, s.given(), 4)
				s.mended.Store(true)
				require.Equal(t, 4, p.requeue(store.ParkedFilter{States: []store.State{store.StateDead}}))
				oneLook()
				given := s.given()
				require.ElementsMatch(t, []string{"a", "b", "c", "d"}, given)
				require.Equal(t, []string{"a", "b", "c"}, slices.DeleteFunc(given, func(id string) bool { return id == "d" }))
				require.Empty(t, o.parked())
				require.Zero(t, s.overlaps)
			})
		})
	}
}

func TestEachOfSeveralActionsIsNoticedSoon(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		p := newOperator(o)
		s := &script{answer: fails(sinks.Permanent(errors.New("refused")), always)}
		o.one(forwarder.Sink{Sink: s}, lookEachSecond)
		o.append("t", "k", "a")
		oneLook()
		require.Equal(t, []string{"a"}, s.given())
		for range 4 {
			require.Equal(t, 1, p.requeue(store.ParkedFilter{States: []store.State{store.StateDead}}))
			oneLook()
			require.Equal(t, []string{"a"}, s.given())
		}
	})
}

// Requeuing while the key was in flight once delayed its followers by half a minute.
func TestADeliveryRequeuedWhileItsKeyIsInFlightFollowsSoon(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		p := newOperator(o)
		s := &script{answer: fails(sinks.Permanent(errors.New("refused")), always)}
		f := o.one(forwarder.Sink{Sink: s}, lookEachSecond)
		o.append("t", "k", "a", "b", "c")
		oneLook()
		s.answer = func(ctx context.Context, d *notification.Delivery) error {
			if d.ID == "slow" {
				return takesTime(ctx, 5*time.Second)
			}
			return nil
		}
		f.publish("t", "k", "slow")
		s.given()
		require.Equal(t, 3, p.requeue(store.ParkedFilter{}))
		oneLook()
		require.Empty(t, s.given(), "the key is in flight")
		oneLook()
		oneLook()
		require.Equal(t, []string{"a", "b", "c"}, s.given())
		require.Empty(t, o.parked())
		require.Zero(t, s.overlaps)
	})
}

func TestAPausedSinkGetsNothingAndMissesNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		p := newOperator(o)
		var s, other script
		o.start(map[string]forwarder.Sink{"sink": {Sink: &s}, "other": {Sink: &other}}, route.Routes{"*": route.To("sink", "other")}, lookEachSecond)
		o.append("t", "k", "before")
		oneLook()
		require.Equal(t, []string{"before"}, s.given())
		p.pause(true)
		oneLook()
		o.append("t", "k", "a", "b")
		o.append("t", "", "c")
		pass(5 * time.Minute)
		require.Empty(t, s.given())
		require.ElementsMatch(t, []string{"before", "a", "b", "c"}, other.given(), "another sink continues")
		p.pause(false)
		settleDown()
		given := s.given()
		require.ElementsMatch(t, []string{"a", "b", "c"}, given)
		require.Equal(t, []string{"a", "b"}, slices.DeleteFunc(given, func(id string) bool { return id == "c" }))
	})
}

func TestAForwarderThatStartsLeavesAPausedSinkAlone(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		p := newOperator(o)
		var s script
		_, err := o.store.Cut(t.Context(), "sink", 1, "")
		require.NoError(t, err)
		p.pause(true)
		o.append("t", "", "a")
		o.one(forwarder.Sink{Sink: &s}, lookEachSecond)
		settleDown()
		require.Empty(t, s.given())
		p.pause(false)
		settleDown()
		require.Equal(t, []string{"a"}, s.given())
	})
}

func TestSkippingTheHeadOfAHaltedKeyReleasesItsFollowers(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		p := newOperator(o)
		s := &script{answer: fails(sinks.Permanent(errors.New("refused")), always, "bad")}
		f := o.one(forwarder.Sink{Sink: s, OnDead: forwarder.OnDeadHalt}, lookEachSecond)
		o.append("t", "k", "bad", "a", "b")
		oneLook()
		require.Equal(t, []string{"bad"}, s.given())
		require.Equal(t, 1, p.skip())
		oneLook()
		require.Equal(t, []string{"a", "b"}, s.given())
		f.publish("t", "k", "c")
		require.Equal(t, []string{"c"}, s.given())
		require.Empty(t, o.parked())
	})
}

func TestAReplayDeliversExactlyTheChosenNotificationsInOrder(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		p := newOperator(o)
		var s script
		o.one(forwarder.Sink{Sink: &s}, lookEachSecond)
		want := make(map[string][]string)
		for i := range 60 {
			key, id := fmt.Sprint("k", i%4), fmt.Sprintf("%04d", i)
			typ := "other"
			if i%3 > 0 {
				typ = "chosen"
				want[key] = append(want[key], id)
			}
			o.append(typ, key, id)
		}
		oneLook()
		require.Len(t, s.given(), 60)
		require.Equal(t, 40, p.replay(store.ReplayQuery{Types: []notification.TypeFilter{{Names: []string{"chosen"}}}}, 7))
		settleDown()
		got := make(map[string][]string)
		for _, id := range s.given() {
			i, err := strconv.Atoi(id)
			require.NoError(t, err)
			got[fmt.Sprint("k", i%4)] = append(got[fmt.Sprint("k", i%4)], id)
		}
		require.Equal(t, want, got)
		require.Zero(t, s.overlaps)
		require.Empty(t, o.parked())
	})
}

// states are what the heartbeats report of sinks in trouble.
func (o *outbox) states() (all []store.SinkState) {
	o.t.Helper()
	roster, err := o.store.Membership(o.t.Context())
	require.NoError(o.t, err)
	for _, m := range roster.Members {
		all = slices.AppendSeq(all, maps.Values(m.States))
	}
	return all
}

func TestAHeartbeatReportsAnOpenBreaker(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := down(sinks.Unavailable(errors.New("connection refused")))
		o.one(forwarder.Sink{Sink: s}, lookEachSecond)
		oneLook()
		require.Empty(t, o.states())
		began := time.Now()
		o.append("t", "", "a")
		oneLook()
		states := o.states()
		require.Len(t, states, 1)
		require.True(t, states[0].BreakerOpen)
		require.WithinDuration(t, began, states[0].OpenSince, 2*time.Second)
		require.Contains(t, states[0].Cause, "connection refused")
		s.mended.Store(true)
		pass(2 * time.Minute)
		require.Empty(t, o.states())
	})
}

func TestAHeartbeatReportsWhyASinkIsThrottled(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		until := time.Now().Add(10 * time.Minute)
		s := down(sinks.Throttled(until, errors.New("429 Too Many Requests: slow down")))
		o.one(forwarder.Sink{Sink: s}, lookEachSecond)
		o.append("t", "", "a")
		oneLook()
		oneLook()
		states := o.states()
		require.Len(t, states, 1)
		require.WithinDuration(t, until, states[0].ThrottledUntil, time.Second)
		require.Contains(t, states[0].Cause, "slow down")
	})
}
