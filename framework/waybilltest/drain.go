package waybilltest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/store"
)

const (
	// patience is how long Drain waits until nothing is due.
	patience = 30 * time.Second
	// lookEvery is the pause between two looks.
	lookEvery = 5 * time.Millisecond
	// maxSteps is how often Advance delivers what becomes due.
	maxSteps = 1000
)

// Drain runs a forwarder until nothing is due: every published notification is delivered or
// dead, or waits for its time or behind an earlier one of its key. That includes what handlers
// publish meanwhile. It does not wait for scheduled deliveries, retries, failed hooks and collections: see
// [Advance]. Only if a sink has on_dead: halt, its collections are due at once. The hours of sinks do not
// count: a test has the same result at night.
//
// It fails the test if a delivery is dead then, and says why it died: see [AllowDead]. After 30 s it fails the
// test and lists what is left. It never removes rows: retention is off,
// whatever the configuration says. Each call opens and closes the sinks that are a
// sinks.Opener or sinks.Closer.
func Drain(t testing.TB, c forwarder.Config, options ...DrainOption) {
	t.Helper()
	r := newDrain(t, c)
	r.run(t)
	r.requireNoneDead(t, options)
}

// DrainOption is an option of Drain and Advance.
type DrainOption struct{ allowDead bool }

// AllowDead lets deliveries be dead after Drain or Advance, for tests of what happens then. Without it the test
// fails, also for those that were dead before: requeue or discard them, or allow them again.
func AllowDead() DrainOption { return DrainOption{allowDead: true} }

// Advance drains, and then delivers what becomes due within d, in the order of the times, as if
// d had passed: scheduled deliveries, retries, failed hooks and collections, and all that follows from
// them. It moves the times of parked deliveries instead of waiting. It changes no clock: DeliverAt
// of later notifications, Collect.MaxWait, Retry.MaxAge and a breaker's pauses still count
// from the real time. The hours of sinks do not count, and nothing may be dead at the end: see [Drain].
func Advance(t testing.TB, c forwarder.Config, d time.Duration, options ...DrainOption) {
	t.Helper()
	r := newDrain(t, c)
	r.run(t)
	for range maxSteps {
		step := d
		if next := r.next(t); !next.IsZero() {
			step = min(d, max(0, time.Until(next))+time.Millisecond)
		}
		r.shift(t, step)
		r.run(t)
		if d -= step; d <= 0 {
			r.requireNoneDead(t, options)
			return
		}
	}
	t.Fatalf("deliveries became due %d times and %s are left to advance: advance in shorter steps\n%s", maxSteps, d, r.left(t))
}

// inspected is a store that can report its content, as Waybill's stores can.
type inspected interface {
	forwarder.Store
	store.Inspector
}

// drain is one call of Drain or Advance.
type drain struct {
	config forwarder.Config
	store  inspected
	query  store.SampleQuery
	sinks  []string
	ctx    context.Context
	// patience is how long run waits.
	patience time.Duration
}

