// Package history samples an outbox regularly, and keeps the figures of its last hour in memory.
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

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/store"
)

const (
	// sampleTime limits one sample. With a backlog in many lanes, a sample takes seconds.
	sampleTime = time.Minute
	// waitTime is how long a page waits for a new snapshot.
	waitTime = 100 * time.Millisecond
	// pause is the interval of samples while no one asks for a snapshot, and fresh the age from
	// which on a request triggers a new sample.
	pause = 10 * time.Second
	fresh = 2 * time.Second
	// share limits the load: after a sample the next one waits for share times as long as it took,
	// but for at most longest.
	share   = 20
	longest = time.Minute
	// quick is how long a sample may take for pages to wait for the next one.
	quick = 100 * time.Millisecond
	// silence is when a sample that is still running means that the database does not answer.
	silence = 10 * time.Second
)

// Snapshot is an outbox at one moment.
type Snapshot struct {
	admin.Look
	// Held is the doctor's finding about a transaction that has held the log for
	// admin.HeldAfter; nil if there is none, or if the target has no doctor.
	Held *doctor.Finding
	// Holders are the sinks that keep rows in the log. KeptTooLong says that rows stay longer than
	// the retention.
	Holders     []store.Holder
	KeptTooLong bool
	// Err is why samples have failed since At; nil if they have not.
	Err error

	departed []store.Member // forwarders that have ended; only in the first snapshot
}

// History samples the outbox that the dashboard shows. It is safe for concurrent use.
type History struct {
	target *target.Current
	log    *slog.Logger
	ctx    context.Context
	stop   context.CancelFunc
	begin  sync.Once
	work   sync.WaitGroup
	turn   chan struct{} // holds a value while a sample runs
	wake   chan struct{} // of capacity 1: someone asks for a new sample

	mu       sync.Mutex
	latest   Snapshot
	sampled  chan struct{} // closed and replaced after each sample, also after a failed one
	began    time.Time     // when the running sample began; zero if none runs
	tried    time.Time     // when the last sample began
	changes  int           // the number of Renew calls plus 1
	seen     int           // the value of changes when the last sample began
	took     time.Duration // the duration of the last sample; 0 if it failed
	series   map[string]*series
	reported map[source]counts // from the last sample; nil before the first one
}

// New returns a history of the current target. It starts nothing.
func New(t *target.Current, log *slog.Logger) *History {
	h := &History{
		target: t, log: log, turn: make(chan struct{}, 1), wake: make(chan struct{}, 1), sampled: make(chan struct{}),
		changes: 1, series: make(map[string]*series),
	}
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h
}

// Begin starts regular samples until Close. Further calls ask for a sample.
func (h *History) Begin() {
	h.begin.Do(func() { h.work.Go(h.run) })
	h.ask()
}

// Close ends the samples and waits for a running one to end.
func (h *History) Close() {
	h.stop()
	h.work.Wait()
}

// run samples the outbox after each pause and when asked, within the limits of share.
func (h *History) run() {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-timer.C:
		case <-h.wake:
		}
		if h.due() {
			h.sample(h.ctx)
		}
		h.mu.Lock()
		timer.Reset(max(pause, h.rest()))
		h.mu.Unlock()
	}
}

func (h *History) ask() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// due reports whether it is time for another sample.
func (h *History) due() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	age := time.Since(h.tried)
	return h.missing() || age >= fresh && age >= h.rest()
}

// missing reports whether no sample began after the last Renew, or none has succeeded yet. The
// caller holds mu.
func (h *History) missing() bool { return h.latest.Err == nil && h.seen < h.changes }

// Renew makes the last snapshot outdated, after a change of the outbox.
func (h *History) Renew() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes++
}

// rest returns the minimum time between samples. The caller holds mu.
func (h *History) rest() time.Duration { return min(share*h.took, longest) }

// Wait is like Snapshot, but it waits for the first snapshot, and for the first one after Renew,
// until ctx is done. It returns the error of the snapshot or of ctx.
func (h *History) Wait(ctx context.Context) (Snapshot, error) {
	for {
		h.mu.Lock()
		missing, sampled := h.missing(), h.sampled
		h.mu.Unlock()
		if !missing {
			s := h.Snapshot(ctx)
			return s, s.Err
		}
		h.ask()
		select {
		case <-sampled:
		case <-ctx.Done():
			return Snapshot{}, ctx.Err()
		}
	}
}

