package dispatch

import (
	"context"
	"time"
)

// AbandonAfter is how long a sink may take to return after its context is done.
const AbandonAfter = 2 * time.Second

// endTime is how long calls in flight may take to end when a lease is lost, before they are
// cancelled. What they deliver is remembered.
const endTime = time.Second

// Close lets no further delivery begin and waits for those in flight. After the timeout it calls
// cutOff to cancel them.
func (l *Lane) Close(timeout time.Duration, cutOff context.CancelFunc) {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	l.closing = true
	late := time.AfterFunc(timeout, cutOff)
	defer late.Stop()
	l.drain(l.deadlines.parent)
}

// Drop discards all work of the lane and waits for its deliveries in flight, which are cancelled
// after a second. It stops waiting for a sink that ignores its context only when stop is done,
// so that this process never has a key in flight twice.
func (l *Lane) Drop(stop context.Context, cutOff context.CancelFunc) {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	l.giveUp(context.Canceled)
	late := time.AfterFunc(endTime, cutOff)
	defer late.Stop()
	l.drain(stop)
}

// drain waits until nothing of the lane is in flight, but at most AbandonAfter after cut is done.
func (l *Lane) drain(cut context.Context) {
	d := l.dispatcher
	giveUp := context.AfterFunc(cut, func() {
		time.AfterFunc(AbandonAfter, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			l.abandoned = true
			d.drained.Broadcast()
		})
	})
	defer giveUp()
	for l.inFlight > 0 && !l.abandoned {
		d.drained.Wait()
	}
	if l.inFlight > 0 {
		l.log.Warn("deliveries in flight were abandoned: the sink ignores its context", "count", l.inFlight)
	}
}

// returned records that n deliveries of the lane are no longer in flight.
func (l *Lane) returned(n int) {
	l.inFlight -= n
	if l.inFlight == 0 {
		l.dispatcher.drained.Broadcast()
	}
}

// Leave ends the lane: later results of it do not count.
func (l *Lane) Leave() {
	d := l.dispatcher
	d.mu.Lock()
	defer d.mu.Unlock()
	l.giveUp(context.Canceled)
	delete(d.lanes, l)
	d.shareRate()
	d.pending -= len(d.queue.Drop(func(it *item) bool { return it.lane == l })) + len(l.held) + l.keys.Drop()
	l.held = nil
	l.linger.stop()
	l.gather.forget()
	l.rows = 0
	l.space.Leave()
}
