package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
)

// act is what people do.
func (w *world) act(o op) {
	if !slices.Contains(peopleActions, o.Do) {
		w.breaks("there is no operation %q", o.Do)
		return
	}
	var err error
	switch o.Do {
	case "pause-sink":
		_, err = w.admin.Pause(w.ctx, o.Sink)
	case "resume-sink":
		_, err = w.admin.Resume(w.ctx, o.Sink)
	case "requeue":
		err = w.requeue(o.Sink)
	case "discard":
		err = w.discard(o)
	case "replay":
		err = w.replay(o.Sink)
	case "reroute":
		err = w.reroute()
	case "cancel":
		err = w.cancel(o)
	}
	switch {
	case err == nil:
		w.count(o.Do)
	case errors.Is(err, store.ErrUnknownSink) || errors.Is(err, errLocked): // it has no cursors yet
	default:
		w.breaks("%s: %v", o, err)
	}
}

func (w *world) requeue(sink string) error {
	p, err := w.admin.Requeue(w.ctx, admin.Filter{Sink: sink})
	if err == nil {
		_, err = p.Run(w.ctx, nil)
	}
	return err
}

// discard deletes what is parked. What was not delivered before may be gone.
func (w *world) discard(o op) error {
	f := admin.Filter{Sink: o.Sink}
	if o.Mode == "any" {
		f.States = []store.State{store.StateRetrying, store.StateBlocked, store.StateScheduled, store.StateDead, store.StateSettling}
	}
	p, err := w.admin.Discard(w.ctx, f)
	if err != nil {
		return err
	}
	before := w.parked()
	_, err = p.Run(w.ctx, nil)
	after := w.parked()
	w.mu.Lock()
	defer w.mu.Unlock()
	for place := range before {
		if _, stays := after[place]; !stays && place.sink == o.Sink && w.byID[place.id] != nil {
			w.byID[place.id].dropped[o.Sink] = true
		}
	}
	return err
}

func (w *world) replay(sink string) error {
	w.mu.Lock()
	for _, r := range w.rows {
		r.replayed[sink]++
	}
	w.mu.Unlock()
	table, err := route.New(w.currentRoutes(), w.sinks, nil)
	if err != nil {
		return err
	}
	p, err := w.admin.Replay(w.ctx, admin.ReplayRequest{Sink: sink, Routed: table.Filter(sink)})
	if err == nil {
		_, err = p.Run(w.ctx, nil)
	}
	return err
}

func (w *world) reroute() error {
	if len(w.routes) == 0 {
		return nil
	}
	table, err := route.New(w.currentRoutes(), w.sinks, nil)
	if err != nil {
		return err
	}
	p, err := w.admin.Reroute(w.ctx, admin.Filter{}, table)
	if err != nil {
		return err
	}
	for place := range w.parked() {
		if r := w.row(place.id); r != nil && place.sink == store.SinkUnrouted {
			r.moved = true
		}
	}
	_, err = p.Run(w.ctx, nil)
	return err
}

// cancel cancels a notification that is scheduled.
func (w *world) cancel(o op) error {
	var scheduled []*row
	w.mu.Lock()
	for _, r := range w.rows {
		if r.DeliverAt.After(time.Now()) && !r.cancelled {
			scheduled = append(scheduled, r)
		}
	}
	w.mu.Unlock()
	if len(scheduled) == 0 {
		return nil
	}
	r := scheduled[o.Seed%uint64(len(scheduled))]
	cancelled := 0
	err := w.publisher.RunInTx(w.ctx, w.own.db, nil, func(ctx context.Context, tx *sql.Tx) (err error) {
		cancelled, err = w.publisher.CancelID(ctx, tx, r.ID)
		return err
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && cancelled > 0 && time.Now().Before(r.DeliverAt) {
		r.cancelled = true
	} else if cancelled > 0 {
		for _, sink := range w.sinks {
			r.dropped[sink] = true // it may be gone
		}
	}
	return err
}