// Snapshot returns the last snapshot. If it is older than two seconds, Snapshot asks for a new
// sample, and waits for it for a moment unless samples are slow or fail. It returns the zero value
// before the first snapshot. If a sample runs for too long, the snapshot has an error.
func (h *History) Snapshot(ctx context.Context) Snapshot {
	h.mu.Lock()
	wait := h.missing() || h.latest.Err == nil && h.took <= quick
	sampled := h.sampled
	h.mu.Unlock()
	if h.due() {
		h.ask()
		if wait {
			ctx, cancel := context.WithTimeout(ctx, waitTime)
			defer cancel()
			select {
			case <-sampled:
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

// sample takes a snapshot, unless another one that began after the call was taken meanwhile.
func (h *History) sample(ctx context.Context) {
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
	changes := h.setBegan(began)
	defer h.setBegan(time.Time{})
	// Other requests wait for the sample, too, so it does not end with ctx.
	bounded, cancel := context.WithTimeout(h.ctx, sampleTime)
	defer cancel()
	taken, err := h.take(bounded, t)
	if now, _ := h.target.Get(); now != t || h.ctx.Err() != nil {
		return // the target was replaced or the history closed, which may be why take failed
	}
	h.keep(t, taken, err, began, changes)
}

// setBegan sets when the running sample began, and returns the number of changes before it.
func (h *History) setBegan(at time.Time) (changes int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began = at
	return h.changes
}

// keep stores a snapshot, or the error of taking it.
func (h *History) keep(t *target.Target, taken Snapshot, err error, began time.Time, changes int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.sampled)
	h.sampled = make(chan struct{})
	h.tried, h.took, h.seen = began, time.Since(began), changes
	if err != nil {
		h.took = 0 // a failure does not show how long a sample takes
		if h.latest.Err == nil {
			h.log.Warn("sampling the outbox for the dashboard failed, trying again", "error", err)
		}
		h.latest.Err = err
		return
	}
	if h.latest.Err != nil {
		h.log.Info("sampling the outbox for the dashboard works again")
	}
	h.latest = taken
	h.count(t, &h.latest)
}

// isRunning reports whether the forwarder of this process is running or starting, even before its
// first heartbeat.
func isRunning(f *forwarder.Forwarder) bool {
	if f == nil {
		return false
	}
	now := f.Figures()
	return now.Coordinated.IsZero() || time.Since(now.Coordinated) < now.Lease
}

// take takes a snapshot of an outbox.
func (h *History) take(ctx context.Context, t *target.Target) (s Snapshot, err error) {
	defer func() {
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = errors.New("the database did not answer within " + sampleTime.String())
		}
	}()
	if s.Sample, err = t.Store.Sample(ctx, store.SampleQuery{Types: t.Routing.Filters()}); err != nil {
		return s, err
	}
	if s.Membership, err = t.Store.Membership(ctx); err != nil {
		return s, err
	}
	if h.reported == nil { // only samples change it, one at a time
		if s.departed, err = t.Store.Departed(ctx); err != nil {
			return s, err
		}
	}
	s.Pauses, _ = admin.New(t.Store, "").Pauses(ctx, s.Membership) // a role that only forwards may not read them
	s.At = time.Now()
	if isRunning(t.Forwarder) {
		s.Sample.Forwarders = max(1, s.Sample.Forwarders)
	}
	if s.Sample.Held >= admin.HeldAfter && t.Doctor != nil {
		if found := t.Doctor(ctx, "held-transactions"); len(found) == 1 && found[0].Status != doctor.OK {
			s.Held = &found[0]
		}
	}
	s.KeptTooLong = s.Sample.Source == "" && keepsTooLong(t, s.Sample.Oldest)
	s.Holders, err = t.Store.Holders(ctx, nil)
	return s, err
}

// keepsTooLong reports whether a row is older than the retention of this process's forwarder allows.
func keepsTooLong(t *target.Target, oldest *store.Row) bool {
	return t.Forwarder != nil && oldest != nil && admin.KeptTooLong(time.Since(oldest.OccurredOn), t.Forwarder.Figures().Retention)
}
