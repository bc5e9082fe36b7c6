package coordinate

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder/internal/presence"
	"github.com/waybill-go/waybill/framework/forwarder/internal/session"
	"github.com/waybill-go/waybill/framework/forwarder/internal/settle"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

type laneID struct {
	sink   string
	number int // or wholeSink
}

const wholeSink = -1

func idOf(l store.Lane) laneID { return laneID{l.Sink, l.Number} }

// held is a lane that this forwarder works on.
type held struct {
	lane    store.Lane
	stop    context.CancelFunc
	leaving bool
	// revision is the latest revision that revised has signalled to the session.
	revision int64
	revised  chan struct{}
}

// revise signals to the session that a person has changed the parked deliveries.
func (h *held) revise(revision int64) {
	if h.revision == revision {
		return
	}
	h.revision = revision
	select {
	case h.revised <- struct{}{}:
	default: // already signalled
	}
}

func (h *held) leave() {
	h.leaving = true
	h.stop()
}

// acquire ignores stop: otherwise it could leave a lease behind that no forwarder knows.
func (k *Coordinator) acquire(lane store.Lane) (store.Lease, error) {
	ctx, cancel := k.inLease(k.db)
	defer cancel()
	lease, err := k.Store.Acquire(ctx, lane, k.Owner, k.Lease)
	lease.Lane.Database = k.Database
	return lease, err
}

func (k *Coordinator) release(lease store.Lease) error {
	ctx, cancel := k.inLease(k.db)
	defer cancel()
	return k.Store.Release(ctx, lease)
}

// take leases a lane and begins the work on it, unless another forwarder has already leased it.
// revision is the revision of the sink's parked deliveries as of the last look.
func (k *Coordinator) take(lane store.Lane, revision int64) error {
	id, sink := idOf(lane), k.Sinks[lane.Sink]
	if k.held[id] != nil || k.isChanging(lane.Sink) || time.Now().Before(k.trouble[id].Until()) {
		return nil
	}
	leased, term := time.Now(), k.Gate.Term()
	lease, err := k.acquire(lane)
	if errors.Is(err, store.ErrLeaseHeld) || errors.Is(err, store.ErrLanes) {
		return nil
	}
	if err != nil {
		return err
	}
	if !sink.takes(lane.Sink, lease.Types) {
		return k.release(lease) // its types were changed since the last look
	}
	revised := make(chan struct{}, 1)
	log, what := sink.Dispatcher.LogOf(k.Database), "beginning to work on a lane"
	if sink.Transactor != nil {
		what = "delivering in transactions"
	}
	failing := k.troubleWith(id, log.With("lane", lane.Number), what)
	session := k.session(sink, lease, leased, term)
	session.Revised, session.Begun = revised, failing.Over
	session.Targets = k.Feed.Since(time.Now())
	if sink.Shared {
		session.Feed = k.Feed
	}
	stop, cancel := context.WithCancel(k.stop)
	k.held[id] = &held{lane: lane, stop: cancel, revision: revision, revised: revised}
	event.Tell(k.Observer, &event.LeaseChange{Lane: lane, Won: true})
	go func() {
		defer cancel()
		err := session.Work(stop, k.stop, k.db)
		if !settle.Lost(err) {
			err = errors.Join(err, k.release(lease))
		}
		k.ended <- func() {
			delete(k.held, id)
			k.workedOn(log, lane, err)
		}
	}()
	return nil
}

// session returns a session with the fields that all lanes of the sink have in common. term is the term when
// the lease was requested.
func (k *Coordinator) session(sink Sink, lease store.Lease, leased time.Time, term presence.Term) *session.Session {
	return &session.Session{
		Store: k.Store, Dispatcher: sink.Dispatcher, Lease: lease, Leased: leased, TTL: k.Lease, Term: term, Types: *lease.Types,
		Hooks: sink.Hooks, Observer: k.Observer, Prompt: sink.Prompt, Transactor: sink.Transactor, ShutdownTimeout: k.ShutdownTimeout,
	}
}

func (k *Coordinator) troubleWith(id laneID, log *slog.Logger, what string) *pace.Trouble {
	if k.trouble[id] == nil {
		k.trouble[id] = pace.NewTrouble(log, what, 0)
	}
	return k.trouble[id]
}

// workedOn handles the end of a session.
func (k *Coordinator) workedOn(log *slog.Logger, lane store.Lane, err error) {
	event.Tell(k.Observer, &event.LeaseChange{Lane: lane, Err: err})
	switch {
	case err == nil || k.stop.Err() != nil:
	case errors.Is(err, store.ErrPosition), errors.Is(err, store.ErrUnsupported):
		k.fail(err)
	case settle.Lost(err):
		log.Warn("lane is given up", "lane", lane.Number, "error", err)
	case errors.Is(err, sinks.ErrExpired):
		k.trouble[idOf(lane)].Expected(err)
	default:
		k.trouble[idOf(lane)].Met(err)
	}
}
