// Package session does one forwarder's work on one leased lane of a sink, from the lease to its
// release: it reads the log, hands the rows to the dispatcher, and lets a checkpointer write
// the outcome.
package session

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder/internal/dispatch"
	"github.com/waybill-go/waybill/framework/forwarder/internal/feed"
	"github.com/waybill-go/waybill/framework/forwarder/internal/named"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/forwarder/internal/presence"
	"github.com/waybill-go/waybill/framework/forwarder/internal/settle"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// Store is what a session needs from an outbox.
type Store interface {
	store.Log
	store.Deliveries
}

// Session is the work on one lane. Feed, Observer, Revised, Begun and Transactor are optional.
type Session struct {
	Store      Store
	Dispatcher *dispatch.Dispatcher
	Lease      store.Lease
	// Leased is when the lease was requested.
	Leased time.Time
	TTL    time.Duration
	// Term is the term at that time; the zero value if there is no presence.
	Term presence.Term
	// Types are the types that go to the sink.
	Types notification.TypeFilter
	// Targets say how far to read.
	Targets feed.Targets
	// Feed reads for the lane after it has caught up; nil: the lane always reads itself.
	Feed     *feed.Feed
	Hooks    policy.Hooks
	Observer event.Observer
	// Revised signals that a person has changed the parked deliveries.
	Revised <-chan struct{}
	// Prompt means that a position that moved without any delivery is written soon.
	Prompt bool
	// ShutdownTimeout is how long deliveries in flight may take to end.
	ShutdownTimeout time.Duration
	// Begun is called when the work on the lane has begun; with a Transactor, after each
	// committed round.
	Begun func()
	// Transactor is the sink if it delivers exactly once; nil: at least once.
	Transactor sinks.Transactor

	lane *dispatch.Lane
	log  *slog.Logger
}

// Work works on the lane until stop is done, or until the only target is reached and everything
// up to it is settled. Then it lets deliveries in flight end within the shutdown timeout,
// writes the last checkpoint and returns nil; the lease is still held. It returns errors of the
// database, and those of a lost lease.
//
// db bounds all use of the database. After the lease is lost, Work waits for a sink that
// ignores its context until shutdown is done: then the whole process stops.
func (s *Session) Work(stop, shutdown, db context.Context) error {
	filter := store.Filter{Slots: s.Lease.Lane.Slots, Types: s.Types, Server: s.Lease.Server}
	reader, err := s.Store.NewReader(s.Lease.Position, filter)
	if err != nil {
		return err
	}
	s.log = s.Dispatcher.LogOf(s.Lease.Lane.Database).With("lane", s.Lease.Lane.Number)
	deliveries, cutOff := context.WithCancel(context.WithoutCancel(stop))
	defer cutOff()
	s.lane = s.Dispatcher.Join(deliveries, s.Lease, s.Leased, s.TTL, s.Term)
	defer s.lane.Leave()
	config := settle.Config{
		Store: s.Store, Lane: s.lane, Lease: s.Lease, Leased: s.Leased, TTL: s.TTL,
		Collect: s.Dispatcher.Collect(), Halt: s.Dispatcher.Settings().OnDead == settings.OnDeadHalt, Hooks: s.Hooks, Observer: s.Observer,
		Revised: s.Revised, Prompt: s.Prompt, Logger: s.log,
	}
	checkpointer, closeLedger, err := s.checkpointer(stop, config)
	defer closeLedger()
	if err != nil {
		s.lane.Remember(nil) // deliveries of the previous lease
		if stop.Err() != nil {
			return nil // nothing has begun
		}
		return err
	}
	if s.Begun != nil && s.Transactor == nil {
		s.Begun()
	}

	reading, stopReading := context.WithCancel(stop)
	settling, stopSettling := context.WithCancel(context.WithoutCancel(stop))
	defer stopSettling()
	reached := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() {
		if s.read(reading, reader, filter) && s.lane.WaitUntilSettled(reading) {
			close(reached)
		}
	})
	settled := make(chan error, 1)
	go func() { settled <- checkpointer.Run(settling, db) }()

	select {
	case err = <-settled: // the lease is lost
		s.lane.GiveUp(err)
		stopReading()
		readers.Wait()
		s.lane.Drop(shutdown, cutOff)
		s.lane.Remember(checkpointer.Unwritten())
		return err
	case <-reached:
	case <-stop.Done():
	}
	stopReading()
	readers.Wait()
	s.lane.Close(s.ShutdownTimeout, cutOff)
	stopSettling()
	if err := <-settled; err != nil {
		s.lane.Remember(checkpointer.Unwritten())
		s.log.Error("the last checkpoint was not written: later deliveries will be repeated", "error", err)
		return err
	}
	return nil
}

