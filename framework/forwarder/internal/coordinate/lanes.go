package coordinate

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/lane"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/store"
)

type laneID struct {
	sink   string
	number int // or wholeSink
}

const wholeSink = -1

func idOf(l store.Lane) laneID { return laneID{l.Sink, l.Number} }

// held is a lane that is worked on.
type held struct {
	stop    context.CancelFunc
	leaving bool
	// revision is the latest revision of what is parked that revised has signalled
	// to the session.
	revision int64
	revised  chan struct{}
}

// revise signals to the session that a person has changed what is parked.
func (h *held) revise(revision int64) {
	if h.revision == revision {
		return
	}
	h.revision = revision
	select {
	case h.revised <- struct{}{}:
	default: // it is signalled already
	}
}

func (h *held) leave() {
	h.leaving = true
	h.stop()
}

// acquire does not heed stop: otherwise it could leave behind a lease that no
// forwarder knows of.
func (k *Coordinator) acquire(lane store.Lane) (store.Lease, error) {
	ctx, cancel := k.inLease(k.db)
	defer cancel()
	return k.Store.Acquire(ctx, lane, k.Owner, k.Lease)
}

func (k *Coordinator) release(lease store.Lease) error {
	ctx, cancel := k.inLease(k.db)
	defer cancel()
	return k.Store.Release(ctx, lease)
}

// take leases a lane and begins the work on it, unless another forwarder was quicker.
// revision is that of what is parked, as of a moment before.
func (k *Coordinator) take(lane store.Lane, revision int64) error {
	id, sink := idOf(lane), k.Sinks[lane.Sink]
	if k.held[id] != nil || k.isChanging(lane.Sink) || time.Now().Before(k.trouble[id].Until()) {
		return nil
	}
	leased := time.Now()
	lease, err := k.acquire(lane)
	if errors.Is(err, store.ErrLeaseHeld) || errors.Is(err, store.ErrLanes) {
		return nil
	}
	if err != nil {
		return err
	}
	revised := make(chan struct{}, 1)
	log, what := sink.Dispatcher.LogOf(k.Database), "beginning to work on a lane"
	if sink.Transactor != nil {
		what = "delivering in transactions"
	}
	failing := k.troubleWith(id, log.With("lane", lane.Number), what)
	session := k.session(sink, lease, leased)
	session.Revised, session.Begun = revised, failing.Over
	session.Targets = k.Feed.Since(time.Now())
	if sink.Shared {
		session.Feed = k.Feed
	}
	stop, cancel := context.WithCancel(k.stop)
	k.held[id] = &held{stop: cancel, revision: revision, revised: revised}
	if k.Observer != nil {
		k.Observer.LeaseWon(lane)
	}
	go func() {
		defer cancel()
		err := session.Work(stop, k.stop, k.db)
		if !lost(err) {
			err = errors.Join(err, k.release(lease))
		}
		k.ended <- func() {
			delete(k.held, id)
			k.workedOn(log, lane, err)
		}
	}()
	return nil
}

// session is the work on a lane, as far as all lanes of the sink have it in common.
func (k *Coordinator) session(sink Sink, lease store.Lease, leased time.Time) *lane.Session {
	return &lane.Session{
		Store: k.Store, Dispatcher: sink.Dispatcher, Lease: lease, Leased: leased, TTL: k.Lease, Types: sink.Types,
		Hooks: sink.Hooks, Observer: k.Observer, Prompt: sink.Prompt, Transactor: sink.Transactor, ShutdownTimeout: k.ShutdownTimeout,
	}
}

func (k *Coordinator) troubleWith(id laneID, log *slog.Logger, what string) *pace.Trouble {
	if k.trouble[id] == nil {
		k.trouble[id] = pace.NewTrouble(log, what, 0)
	}
	return k.trouble[id]
}

// workedOn reports the end of a session.
func (k *Coordinator) workedOn(log *slog.Logger, lane store.Lane, err error) {
	if k.Observer != nil {
		k.Observer.LeaseLost(lane, err)
	}
	switch {
	case err == nil || k.stop.Err() != nil:
	case errors.Is(err, store.ErrPosition), errors.Is(err, store.ErrUnsupported):
		k.fail(err)
	case lost(err):
		log.Warn("lane is given up", "lane", lane.Number, "error", err)
	default:
		k.trouble[idOf(lane)].Met(err)
	}
}
