package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/sinks"
)

// TestRandomActionsKeepTheRulesOfDelivery lets publishers, a destination, an operator and
// crashes act in any order. It compares each delivery and the parked deliveries with the rules in
// docs/internals/delivery.md, which the type ruled implements independently.
func TestRandomActionsKeepTheRulesOfDelivery(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty, err := os.ReadFile(outboxtest.File(t))
	require.NoError(t, err)
	checks := 0
	rapid.Check(t, func(rt *rapid.T) {
		checks++
		path := filepath.Join(dir, fmt.Sprintf("%d.db", checks))
		require.NoError(t, os.WriteFile(path, empty, 0o600))
		var failed any // rapid reports a failure by a panic, which must not leave the bubble
		synctest.Test(t, func(t *testing.T) {
			defer func() { failed = recover() }()
			db, err := sqlite.OpenDB(path)
			require.NoError(t, err)
			defer db.Close()
			s, err := sqlite.Open(t.Context(), db, sqlite.Config{})
			require.NoError(t, err)
			o := &outbox{t: t, db: db, store: s}
			db.SetMaxOpenConns(1) // the only connection is the one that the next line configures
			o.exec(`PRAGMA synchronous = OFF`)
			playRuled(rt, o)
		})
		switch {
		case rt.Failed():
			rt.FailNow()
		case failed != nil:
			panic(failed)
		}
	})
}

const (
	ruledAttempts = 3
	ruledInitial  = time.Second
)

// fate is the result of a notification.
type fate string

const (
	waiting   fate = "waiting"
	scheduled fate = "scheduled" // never tried
	retrying  fate = "retrying"
	dead      fate = "dead"
	delivered fate = "delivered"
	discarded fate = "discarded"
)

// ruledNotification is a notification with its state according to the rules.
type ruledNotification struct {
	id, key   string
	at        time.Time // when it was published
	due       time.Time // zero: due at once
	plan      []fate    // next answers of the sink: retrying, dead; then it succeeds
	fate      fate
	spent     int
	requeued  bool // whether it was ever requeued
	notBefore time.Time
	inFlight  bool
}

// over reports whether later deliveries of the key may begin.
func (n *ruledNotification) over(halt bool) bool {
	return n.fate == delivered || n.fate == discarded || n.fate == dead && !halt
}

// ruled is the environment of a forwarder, with its rules. It is both its sink and its store.
type ruled struct {
	*outbox
	appendable
	script // its mutex guards the fields below
	f      *engine
	halt   bool
	hours  forwarder.Hours // begin at opens
	opens  time.Time
	n      int // threshold
	all    []*ruledNotification
	byID   map[string]*ruledNotification
	broken []string // violated rules

	down, slow time.Time // end of the time in which the sink is unavailable, is throttled
	asked      time.Time // when the sink was last throttled
	waits      time.Time // the running forwarder waits until then
	lost       bool      // the lease is lost, and no forwarder has it
	since      time.Time // when the lease was acquired
	settled    time.Time // when the last attempt that counts ended
}

func playRuled(rt *rapid.T, o *outbox) {
	r := &ruled{outbox: o, appendable: o.store, byID: make(map[string]*ruledNotification)}
	r.script.answer = r.answer
	r.halt = rapid.Bool().Draw(rt, "halt")
	r.n = rapid.SampledFrom([]int{1, 2, 16}).Draw(rt, "threshold")
	if r.opens = time.Now(); rapid.Bool().Draw(rt, "at night") {
		r.opens = r.opens.Add(2 * time.Minute)
		r.hours = forwarder.Hours{From: "00:02", To: "00:00"}
	}
	r.begin()
	defer func() { r.f.abandon() }()
	rt.Repeat(map[string]func(*rapid.T){
		"publish":  r.publish,
		"schedule": r.schedule,
		"trouble":  r.trouble,
		"pass":     r.pass,
		"restart":  r.restart,
		"lose":     r.lose,
		"requeue":  r.requeue,
		"discard":  r.discard,
		"":         r.check,
	})
	r.finish(rt)
}

