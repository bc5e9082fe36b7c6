package forwarder

import (
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// keyState is what the engine knows of one key with something under way. Keys
// without are not in the lane's map.
//
// At most one item of a key is ready or in flight: the head, which is not in
// waiting. While parked > 0, nothing from the log waits in memory for the key:
// it is parked behind what holds the key. Then waiting has only parked ones,
// which are released in their order.
type keyState struct {
	first, last *item // waiting, in order
	waiting     int
	parked      int  // deliveries in the parked table, or on the way there, that hold the key
	taken       int  // of these, in the engine's hands
	active      bool // the head is ready or in flight
	unmet       bool // something of the key comes from the log before what is parked
	stale       bool // a person may have parked more of it: compare when nothing is under way
}

func (k *keyState) push(it *item) {
	if k.last == nil {
		k.first = it
	} else {
		k.last.next = it
	}
	k.last = it
	k.waiting++
}

func (k *keyState) pushFront(it *item) {
	it.next = k.first
	k.first = it
	if k.last == nil {
		k.last = it
	}
	k.waiting++
}

func (k *keyState) pop() *item {
	it := k.first
	if it == nil {
		return nil
	}
	k.first = it.next
	if k.first == nil {
		k.last = nil
	}
	it.next = nil
	k.waiting--
	return it
}

// enqueue gives an item its turn: now, behind what its key has waiting, or parked
// behind what holds its key.
func (l *lane) enqueue(it *item) {
	if it.Key == "" {
		l.courier.pending++
		l.courier.offer(it)
		return
	}
	k := l.keys[it.Key]
	switch {
	case k == nil:
		l.keys[it.Key] = &keyState{active: true}
		l.courier.pending++
		l.courier.offer(it)
	case k.parked > 0:
		l.block(k, it)
	default:
		k.push(it)
		l.courier.behind()
	}
}

// resume gives a parked item its turn again. A scheduled one whose key is held
// is refused: it stays parked and comes up again when the key is free.
func (l *lane) resume(it *item) (taken bool) {
	k := l.keys[it.Key]
	switch held := k != nil && k.parked > 0; {
	case it.Key == "" || !it.holds && !held:
		l.enqueue(it)
		return true
	case !it.holds:
		return false
	case k == nil:
		k = &keyState{}
		l.keys[it.Key] = k
	}
	k.taken++
	if it.uncounted {
		k.parked++ // too much is corrected once nothing of the key is found
	}
	k.parked = max(k.parked, k.taken)
	if k.active {
		k.push(it)
		l.courier.behind()
		return true
	}
	l.courier.pending++
	k.active = true
	l.courier.offer(it)
	return true
}

// block parks an item behind what holds its key.
func (l *lane) block(k *keyState, it *item) {
	k.parked++
	l.park(it, store.StateBlocked, time.Time{}, "")
}

// advanceKey lets the next one of a key go, once the head holds nothing back.
func (l *lane) advanceKey(it *item) {
	if it.Key == "" {
		return
	}
	k := l.keys[it.Key]
	if it.holds {
		k.parked--
		k.taken--
	}
	if it.chained {
		return // the next one is under way already
	}
	k.active = false
	next := k.pop()
	switch {
	case next != nil:
		k.active = true
		l.courier.offer(next)
	case k.parked > 0:
		l.out.released = append(l.out.released, it.Key) // the rest is in the database
	default:
		if k.stale {
			l.stale = true
			l.mark()
		}
		l.forget(it.Key, it.holds)
	}
}

// noFollowers corrects the count of a released key for which the parked table has
// nothing. What was parked only now is still to be written; what a person took
// away will not come.
func (l *lane) noFollowers(key string) {
	for i := range l.out.park {
		if p := &l.out.park[i]; p.Envelope.Key == key && p.State == store.StateBlocked {
			l.out.released = append(l.out.released, key)
			return
		}
	}
	if k := l.keys[key]; k != nil && !k.active {
		l.forget(key, true)
	}
}

// forget ends what was under way for a key. Where it was held, a scheduled
// delivery may have waited for that.
func (l *lane) forget(key string, wasHeld bool) {
	delete(l.keys, key)
	if wasHeld {
		l.dueAt(time.Now())
		l.mark()
	}
}

// holdKey parks what waits behind a head that is parked now. What was parked
// before simply stays in the database.
func (l *lane) holdKey(it *item) {
	if it.Key == "" {
		return
	}
	k := l.keys[it.Key]
	k.active = false
	if it.holds {
		k.taken--
	} else {
		k.parked++
	}
	l.parkWaiting(k)
}

// parkWaiting parks what waits behind the head of a key.
func (l *lane) parkWaiting(k *keyState) {
	for waiting := k.pop(); waiting != nil; waiting = k.pop() {
		l.courier.pending--
		if waiting.page != nil {
			l.block(k, waiting)
			continue
		}
		delete(l.busy, store.RefOf(waiting.Envelope))
		if waiting.holds {
			k.taken--
		}
	}
}

// Shares of a window by which a key is hot: so much of it waits for that key alone,
// and so much at least is of others.
const (
	hotShare   = 4
	otherShare = 16
)

// hotStride is how many rows lie between two that are looked at for hot keys: a key
// that has a quarter of the window is met.
const hotStride = 31

// spill parks what waits for hot keys, so that the window has room for others. It
// does so only while the sink would have time for these, and if there were
// others so far: a log of few keys is better read slowly than copied.
func (l *lane) spill() {
	c := l.courier
	if c.turns.Len() > 0 || c.circuit.IsOpen() || c.calls >= c.sink.Parallelism.Threshold {
		return
	}
	hot := make(map[*keyState]bool)
	waiting := 0
	for _, p := range l.window.pages {
		for i := p.prefix; i < len(p.items); i += hotStride {
			k := l.keys[p.items[i].Key]
			if k != nil && !hot[k] && k.active && k.waiting >= l.window.rows/hotShare {
				hot[k] = true
				waiting += k.waiting
			}
		}
	}
	if l.window.rows-waiting < l.window.rows/otherShare {
		return
	}
	for k := range hot {
		l.parkWaiting(k)
	}
}
