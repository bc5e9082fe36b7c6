// Package history looks at an outbox again and again, and remembers its last hour.
//
// The files in the order in which to read them: history.go, series.go.
package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/store"
)

const (
	// lookTime bounds one look. With a backlog in many lanes one takes seconds.
	lookTime = time.Minute
	// waitTime is how long a page waits for a look.
	waitTime = 100 * time.Millisecond
	// pause is how far looks are apart at which no one asks for one, and fresh is how old the
	// last one may be for someone who does.
	pause = 10 * time.Second
	fresh = 2 * time.Second
	// share is the part of the time that looks may take: 1/share of it, unless they would be more
	// than longest apart.
	share   = 20
	longest = time.Minute
	// quick is how long a look may take for a page to wait for it.
	quick = 100 * time.Millisecond
	// silence is from when on a look that has not ended says that the database does not answer.
	silence = 10 * time.Second
)

// Look is an outbox at one moment.
type Look struct {
	// At is when that was; zero: there was no look yet.
	At         time.Time
	Sample     store.Sample
	Membership store.Membership
	// Sinks are what forwarders do for each sink, by name: the sums over all of them. A sink
	// that no heartbeat names is missing.
	Sinks map[string]store.SinkRunning
	// Held is the doctor's finding about the transaction that holds the log; nil: none has held it
	// for doctor.DefaultHeldAfter, or the target has no doctor.
	Held *doctor.Finding
	// Holders are the sinks that keep rows in the log, and KeptTooLong says that some are there for longer
	// than the retention.
	Holders     []store.Holder
	KeptTooLong bool
	// Err is why looks fail since then; nil: they do not.
	Err error
}

// History looks at the outbox that is shown. It is safe for concurrent use.
type History struct {
	target *target.Current
	log    *slog.Logger
	ctx    context.Context
	stop   context.CancelFunc
	begin  sync.Once
	work   sync.WaitGroup
	turn   chan struct{} // holds one value while someone looks
	kick   chan struct{} // capacity 1: someone asks for a fresh look

	mu     sync.Mutex
	latest Look
	looked chan struct{} // closed and replaced with each look, also if that failed
	began  time.Time     // of the look that goes on; zero: none does
	tried  time.Time     // when the last look began
	acts   int           // how often something was done, beginning with 1
	seen   int           // how many of these were before the last look
	took   time.Duration
	series map[string]*series
	told   map[source]done
}

// New returns a history of what is shown. It starts nothing.
func New(t *target.Current, log *slog.Logger) *History {
	h := &History{
		target: t, log: log, turn: make(chan struct{}, 1), kick: make(chan struct{}, 1), looked: make(chan struct{}),
		acts: 1, series: make(map[string]*series), told: make(map[source]done),
	}
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h
}

// Begin begins to look, also while no one asks, until Close. It may be called again.
func (h *History) Begin() {
	h.begin.Do(func() { h.work.Go(h.run) })
	h.ask()
}

// Close ends looking, and waits for that.
func (h *History) Close() {
	h.stop()
	h.work.Wait()
}

// run looks at each pause, and when someone asks, but for no more than its share of the time.
func (h *History) run() {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-timer.C:
		case <-h.kick:
		}
		if h.due() {
			h.look(h.ctx)
		}
		h.mu.Lock()
		timer.Reset(max(pause, h.rest()))
		h.mu.Unlock()
	}
}

func (h *History) ask() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// due reports whether it is time for another look.
func (h *History) due() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	age := time.Since(h.tried)
	return h.missing() || age >= fresh && age >= h.rest()
}

// missing reports whether there was no look yet, or none since Renew. The caller holds mu.
func (h *History) missing() bool { return h.latest.Err == nil && h.seen < h.acts }

// Renew says that something was done, which no look has seen yet.
func (h *History) Renew() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acts++
}

// rest is how far looks are apart at least, for what the last one took. The caller holds mu.
func (h *History) rest() time.Duration { return min(share*h.took, longest) }

// Wait is Look for programs: for the first look, and for the first one after Renew, it waits as long as ctx
// lasts. The error is why looks fail, or that of ctx.
func (h *History) Wait(ctx context.Context) (Look, error) {
	for {
		h.mu.Lock()
		missing, looked := h.missing(), h.looked
		h.mu.Unlock()
		if !missing {
			look := h.Look(ctx)
			return look, look.Err
		}
		h.ask()
		select {
		case <-looked:
		case <-ctx.Done():
			return Look{}, ctx.Err()
		}
	}
}