func (r *ruled) begin() {
	onDead := forwarder.OnDeadContinue
	if r.halt {
		onDead = forwarder.OnDeadHalt
	}
	r.waits = time.Time{}
	r.f = r.one(forwarder.Sink{
		Sink: &r.script, OnDead: onDead, Parallelism: forwarder.Parallelism{Threshold: r.n},
		Breaker: forwarder.Breaker{Off: true}, // many are refused in a row
		Retry:   forwarder.Retry{MaxAttempts: ruledAttempts, Initial: ruledInitial}, Hours: r.hours,
	}, func(c *forwarder.Config) {
		c.Store = r
		c.Lease = 5 * time.Minute
	})
	r.f.flush()
}

// Acquire ends the time in which no forwarder has the lease.
func (r *ruled) Acquire(ctx context.Context, l store.Lane, owner string, ttl time.Duration) (store.Lease, error) {
	lease, err := r.appendable.Acquire(ctx, l, owner, ttl)
	if err == nil && l.Sink == "sink" {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lost, r.since = false, time.Now()
	}
	return lease, err
}

func (r *ruled) breaks(format string, args ...any) {
	r.broken = append(r.broken, fmt.Sprintf(format, args...))
}

// answer is a delivery: it checks the rules for its beginning, and records the result.
func (r *ruled) answer(ctx context.Context, d *notification.Delivery) error {
	r.mu.Lock()
	n := r.byID[d.ID]
	if !r.lost {
		r.mayBegin(n, d.Attempt)
	}
	n.inFlight = true
	r.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(3 * time.Millisecond):
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n.inFlight = false
	now := time.Now()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case now.Before(r.down):
		return sinks.Unavailable(errors.New("down"))
	case now.Before(r.slow):
		if !r.lost {
			r.asked = now
			if r.slow.After(r.waits) {
				r.waits = r.slow
			}
		}
		return sinks.Throttled(r.slow, errors.New("slow down"))
	}
	becomes := delivered
	if len(n.plan) > 0 {
		becomes, n.plan = n.plan[0], n.plan[1:]
	}
	if !r.lost { // otherwise it is not settled, and is repeated
		r.becomes(n, becomes, now)
	}
	switch becomes {
	case retrying:
		return errors.New("later")
	case dead:
		return sinks.Permanent(errors.New("never"))
	}
	return nil
}

// becomes records the outcome of an attempt that counts.
func (r *ruled) becomes(n *ruledNotification, f fate, now time.Time) {
	n.fate = f
	n.spent++
	r.settled = now
	if f != retrying {
		return
	}
	n.notBefore = now.Add((ruledInitial << (n.spent - 1)) * 4 / 5).Add(-time.Millisecond) // a pause varies by a fifth
	if n.spent == ruledAttempts {
		n.fate = dead
	}
}

