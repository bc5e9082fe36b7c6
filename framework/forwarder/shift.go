package forwarder

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// shift is this forwarder's work on one leased lane, from the lease to its end.
type shift struct {
	*run
	courier *courier
	lease   store.Lease
	leased  time.Time // before the lease was asked for
	to      horizon
	// revised tells that a person has changed what is parked; nil: nobody tells.
	revised chan struct{}
}

// work works on the lane until stop is done, or the horizon is reached and all up
// to there is settled. Either way it lets what is in flight end, within the
// shutdown timeout, writes the last checkpoint and gives nil; the lease is still
// held. begun is called once it works. Its errors are those of the database, and
// of a lease that is lost.
func (s *shift) work(stop context.Context, begun func()) error {
	reader, err := s.config.Store.NewReader(s.lease.Position, store.Filter{
		Slots: s.lease.Lane.Slots, Types: s.types(s.courier.name), Server: s.lease.Server,
	})
	if err != nil {
		return err
	}
	deliveries, cutOff := context.WithCancel(context.WithoutCancel(stop))
	defer cutOff()
	l := newLane(s.courier, s.config.Store, s.lease, s.leased, s.config.Lease, deliveries)
	defer l.void()
	settler := newSettler(l, s.leased, s.revised)
	if err := s.restore(stop, l, settler); err != nil {
		return err
	}
	begun()

	reading, stopReading := context.WithCancel(stop)
	settling, stopSettling := context.WithCancel(context.WithoutCancel(stop))
	defer stopSettling()
	level := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() {
		if l.read(reading, reader, s.to, newTrouble(l.log, "reading the log")) && l.waitForLevel(reading) {
			close(level)
		}
	})
	settled := make(chan error, 1)
	go func() { settled <- settler.run(settling, s.db) }()

	select {
	case err = <-settled: // the lease is lost
		stopReading()
		readers.Wait()
		l.drop(s.stop, cutOff)
		return err
	case <-level:
	case <-stop.Done():
	}
	stopReading()
	readers.Wait()
	l.close(s.config.ShutdownTimeout, cutOff)
	stopSettling()
	if err := <-settled; err != nil {
		l.log.Error("the last checkpoint was not written; what was delivered since will be repeated", "error", err)
		return err
	}
	return nil
}

// restore loads what is parked, and renews the lease meanwhile.
func (s *shift) restore(stop context.Context, l *lane, settler *settler) error {
	ctx, cancel := context.WithCancel(stop)
	defer cancel()
	restored := make(chan error, 1)
	go func() { restored <- l.restore(ctx) }()
	renewal := time.NewTicker(s.config.Lease / 3)
	defer renewal.Stop()
	for {
		select {
		case err := <-restored:
			return errors.Join(err, settler.renew(stop))
		case <-renewal.C:
			if err := settler.renew(stop); lost(err) {
				cancel()
				err = errors.Join(err, <-restored)
				return err
			}
		}
	}
}
