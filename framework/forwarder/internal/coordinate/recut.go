package coordinate

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/framework/forwarder/internal/feed"
	"github.com/waybill-go/waybill/framework/forwarder/internal/settle"
	"github.com/waybill-go/waybill/framework/store"
)

// recut releases the lanes of a sink that will be cut into another number of lanes. When all of
// them are free, the forwarder that leases all of them cuts them.
func (k *Coordinator) recut(sink string, lanes []store.LaneState) {
	worked := k.Sinks[sink]
	free := true
	for _, l := range lanes {
		if h := k.held[idOf(l.Lane)]; h != nil && !h.leaving {
			h.leave()
		}
		free = free && l.Owner == "" && worked.mayCut(sink, l.Types) // otherwise its types change first
	}
	id := laneID{sink, wholeSink}
	if !free || k.cutting[sink] != nil || time.Now().Before(k.trouble[id].Until()) {
		return
	}
	log := worked.Dispatcher.LogOf(k.Database)
	failing := k.troubleWith(id, log, "cutting the lanes")
	wanted, cancel := context.WithCancel(k.stop)
	k.cutting[sink] = cancel
	log.Info("cutting the lanes", "lanes", len(lanes), "wanted", lanes[0].Wanted)
	go func() {
		defer cancel()
		err := k.cut(wanted, worked, lanes)
		k.ended <- func() {
			delete(k.cutting, sink)
			switch {
			case err == nil:
				failing.Over()
				log.Info("the lanes are cut", "lanes", lanes[0].Wanted)
			case wanted.Err() != nil, settle.Lost(err), errors.Is(err, store.ErrLeaseHeld), errors.Is(err, store.ErrLanes):
				// another forwarder does it, or it is no longer wanted
			default:
				failing.Met(err)
			}
		}
	}()
}

// cut brings all lanes of a sink to the same position and cuts them there, if that is still
// wanted by then.
func (k *Coordinator) cut(wanted context.Context, sink Sink, lanes []store.LaneState) (err error) {
	var leases []store.Lease
	defer func() {
		if err == nil {
			return
		}
		for _, lease := range leases {
			err = errors.Join(err, k.release(lease))
		}
	}()
	leased, term := time.Now(), k.Gate.Term()
	for _, l := range lanes {
		lease, err := k.acquire(l.Lane)
		if err != nil {
			return err
		}
		leases = append(leases, lease)
		if !sink.mayCut(l.Lane.Sink, lease.Types) {
			return store.ErrLanes
		}
	}
	ctx, cancel := k.inLease(wanted)
	defer cancel()
	target, err := k.Store.Probe(ctx)
	if err != nil {
		return err
	}
	sessions, stop := errgroup.WithContext(wanted)
	for _, lease := range leases {
		session := k.session(sink, lease, leased, term)
		session.Targets = feed.Only(target)
		sessions.Go(func() error { return session.Work(stop, k.stop, k.db) })
	}
	if err := sessions.Wait(); err != nil {
		return err
	}
	if err := wanted.Err(); err != nil {
		return err
	}
	ctx, cancel = k.inLease(k.db)
	defer cancel()
	return k.Store.Recut(ctx, lanes[0].Lane.Sink, leases)
}