// mayBegin checks the rules for the beginning of a delivery.
func (r *ruled) mayBegin(n *ruledNotification, attempt int) {
	now := time.Now()
	switch {
	case n.fate == delivered || n.fate == dead || n.fate == discarded:
		r.breaks("%s is delivered though it is %s", n.id, n.fate)
	case attempt != n.spent+1:
		r.breaks("%s has attempt %d after %d were spent", n.id, attempt, n.spent)
	case attempt > ruledAttempts:
		r.breaks("%s has attempt %d", n.id, attempt)
	case now.Before(n.notBefore):
		r.breaks("%s is tried again too early", n.id)
	case now.Before(r.opens):
		r.breaks("%s is delivered at night", n.id)
	case now.Before(n.due):
		r.breaks("%s is delivered before it is due", n.id)
	case now.After(r.asked) && now.Before(r.waits):
		r.breaks("%s is delivered while the sink asked to wait", n.id)
	}
	behind := false // whether other is behind n in the log
	for _, other := range r.all {
		if other == n {
			behind = true
		}
		if other == n || n.key == "" || other.key != n.key {
			continue
		}
		switch {
		case r.halt && other.fate == dead:
			r.breaks("%s is delivered though %s of its key is dead", n.id, other.id)
		case n.spent > 0 || n.requeued:
		case other.fate == retrying && other.spent > 0 && (r.halt || !other.requeued):
			r.breaks("%s is delivered though %s of its key waits for its next attempt", n.id, other.id)
		case other.over(r.halt) || other.requeued && !r.halt || !other.due.IsZero():
		case n.due.IsZero() && !behind:
			r.breaks("%s is delivered before %s", n.id, other.id)
		case r.since.Add(time.Second).Before(n.due) && other.at.Add(time.Second).Before(n.due):
			r.breaks("%s is delivered before %s, which waited when it fell due", n.id, other.id)
		}
	}
}

// add publishes a notification, and decides what the sink will answer.
func (r *ruled) add(rt *rapid.T, due time.Time) {
	n := &ruledNotification{
		id: fmt.Sprintf("n%02d", len(r.all)), at: time.Now(), due: due, fate: waiting,
		key:  rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(rt, "key"),
		plan: rapid.SliceOfN(rapid.SampledFrom([]fate{retrying, retrying, dead}), 0, 4).Draw(rt, "answers"),
	}
	if !due.IsZero() {
		n.fate = scheduled
	}
	r.mu.Lock()
	r.all = append(r.all, n)
	r.byID[n.id] = n
	r.mu.Unlock()
	r.insert(notification.Envelope{ID: n.id, Type: "t", Key: n.key, DeliverAt: due})
}

func (r *ruled) publish(rt *rapid.T) {
	for range rapid.IntRange(1, 4).Draw(rt, "count") {
		r.add(rt, time.Time{})
	}
	r.f.flush()
}

func (r *ruled) schedule(rt *rapid.T) {
	due := time.Now().Add(time.Duration(rapid.IntRange(1, 10).Draw(rt, "seconds")) * time.Second)
	r.add(rt, due.Truncate(time.Microsecond)) // the precision of the database
	r.f.flush()
}

func (r *ruled) trouble(rt *rapid.T) {
	until := time.Now().Add(time.Duration(rapid.IntRange(1, 50).Draw(rt, "tenths")) * time.Second / 10)
	r.mu.Lock()
	defer r.mu.Unlock()
	if rapid.Bool().Draw(rt, "down") {
		r.down = until
	} else {
		r.slow = until
	}
}

func (r *ruled) pass(rt *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 35 * time.Second}).Draw(rt, "time"))
}

func (r *ruled) restart(*rapid.T) {
	r.f.end()
	r.begin()
}

// lose ends the lease. Either the forwarder ends without noticing, or it notices and leases the lane
// again.
func (r *ruled) lose(rt *rapid.T) {
	for { // until all deliveries are settled
		pass(50 * time.Millisecond)
		r.mu.Lock()
		quiet := time.Since(r.settled) >= 50*time.Millisecond
		r.mu.Unlock()
		if quiet {
			break
		}
	}
	r.mu.Lock()
	r.lost = true
	r.mu.Unlock()
	r.exec(`UPDATE outbox_cursors SET owner = NULL, epoch = epoch + 1 WHERE sink = 'sink'`)
	if rapid.Bool().Draw(rt, "publish") {
		r.publish(rt)
	}
	if rapid.Bool().Draw(rt, "restart") {
		r.f.abandon()
		r.begin()
	} else {
		time.Sleep(2 * time.Minute)
	}
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.False(rt, r.lost, "no forwarder leased the lane again")
}

