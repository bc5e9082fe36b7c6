package dispatch

import (
	"context"
	"time"
)

// AbandonAfter is how long a sink may take to come back once its context is done.
const AbandonAfter = 2 * time.Second

// endTime is how long calls that are under way when a lease is lost have to end before
// they are cut off. What they deliver is remembered.
const endTime = time.Second

// Close lets no further delivery begin and waits for those in flight, which are cut off
// after a time.
func (l *Lane) Close(timeout time.Duration, cutOff context.CancelFunc) {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	l.closing = true
	late := time.AfterFunc(timeout, cutOff)
	defer late.Stop()
	l.drain(l.deadlines.parent)
}

// Drop makes everything of the lane void and waits for its deliveries, which are cut off
// after a second. A sink that does not heed its context is given up only once stop is
// done, so that this process has no key in flight twice.
func (l *Lane) Drop(stop context.Context, cutOff context.CancelFunc) {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	l.giveUp(context.Canceled)
	late := time.AfterFunc(endTime, cutOff)
	defer late.Stop()
	l.drain(stop)
}

// drain waits until nothing of the lane is in the sink's hands; once cut is done
// only for AbandonAfter longer.
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
		l.log.Warn("deliveries in flight were abandoned: the sink does not heed its context", "count", l.inFlight)
	}
}

// ended takes note that deliveries of the lane are in the sink's hands no longer.
func (l *Lane) ended(n int) {
	l.inFlight -= n
	if l.inFlight == 0 {
		l.dispatcher.drained.Broadcast()
	}
}

// Leave ends the lane: what is still to come of it counts no more.
func (l *Lane) Leave() {
	d := l.dispatcher
	d.mu.Lock()
	defer d.mu.Unlock()
	l.giveUp(context.Canceled)
	delete(d.lanes, l)
	d.shareRate()
	d.pending -= len(d.queue.Drop(func(it *item) bool { return it.lane == l })) + len(l.aside) + l.keys.Drop()
	l.aside = nil
	l.linger.Stop()
	l.rows = 0
	l.space.Leave()
}
