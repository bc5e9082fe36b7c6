package crashtest

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/internal/pace"
)

// Fault is a fault that happened.
type Fault struct {
	Kind   Kind
	Victim int // number of the forwarder or publisher; meaningless for faults of the database itself
	// Began and Ended are times since the first fault could have begun.
	Began, Ended time.Duration
	// Repeats is the number of deliveries that were repeated because of it; Bound is the largest
	// allowed number.
	Repeats, Bound int

	began, ended time.Time
	late         int  // repeats that the victim itself made, after others took its lanes
	locks        bool // it may have held a lock that harmed the other forwarders
}

// forwarder is the process of a forwarder, with its network links.
type forwarder struct {
	*process
	number             int
	toDatabase, toSink *link
	failpoints         string // a folder
}

func (h *harness) connect(f *forwarder) (err error) {
	if f.failpoints, err = os.MkdirTemp(h.folder, "forwarder"); err != nil {
		return err
	}
	if f.toDatabase, err = newLink(h.direct); err != nil {
		return err
	}
	f.toSink, err = newLink("http://" + h.sink.host)
	return err
}

func (f *forwarder) disconnect() {
	for _, l := range []*link{f.toDatabase, f.toSink} {
		if l != nil {
			_ = l.Close() // the link is no longer needed
		}
	}
}

// startForwarder starts a forwarder. Its links stay the same.
func (h *harness) startForwarder(f *forwarder) error {
	command := h.config.Forwarder(f.toDatabase.DSN(), fmt.Sprintf("%s/forwarder/%d", f.toSink.DSN(), f.number))
	command.Env = append(command.Environ(), failpoint.Variable+"="+f.failpoints)
	if err := h.starter.start(command); err != nil {
		return err
	}
	f.process = watch(command, fmt.Sprintf("forwarder %d", f.number), func() {}, h.fail)
	return nil
}

func (h *harness) stopForwarders() error {
	for _, f := range h.forwarders {
		if err := f.terminate(); err != nil {
			return fmt.Errorf("forwarder %d: %w", f.number, err)
		}
	}
	return nil
}

// harm causes the planned faults until Config.Duration is over.
func (h *harness) harm(ctx context.Context, began time.Time) error {
	harming, cancel := context.WithTimeout(ctx, h.config.Duration)
	defer cancel()
	var sequences errgroup.Group
	for sequence := range h.config.Sequences {
		sequences.Go(func() error {
			for p := newPlan(h.config, sequence); ; {
				s := p.next()
				if !pace.Sleep(harming, s.after) {
					return context.Cause(ctx)
				}
				if err := h.suffer(ctx, s, began); err != nil {
					cancel()
					return err
				}
			}
		})
	}
	return sequences.Wait()
}

// suffer lets a fault happen when no other one happens to the same part, and notes it.
func (h *harness) suffer(ctx context.Context, s step, began time.Time) error {
	part := s.kind.part()
	if part == "forwarder" || part == "publisher" {
		part += strconv.Itoa(s.victim)
	}
	turn, _ := h.turns.LoadOrStore(part, new(sync.Mutex))
	turn.(*sync.Mutex).Lock()
	defer turn.(*sync.Mutex).Unlock()
	f := Fault{Kind: s.kind, Victim: s.victim, began: time.Now()}
	f.Began = f.began.Sub(began)
	h.say("%8.3fs %s %d for %s%s", f.Began.Seconds(), s.kind, s.victim, s.length.Round(time.Millisecond), s.detail())
	err := h.inflict(ctx, s)
	f.ended = time.Now()
	f.Ended = f.ended.Sub(began)
	h.say("%8.3fs %s %d is over", f.Ended.Seconds(), s.kind, s.victim)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.report.Faults = append(h.report.Faults, f)
	if err != nil {
		return fmt.Errorf("%s %d: %w", s.kind, s.victim, err)
	}
	return nil
}

// say writes a line to the log.
func (h *harness) say(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fmt.Fprintf(h.config.Log, format+"\n", args...)
}