// choose draws a notification for an operator to act on.
func (r *ruled) choose(rt *rapid.T, of func(n *ruledNotification) bool) *ruledNotification {
	r.mu.Lock()
	defer r.mu.Unlock()
	var some []string
	for _, n := range r.all {
		if of(n) {
			some = append(some, n.id)
		}
	}
	if len(some) == 0 {
		rt.Skip("no such notification")
	}
	return r.byID[rapid.SampledFrom(some).Draw(rt, "notification")]
}

func (r *ruled) requeue(rt *rapid.T) {
	n := r.choose(rt, func(n *ruledNotification) bool { return n.fate == dead })
	r.mu.Lock()
	n.fate, n.spent, n.requeued, n.notBefore = retrying, 0, true, time.Time{}
	r.mu.Unlock()
	r.exec(`UPDATE outbox_parked SET state = 'retrying', attempt = 0, due_at = '2000-01-01T00:00:00.000000Z' WHERE id = ?`, n.id)
}

// discard discards deliveries that the forwarder is not working on.
func (r *ruled) discard(rt *rapid.T) {
	n := r.choose(rt, func(n *ruledNotification) bool {
		return n.fate == dead || n.fate == retrying && time.Now().Before(n.notBefore)
	})
	r.mu.Lock()
	n.fate = discarded
	r.mu.Unlock()
	r.exec(`DELETE FROM outbox_parked WHERE id = ?`, n.id)
}

// check compares the parked deliveries with the rules. Deliveries that wait for their turn may do so in
// memory or as blocked; the rules permit both.
func (r *ruled) check(rt *rapid.T) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.broken) > 0 {
		rt.Fatalf("%v", r.broken)
	}
	require.Zero(rt, r.overlaps, "deliveries of a key in flight twice")
	require.LessOrEqual(rt, r.most, r.n, "deliveries in flight")
	want, quiet := make(map[string]string), r.table(`state = 'quiet'`)
	for _, n := range r.all {
		if quiet[n.id] != "" && n.fate != dead {
			require.Equal(rt, fmt.Sprintf("quiet after %d", n.spent), quiet[n.id], n.id)
			continue
		}
		if n.fate == dead || n.fate == retrying || n.fate == scheduled {
			want[n.id] = fmt.Sprintf("%s after %d", n.fate, n.spent)
		}
	}
	require.Equal(rt, want, r.table(`state NOT IN ('blocked', 'quiet')`))
}

// table returns the parked deliveries by id.
func (r *ruled) table(where string) map[string]string {
	rows, err := r.db.QueryContext(r.t.Context(), `SELECT id, state, attempt FROM outbox_parked WHERE `+where)
	require.NoError(r.t, err)
	defer rows.Close()
	all := make(map[string]string)
	for rows.Next() {
		var id, state string
		var attempt int
		require.NoError(r.t, rows.Scan(&id, &state, &attempt))
		all[id] = fmt.Sprintf("%s after %d", state, attempt)
	}
	require.NoError(r.t, rows.Err())
	return all
}

// finish lets everything end without further faults.
func (r *ruled) finish(rt *rapid.T) {
	r.mu.Lock()
	r.down, r.slow = time.Time{}, time.Time{}
	for _, n := range r.all {
		n.plan = nil
	}
	r.mu.Unlock()
	time.Sleep(3 * time.Minute)
	r.check(rt)

	halted := make(map[string]bool)
	for _, n := range r.all {
		halted[n.key] = halted[n.key] || r.halt && n.key != "" && n.fate == dead
	}
	behind := make(map[string]string) // a dead head
	for _, n := range r.all {
		switch {
		case n.over(false), halted[n.key] && n.fate == scheduled:
		case halted[n.key] && n.fate == waiting:
			behind[n.id] = "blocked after 0"
		default:
			rt.Fatalf("%s is %s at the end", n.id, n.fate)
		}
	}
	require.Equal(rt, behind, r.table(`state = 'blocked'`))
	require.Zero(rt, r.f.Stats()[0].Pending)
}