// Look returns the last look. If that is older than two seconds it looks again, and waits for that a
// moment, unless looks take long or fail. The zero Look is that there was no time yet for the first
// one. A look that does not end is an error too.
func (h *History) Look(ctx context.Context) Look {
	h.mu.Lock()
	wait := h.missing() || h.latest.Err == nil && h.took <= quick
	looked := h.looked
	h.mu.Unlock()
	if h.due() {
		h.ask()
		if wait {
			ctx, cancel := context.WithTimeout(ctx, waitTime)
			defer cancel()
			select {
			case <-looked:
			case <-ctx.Done():
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	latest := h.latest
	if !h.began.IsZero() && latest.Err == nil {
		if since := time.Since(h.began); since >= silence {
			latest.Err = fmt.Errorf("the database has not answered for %s", since.Round(time.Second))
		}
	}
	return latest
}

// look looks once, or waits for a look that began after the call.
func (h *History) look(ctx context.Context) {
	asked := time.Now()
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-h.turn }()
	h.mu.Lock()
	done := h.tried.After(asked)
	h.mu.Unlock()
	t, err := h.target.Get()
	if done || err != nil || h.ctx.Err() != nil {
		return
	}
	began := time.Now()
	acts := h.setBegan(began)
	defer h.setBegan(time.Time{})
	// Others wait for it too: it does not end with the one who asked.
	bounded, cancel := context.WithTimeout(h.ctx, lookTime)
	defer cancel()
	seen, err := take(bounded, t)
	if now, _ := h.target.Get(); now != t || h.ctx.Err() != nil {
		return // it may have failed for being closed
	}
	h.keep(t, seen, err, began, acts)
}

// setBegan notes when a look begins, and returns what was done before.
func (h *History) setBegan(at time.Time) (acts int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began = at
	return h.acts
}

// keep remembers a look, or why there was none.
func (h *History) keep(t *target.Target, seen Look, err error, began time.Time, acts int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.looked)
	h.looked = make(chan struct{})
	h.tried, h.took, h.seen = began, time.Since(began), acts
	if err != nil {
		h.took = 0 // it says nothing of how long a look takes
		if h.latest.Err == nil {
			h.log.Warn("looking at the outbox for the dashboard failed, trying again", "error", err)
		}
		h.latest.Err = err
		return
	}
	if h.latest.Err != nil {
		h.log.Info("looking at the outbox for the dashboard works again")
	}
	h.latest = seen
	h.count(t, &h.latest)
}

// works says that the forwarder of this process works, or is about to, whether or not its first
// heartbeat is written.
func works(f *forwarder.Forwarder) bool {
	if f == nil {
		return false
	}
	now := f.Figures()
	return now.Coordinated.IsZero() || time.Since(now.Coordinated) < now.Lease
}

// take looks at an outbox.
func take(ctx context.Context, t *target.Target) (seen Look, err error) {
	defer func() {
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = errors.New("the database did not answer within " + lookTime.String())
		}
	}()
	if seen.Sample, err = t.Store.Sample(ctx, store.SampleQuery{Types: t.Routing.Filters()}); err != nil {
		return seen, err
	}
	if seen.Membership, err = t.Store.Membership(ctx); err != nil {
		return seen, err
	}
	seen.At = time.Now()
	if works(t.Forwarder) {
		seen.Sample.Forwarders = max(1, seen.Sample.Forwarders)
	}
	if seen.Sample.Held >= doctor.DefaultHeldAfter && t.Doctor != nil {
		if found := t.Doctor(ctx, "held-transactions"); len(found) == 1 && found[0].Status != doctor.OK {
			seen.Held = &found[0]
		}
	}
	seen.KeptTooLong = seen.Sample.Source == "" && keepsTooLong(t, seen.Sample.Oldest)
	seen.Holders, err = t.Store.Holders(ctx, nil)
	return seen, err
}

// slack is for how long after its retention a row may stay in the log: it goes with its
// neighbours.
const slack = time.Hour

// keepsTooLong reports whether a row should have gone by the retention of this process's forwarder.
func keepsTooLong(t *target.Target, oldest *store.Row) bool {
	if t.Forwarder == nil || oldest == nil {
		return false
	}
	kept, age := t.Forwarder.Figures().Retention, time.Since(oldest.OccurredOn)
	return kept > 0 && age > kept && age-kept > slack
}