// watchMachine notices stalls that are longer than the limit, until the function that it returns is called, which
// returns them.
func watchMachine(began time.Time, limit time.Duration) (stalls func() []Fault) {
	var found []Fault
	ctx, stop := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		for last := time.Now(); pace.Sleep(ctx, limit/10); last = time.Now() {
			if now := time.Now(); now.Sub(last) > limit {
				found = append(found, Fault{Kind: Stall, Began: last.Sub(began), Ended: now.Sub(began), began: last, ended: now})
			}
		}
	})
	return func() []Fault {
		stop()
		watching.Wait()
		return found
	}
}

// inflict causes a fault, and returns when it is over.
func (h *harness) inflict(ctx context.Context, s step) error {
	switch s.kind {
	case RestartDatabase:
		return h.server.restart(ctx)
	case CrashDatabase:
		return h.crashDatabase(ctx)
	case EndSessions:
		return retry(ctx, func() error { return h.server.endSessions(ctx, h.db) })
	case StopSession:
		return h.stopSession(ctx, s)
	case FailOver:
		return h.failOver(ctx)
	case SetClock:
		if err := h.server.setClock(s.offset); err != nil {
			return err
		}
		pace.Sleep(ctx, s.length)
		return h.server.setClock(0)
	case PersonActs:
		return h.act(ctx, s)
	case KillPublisher:
		return h.killPublisher(ctx, s)
	}
	f := h.forwarders[s.victim]
	switch s.kind {
	case KillForwarder:
		f.kill()
		pace.Sleep(ctx, s.length)
		return h.startForwarder(f)
	case TerminateForwarder:
		if err := f.terminate(); err != nil {
			return err
		}
		pace.Sleep(ctx, s.length)
		return h.startForwarder(f)
	case PauseForwarder:
		if err := pause(f.process); err != nil {
			return err
		}
		pace.Sleep(ctx, s.length)
		return resume(f.process)
	case FailStep:
		return h.failStep(ctx, f, s)
	case Reload:
		return h.reload(f)
	case CutDatabase:
		return f.toDatabase.fail(ctx, f.toDatabase.cut, s.length)
	case CutSink:
		return f.toSink.fail(ctx, f.toSink.cut, s.length)
	case SlowDatabase:
		return f.toDatabase.fail(ctx, f.toDatabase.slow, s.length)
	case SilenceDatabase:
		return f.toDatabase.fail(ctx, f.toDatabase.Swallow, s.length)
	}
	return fmt.Errorf("%w: unknown fault %q", ErrConfig, s.kind)
}

// reload changes the configuration of a forwarder. The signal would end a forwarder that has just been started.
func (h *harness) reload(f *forwarder) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.config.Reload(f.Cmd, h.random); err != nil || time.Since(f.began) < startTime {
		return err
	}
	return f.Process.Signal(syscall.SIGHUP)
}

// retry repeats a function until it succeeds, for at most endTimeout.
func retry(ctx context.Context, do func() error) error {
	deadline := time.Now().Add(endTimeout)
	for {
		err := do()
		if err == nil || time.Now().After(deadline) || !pace.Sleep(ctx, 10*time.Millisecond) {
			return err
		}
	}
}

// killPublisher kills a publisher a moment after one of its transactions begins.
func (h *harness) killPublisher(ctx context.Context, s step) error {
	p := h.publishers[s.victim]
	select {
	case <-p.began: // the transaction may already have ended
	default:
	}
	select {
	case <-p.began:
		pace.Sleep(ctx, s.length/100)
	case <-time.After(endTimeout):
		return fmt.Errorf("%w: no transaction within %s", ErrEnded, endTimeout)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.kill()
	_ = p.input.Close() // the other end no longer exists
	pace.Sleep(ctx, s.length)
	next, err := h.startPublisher(s.victim)
	if err == nil {
		h.publishers[s.victim] = next
	}
	return err
}