// checkpointer returns a checkpointer that knows which keys are held back and, with a Transactor,
// which deliveries were made and not written. The caller must call closeLedger, even after an
// error.
func (s *Session) checkpointer(ctx context.Context, c settle.Config) (_ *settle.Checkpointer, closeLedger func(), err error) {
	if s.Transactor == nil {
		k := settle.New(c)
		return k, func() {}, k.Restore(ctx)
	}
	return s.checkpointerWithLedger(ctx, c)
}

// read reads the log for the lane until ctx is done. It returns true if it has reached the last
// target.
func (s *Session) read(ctx context.Context, reader store.Reader, filter store.Filter) (reached bool) {
	failing := pace.NewTrouble(s.log, "reading the log", 0)
	for {
		target, newer := s.Targets.Latest()
		if target != nil {
			end, restarted, ok := s.catchUp(ctx, reader, target, failing)
			if !ok {
				return false
			}
			if newer == nil {
				return true
			}
			if restarted && s.Feed != nil { // the reader is after the target: only a later target can be its place
				s.Targets = s.Feed.Since(time.Now())
				continue
			}
			member := s.join(ctx, filter, target, end)
			if member != nil {
				from, ok := s.fed(ctx, member)
				if !ok {
					return false
				}
				if reader, ok = s.reopen(from, filter); !ok {
					return false
				}
				continue
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-newer:
		}
	}
}

// catchUp reads pages up to a target, and returns the position after it. restarted means that
// the reader had to begin again in another log.
func (s *Session) catchUp(ctx context.Context, reader store.Reader, target store.Target, failing *pace.Trouble) (end store.Position, restarted, ok bool) {
	for {
		limit, ok := s.lane.WaitForRoom(ctx)
		if !ok {
			return nil, false, false
		}
		asked := time.Now()
		page, err := reader.Next(ctx, target, limit)
		switch {
		case ctx.Err() != nil:
			return nil, false, false
		case errors.Is(err, store.ErrServerChanged):
			s.lane.GiveUp(err)
			return nil, false, false
		case err != nil:
			event.Tell(s.Observer, &event.DatabaseFailure{Op: event.OpRead, Err: err})
			if !pace.Sleep(ctx, failing.Met(err)) {
				return nil, false, false
			}
			continue
		}
		failing.Over()
		if page.Asked.IsZero() {
			page.Asked = asked
		}
		named.Stamp(s.Lease.Lane.Database, page.Envelopes)
		s.lane.Add(page)
		restarted = restarted || page.Rebased != ""
		if page.CaughtUp {
			return page.End, restarted, true
		}
	}
}

func (s *Session) join(ctx context.Context, filter store.Filter, at store.Target, end store.Position) *feed.Member {
	if s.Feed == nil {
		return nil
	}
	return s.Feed.Join(ctx, s.lane, filter, at, end)
}

// fed lets the feed read for the lane, and returns the position from which the lane must
// continue by itself; false when ctx is done.
func (s *Session) fed(ctx context.Context, m *feed.Member) (from store.Position, ok bool) {
	select {
	case <-ctx.Done():
		s.Feed.Leave(m)
		return nil, false
	case from := <-m.Left():
		return from, true
	}
}

func (s *Session) reopen(from store.Position, filter store.Filter) (store.Reader, bool) {
	raw, err := from.MarshalJSON()
	if err != nil {
		s.lane.GiveUp(err)
		return nil, false
	}
	reader, err := s.Store.NewReader(raw, filter)
	if err != nil {
		s.lane.GiveUp(err)
		return nil, false
	}
	return reader, true
}
