package schedule

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
)

var (
	// errMoved: another process has already taken this turn.
	errMoved = errors.New("the schedule has moved on")
	errPanic = errors.New("panic in Make")
	errExit  = errors.New("the function Make ended its goroutine")
)

// take takes a turn: it writes the row, and publishes the tick with it.
func (s *Scheduler) take(ctx context.Context, j *job, t turn) error {
	var made any
	if !t.tick.IsZero() {
		var err error
		if made, err = call(ctx, j.Make, t.tick); err != nil {
			return err
		}
	}
	err := failpoint.Tick.Do(func() error { return s.write(ctx, t, made) })
	switch {
	case errors.Is(err, errMoved), errors.Is(err, store.ErrCollision):
		return nil
	case err != nil:
		return err
	}
	log := s.config.Logger.With("schedule", j.Name)
	switch {
	case t.setBack:
		log.Warn("the database's clock was set back: the schedule begins from now", "stored_next", t.from.NextTick, "now", t.from.ReadAt, "next", t.to.NextTick)
	case t.from.Spec != t.to.Spec && t.from.Spec != "":
		log.Info("the schedule has changed: it begins from now", "from", t.from.Spec, "to", t.to.Spec, "next", t.to.NextTick)
	case t.passes():
		log.Info("missed ticks are skipped", "first", t.from.NextTick, "made", t.tick, "next", t.to.NextTick)
	}
	return nil
}

// write moves the row and appends the notification, in one short transaction.
func (s *Scheduler) write(ctx context.Context, t turn, made any) error {
	s.one.Lock()
	defer s.one.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p := s.config.Publisher
	return p.RunInTx(ctx, s.config.DB, nil, func(ctx context.Context, tx *sql.Tx) error {
		moved, err := s.config.Store.MoveSchedule(ctx, tx, t.to)
		switch {
		case err != nil:
			return err
		case !moved:
			return errMoved
		}
		mark := marking(t)
		switch made := made.(type) {
		case nil:
			return nil
		case notification.Envelope:
			made.Metadata = made.Metadata.Clone()
			mark(&made)
			return p.Append(ctx, tx, made)
		}
		err = p.Publish(ctx, tx, outbox.With(made, outbox.Amend(mark)))
		if errors.Is(err, outbox.ErrDuplicate) {
			s.config.Logger.Info("the tick publishes nothing", "schedule", t.from.Name, "tick", t.tick, "why", err)
			return nil
		}
		return err
	})
}

// marking returns a function that sets id and metadata from the schedule and the tick.
func marking(t turn) func(e *notification.Envelope) {
	tick := t.tick.Format(time.RFC3339Nano)
	return func(e *notification.Envelope) {
		if e.ID == "" {
			e.ID = t.from.NotificationID(t.tick)
		}
		e.Metadata[MetadataSchedule], e.Metadata[MetadataTick] = t.from.Name, tick
	}
}

// call calls Make, and returns without waiting for it when ctx ends.
func call(ctx context.Context, makeTick func(context.Context, time.Time) (any, error), tick time.Time) (any, error) {
	type result struct {
		made any
		err  error
	}
	returned := make(chan result, 1)
	go func() {
		r := result{err: errExit}
		defer func() { returned <- r }()
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("%w: %v\n%s", errPanic, p, debug.Stack())
			}
		}()
		r.made, r.err = makeTick(ctx, tick)
	}()
	select {
	case r := <-returned:
		return r.made, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