func newDrain(t testing.TB, c forwarder.Config) *drain {
	t.Helper()
	require.NotNil(t, c.Store, "the configuration has no Store: take that of Outbox.Forwarding, after Outbox.Open")
	s, ok := c.Store.(inspected)
	require.True(t, ok, "store %T is not a store.Inspector", c.Store)
	c.Poll = 4 * lookEvery
	timeless := make(map[string]forwarder.Sink, len(c.Sinks))
	for name, sink := range c.Sinks {
		sink.Hours = forwarder.Hours{} // they follow the real clock
		timeless[name] = sink
	}
	c.Sinks = timeless
	c.Retention, c.InboxRetention = forwarder.KeepForever, forwarder.KeepForever
	c.Sinks = maps.Clone(c.Sinks)
	for name, s := range c.Sinks {
		c.Sinks[name] = parking(s)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	r := &drain{config: c, store: s, sinks: c.Only, ctx: t.Context(), patience: patience}
	if len(r.sinks) == 0 {
		r.sinks = slices.Sorted(maps.Keys(c.Sinks))
	}
	routes, err := c.Table()
	require.NoError(t, err)
	r.query.Types = routes.Filters()
	r.query.Types[store.SinkUnrouted] = routes.Unrouted()
	return r
}

// parking makes a sink park what would wait in memory, so that Advance can move its time. That does not hold back
// a key: a sink that must waits only a moment.
func parking(s forwarder.Sink) forwarder.Sink {
	if c := s.Collect.WithDefaults(); c.InMemory() && s.OnDead == forwarder.OnDeadHalt {
		s.Collect.Wait, s.Collect.MaxWait = 10*lookEvery, 10*lookEvery
	} else if c.InMemory() {
		s.Collect.By = "(key)"
	}
	return s
}

// run runs a forwarder until nothing is due.
func (r *drain) run(t testing.TB) {
	t.Helper()
	f, err := forwarder.New(r.config)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(r.ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	end := func() error { stop(); return <-ended }
	deadline, look := time.After(r.patience), time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case err := <-ended:
			t.Fatalf("the forwarder ended: %v", err)
		case <-deadline:
			left := r.left(t)
			t.Fatalf("something is still due after %s:\n%s%v", r.patience, left, errText(end()))
		case <-look.C:
		}
		idle, err := r.idle()
		if err != nil || idle {
			require.NoError(t, end())
			require.NoError(t, err)
			return
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// idle reports whether nothing is due. If between two probes the log has not grown, all of it
// is settled and nothing is due, then nothing was in flight that could publish more.
func (r *drain) idle() (bool, error) {
	before, err := r.store.Probe(r.ctx)
	if err != nil {
		return false, err
	}
	sample, err := r.store.Sample(r.ctx, r.query)
	if err != nil {
		return false, err
	}
	settled := make(map[string]bool)
	for _, s := range sample.Sinks {
		if (s.Pending > 0 || s.Estimated) && r.mine(s.Sink) {
			return false, nil
		}
		settled[s.Sink] = len(s.Lanes) > 0
	}
	for _, sink := range r.sinks {
		if !settled[sink] {
			return false, nil // its cursors do not exist yet
		}
	}
	waiting, err := r.waiting()
	if err != nil {
		return false, err
	}
	now := time.Now()
	for i := range waiting {
		if !waiting[i].DueAt.After(now) {
			return false, nil
		}
	}
	after, err := r.store.Probe(r.ctx)
	return err == nil && before.Last() == after.Last() && sample.LastOffset == after.Last(), err
}

// mine reports whether the forwarder works on a sink.
func (r *drain) mine(sink string) bool {
	return sink == store.SinkUnrouted || slices.Contains(r.sinks, sink)
}

// parked returns all parked deliveries of the sinks.
func (r *drain) parked() (all []store.ParkedDelivery, err error) {
	var after store.ParkedPlace
	for {
		page, err := r.store.FindParked(r.ctx, store.ParkedFilter{}, after, 1000)
		if err != nil || len(page) == 0 {
			return all, err
		}
		after = page[len(page)-1].Place()
		for _, p := range page {
			if r.mine(p.Sink) {
				all = append(all, p)
			}
		}
	}
}

// shownDead is how many dead deliveries a failure describes.
const shownDead = 5

// requireNoneDead fails the test if a delivery of the sinks, or one without a route, is dead.
func (r *drain) requireNoneDead(t testing.TB, options []DrainOption) {
	t.Helper()
	if slices.Contains(options, AllowDead()) {
		return
	}
	all, err := r.parked()
	require.NoError(t, err)
	dead := slices.DeleteFunc(all, func(p store.ParkedDelivery) bool { return p.State != store.StateDead })
	if len(dead) == 0 {
		return
	}
	var lines strings.Builder
	for _, p := range dead[:min(shownDead, len(dead))] {
		fmt.Fprintf(&lines, "\n%s %s to %s: %s", p.Envelope.Type, p.Envelope.ID, p.Sink, p.LastError)
	}
	if more := len(dead) - shownDead; more > 0 {
		fmt.Fprintf(&lines, "\nand %d more", more)
	}
	t.Errorf("%d deliveries are dead; if the test expects that, add waybilltest.AllowDead():%s", len(dead), lines.String())
	t.FailNow()
}

// waiting returns the deliveries that will be tried again, or whose hook will be called again:
// at DueAt, or at once if that is zero. Deliveries behind another one of their key are left out.
func (r *drain) waiting() (waiting []store.ParkedDelivery, err error) {
	all, err := r.parked()
	if err != nil {
		return nil, err
	}
	type key struct{ sink, key string }
	held := make(map[key]bool)
	if waiting, err = r.collections(all); err != nil {
		return nil, err
	}
	for i := range all { // ordered by sink and offset
		p := &all[i]
		k := key{p.Sink, p.Envelope.Key}
		behind := k.key != "" && held[k]
		waits, holds := false, false
		switch p.State {
		case store.StateDead:
			waits, holds = !p.DueAt.IsZero(), r.config.Sinks[p.Sink].OnDead == forwarder.OnDeadHalt
		case store.StateSettling:
			waits = true
		case store.StateCollecting:
			waits = !p.DueAt.IsZero()
		case store.StateRetrying, store.StateQuiet:
			waits, holds = true, true
		case store.StateScheduled, store.StateCancelled:
			waits = !behind
		case store.StateBlocked:
			waits, holds = !behind, true
		}
		if waits {
			waiting = append(waiting, *p)
		}
		held[k] = held[k] || holds
	}
	return waiting, nil
}

// collections returns a member of each open collection, with the time of the collection, except of those that
// are closed after an earlier one of their group.
func (r *drain) collections(all []store.ParkedDelivery) (open []store.ParkedDelivery, err error) {
	type group struct{ sink, name string }
	known := make(map[group]bool)
	for _, p := range all {
		of := group{p.Sink, p.Group}
		if p.State != store.StateCollecting || p.InCollection() || known[of] {
			continue
		}
		known[of] = true
		c, err := r.store.Collection(r.ctx, p.Sink, store.CollectionRef{Group: p.Group})
		if err != nil {
			return nil, err
		}
		if p.DueAt = c.DueAt; c.Members > 0 && c.Behind == "" {
			open = append(open, p)
		}
	}
	return open, nil
}

// next returns the time when the first delivery becomes due, or zero.
func (r *drain) next(t testing.TB) (next time.Time) {
	t.Helper()
	waiting, err := r.waiting()
	require.NoError(t, err)
	for _, p := range waiting {
		if next.IsZero() || p.DueAt.Before(next) {
			next = p.DueAt
		}
	}
	return next
}

// shift moves the times of all parked deliveries earlier. It leases their lanes for that.
func (r *drain) shift(t testing.TB, by time.Duration) {
	t.Helper()
	all, err := r.parked()
	require.NoError(t, err)
	open, err := r.collections(all)
	require.NoError(t, err)
	members, err := r.store.Membership(r.ctx)
	require.NoError(t, err)
	in := func(l store.Lane, p *store.ParkedDelivery) bool {
		slot := p.Envelope.Slot
		return p.Sink == l.Sink && l.Slots.First <= slot && slot <= l.Slots.Last
	}
	for _, l := range members.Lanes {
		var moved []store.Parked
		for _, p := range all {
			if in(l.Lane, &p) && !p.DueAt.IsZero() {
				p.DueAt = p.DueAt.Add(-by)
				if p.State == store.StateCancelled { // no checkpoint writes this state
					p.State = store.StateScheduled
				}
				moved = append(moved, p.Parked)
			}
		}
		due := slices.DeleteFunc(slices.Clone(open), func(p store.ParkedDelivery) bool { return !in(l.Lane, &p) })
		if len(moved) == 0 && len(due) == 0 {
			continue
		}
		lease, err := r.store.Acquire(r.ctx, l.Lane, "waybilltest", patience)
		require.NoError(t, err, "another forwarder works on sink %s: drain with a single one", l.Lane.Sink)
		require.NoError(t, r.store.Checkpoint(r.ctx, store.Checkpoint{Lease: lease, TTL: patience, Park: moved}))
		for _, p := range due { // a member that is parked already only moves the time
			wait := time.Until(p.DueAt) - by
			require.NoError(t, r.store.Checkpoint(r.ctx, store.Checkpoint{Lease: lease, TTL: patience, Collect: []store.Parked{p.Parked}, CollectTerms: store.CollectTerms{Wait: wait, MaxWait: wait}}))
		}
		require.NoError(t, r.store.Release(r.ctx, lease))
	}
}

// left describes what is not settled.
func (r *drain) left(t testing.TB) string {
	t.Helper()
	sample, err := r.store.Sample(r.ctx, r.query)
	require.NoError(t, err)
	members, err := r.store.Membership(r.ctx)
	require.NoError(t, err)
	all, err := r.parked()
	require.NoError(t, err)
	var b strings.Builder
	look := admin.Look{Sample: sample, Membership: members}
	for _, s := range sample.Sinks {
		if r.mine(s.Sink) && s.Pending > 0 {
			fmt.Fprintf(&b, "  %s: %d not settled\n", s.Sink, s.Pending)
		}
		for _, trouble := range look.Holding(s.Sink) {
			fmt.Fprintf(&b, "  %s: %s\n", s.Sink, trouble.Text)
		}
	}
	const most = 20
	for i, p := range all {
		if i == most {
			fmt.Fprintf(&b, "  … and %d more\n", len(all)-most)
			break
		}
		group := ""
		if p.Group != "" {
			group = " of group " + p.Group
		}
		class, cause := p.Failure()
		fmt.Fprintf(&b, "  %s: %s %s %s%s after attempt %d: %s\n", p.Sink, p.State, p.Envelope.Type, p.Envelope.ID, group, p.Attempt, cmp.Or(p.HookError, strings.TrimPrefix(class+": "+cause, ": ")))
	}
	return b.String()
}
