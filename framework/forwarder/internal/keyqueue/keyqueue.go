// Package keyqueue keeps the order of keys: of each key one item at most is ready or in
// flight, its head, and the others wait behind it, in memory or in the parked table.
//
// It is pure: no lock, no clock, no database. Items without a key have no order and do
// not come here.
package keyqueue

import "slices"

// Keys are the keys of one lane that have something under way. Those that have nothing
// take no memory.
//
// A key is held while the parked table may have deliveries that hold its later ones
// back. Rows of the log that come meanwhile are parked behind these; when the head is
// through, the table is asked for the next one of the key. So the table alone knows
// how many there are, and Keys only whether to ask.
type Keys[T any] struct {
	keys map[string]*key[T]
	// parking numbers what is parked and not written yet; see Parking.
	parking uint64
	// scan numbers the comparisons with the table; see Held.
	scan uint64
}

type key[T any] struct {
	waiting []T    // behind the head, in order
	active  bool   // the head is ready or in flight
	held    bool   // the table may have more
	parking uint64 // when something of the key was parked last
	scan    uint64 // when the table had something of the key last
}

// New returns Keys without any key.
func New[T any]() *Keys[T] {
	return &Keys[T]{keys: make(map[string]*key[T]), parking: 1, scan: 1}
}

// Turn says what becomes of an item.
type Turn int

// The turns that an item can be given.
const (
	Go     Turn = iota // it is the head now: it may go
	Wait               // it waits in memory behind the head
	Park               // it is to be parked behind what holds the key
	Refuse             // it stays in the table until the key is free
)

// Enqueue gives an item of the log its turn: Go, Wait or Park.
func (ks *Keys[T]) Enqueue(name string, it T) Turn {
	k := ks.keys[name]
	switch {
	case k == nil:
		ks.keys[name] = &key[T]{active: true}
		return Go
	case k.held:
		k.parking = ks.parking
		return Park
	}
	k.waiting = append(k.waiting, it)
	return Wait
}

// Resume gives an item of the parked table its turn: Go, Wait or Refuse. holds says
// that its row there holds the key back, which a scheduled one does not.
func (ks *Keys[T]) Resume(name string, it T, holds bool) Turn {
	k := ks.keys[name]
	switch {
	case k == nil:
		k = ks.add(name)
	case !holds && k.held:
		return Refuse
	}
	k.held = k.held || holds
	k.scan = ks.scan
	if k.active {
		k.waiting = append(k.waiting, it)
		return Wait
	}
	k.active = true
	return Go
}

func (ks *Keys[T]) add(name string) *key[T] {
	k := &key[T]{scan: ks.scan}
	ks.keys[name] = k
	return k
}

// Next ends the turn of a key's head, which holds nothing back: the next one in memory
// is the head now, and may go. Without one, ask says that the table is to be asked for
// the next one.
func (ks *Keys[T]) Next(name string) (next T, ok, ask bool) {
	k := ks.keys[name]
	if len(k.waiting) > 0 {
		next, _ = k.pop()
		return next, true, false
	}
	k.active = false
	if !k.held {
		delete(ks.keys, name)
	}
	return next, false, k.held
}

// Hold ends the turn of a key's head, which is parked now and holds the others back. It
// returns those that wait in memory, in order: they are parked behind it, or are in
// the table already.
func (ks *Keys[T]) Hold(name string) (waiting []T) {
	k := ks.keys[name]
	k.active = false
	return ks.Spill(name)
}

// Spill takes out what waits behind the head of a key, which is held from now on.
func (ks *Keys[T]) Spill(name string) (waiting []T) {
	k := ks.keys[name]
	waiting, k.waiting = k.waiting, nil
	k.held, k.parking, k.scan = true, ks.parking, ks.scan
	return waiting
}

// Parking begins the next number for what is parked from now on, since what was
// parked until now is about to be written. It returns the number of the latter.
func (ks *Keys[T]) Parking() (written uint64) {
	ks.parking++
	return ks.parking - 1
}

// Free takes note that the table has nothing of a key, as of when all that was parked
// up to a number was written. The key is not held any more, unless something of it was
// parked since: then ask says that it is to be asked for again.
func (ks *Keys[T]) Free(name string, written uint64) (free, ask bool) {
	k := ks.keys[name]
	switch {
	case k == nil || !k.held:
		return false, false
	case k.parking > written:
		return false, !k.active
	}
	k.held = false
	if !k.active {
		delete(ks.keys, name)
	}
	return true, false
}

// Held takes note that the table has something that holds a key. ask says that its next
// one is to be asked for: the table has no head of it, and it has none here.
func (ks *Keys[T]) Held(name string, head bool) (ask bool) {
	k := ks.keys[name]
	if k == nil {
		k = ks.add(name)
	}
	k.held, k.scan = true, ks.scan
	return !head && !k.active
}

// Compared takes note that Held was called for the whole table since the last call. It
// returns the keys that are held and have no head here, and of which the table had
// nothing: a person may have taken it away, so they are to be asked for.
func (ks *Keys[T]) Compared() (ask []string) {
	for name, k := range ks.keys {
		if k.held && !k.active && k.scan < ks.scan {
			ask = append(ask, name)
		}
	}
	ks.scan++
	return ask
}

// Idle says whether a key has no head.
func (ks *Keys[T]) Idle(name string) bool {
	k := ks.keys[name]
	return k == nil || !k.active
}

// Waiting is how many wait in memory behind the head of a key.
func (ks *Keys[T]) Waiting(name string) int {
	if k := ks.keys[name]; k != nil {
		return len(k.waiting)
	}
	return 0
}

// Crowded are the keys behind whose head at least so many wait in memory, with how many.
func (ks *Keys[T]) Crowded(least int) map[string]int {
	crowded := make(map[string]int)
	for name, k := range ks.keys {
		if n := len(k.waiting); n > 0 && n >= least && k.active {
			crowded[name] = n
		}
	}
	return crowded
}

// Pop takes the first one that waits behind the head of a key. It goes together with
// the head, which Next must not be called for then.
func (ks *Keys[T]) Pop(name string) (T, bool) { return ks.keys[name].pop() }

// Unpop has one that was popped wait again, in front of the others.
func (ks *Keys[T]) Unpop(name string, it T) {
	k := ks.keys[name]
	k.waiting = append([]T{it}, k.waiting...)
}

// Withdraw takes out the last one that waits behind the head of a key.
func (ks *Keys[T]) Withdraw(name string) {
	k := ks.keys[name]
	k.waiting = slices.Delete(k.waiting, len(k.waiting)-1, len(k.waiting))
}

// Drop takes out all that waits in memory, of all keys, and returns how many there were.
func (ks *Keys[T]) Drop() (dropped int) {
	for _, k := range ks.keys {
		dropped += len(k.waiting)
	}
	clear(ks.keys)
	return dropped
}

func (k *key[T]) pop() (first T, ok bool) {
	if len(k.waiting) == 0 {
		return first, false
	}
	first = k.waiting[0]
	var none T
	k.waiting[0] = none
	k.waiting = k.waiting[1:]
	return first, true
}
