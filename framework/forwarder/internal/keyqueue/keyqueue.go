// Package keyqueue keeps the order of keys: at most one item of each key, its head, is ready or
// in flight, and the others wait behind it, in memory or in the parked table.
//
// It is pure: it uses no lock, clock or database. Items without a key have no order and are not
// passed to it.
package keyqueue

import "slices"

// Keys holds the keys of one lane that have items. Other keys take no memory.
//
// A key is held while the parked table may have deliveries that hold its later ones back. Rows
// of the key that are read from the log meanwhile are parked behind them. When the head ends,
// the table is queried for the key's next delivery. So only the table knows how many there are;
// Keys only knows whether to query it.
type Keys[T any] struct {
	keys map[string]*key[T]
	// parking numbers what is parked and not yet written; see Parking.
	parking uint64
	// comparison numbers the comparisons with the table; see Compared.
	comparison uint64
}

type key[T any] struct {
	waiting  []T    // items behind the head, in order
	active   bool   // there is a head, ready or in flight
	held     bool   // the table may have more
	parking  uint64 // when an item of the key was last parked
	compared uint64 // the last comparison in which the table had something of the key
}

// New returns Keys without any key.
func New[T any]() *Keys[T] {
	return &Keys[T]{keys: make(map[string]*key[T]), parking: 1, comparison: 1}
}

// Turn is what to do with an item.
type Turn int

// The turns of an item.
const (
	Go     Turn = iota // it is the head: it may go
	Wait               // it waits in memory behind the head
	Park               // it must be parked behind what holds the key
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

// Resume gives an item of the parked table its turn: Go, Wait or Refuse. holds reports whether
// its row holds the key back; a scheduled one does not.
func (ks *Keys[T]) Resume(name string, it T, holds bool) Turn {
	k := ks.keys[name]
	switch {
	case k == nil:
		k = ks.add(name)
	case !holds && k.held:
		return Refuse
	}
	k.held = k.held || holds
	k.compared = ks.comparison
	if k.active {
		k.waiting = append(k.waiting, it)
		return Wait
	}
	k.active = true
	return Go
}

func (ks *Keys[T]) add(name string) *key[T] {
	k := &key[T]{compared: ks.comparison}
	ks.keys[name] = k
	return k
}

// Next ends the turn of a key's head, which does not hold the key back: the next item in memory
// becomes the head and may go. If there is none, ask reports whether the table must be queried
// for the next one.
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

// Hold ends the turn of a key's head, which is parked and holds the key back. It returns the
// items that wait in memory, in order: they must be parked behind it, unless they are already in
// the table.
func (ks *Keys[T]) Hold(name string) (waiting []T) {
	k := ks.keys[name]
	k.active = false
	return ks.Spill(name)
}

// Spill removes and returns the items that wait behind the head of a key. The key is held then.
func (ks *Keys[T]) Spill(name string) (waiting []T) {
	k := ks.keys[name]
	waiting, k.waiting = k.waiting, nil
	k.held, k.parking, k.compared = true, ks.parking, ks.comparison
	return waiting
}

// Parking begins the next parking number, since what was parked so far is about to be written.
// It returns the number of that.
func (ks *Keys[T]) Parking() (written uint64) {
	ks.parking++
	return ks.parking - 1
}

// Free records that the table has nothing of a key, as of the write with the given parking number.
// The key is no longer held, unless something of it was parked since: then ask reports whether
// the table must be queried again.
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

// Held records that the table has a delivery that holds a key. ask reports that its next delivery
// must be queried, because the key has no head, neither in the table nor in memory.
func (ks *Keys[T]) Held(name string, head bool) (ask bool) {
	k := ks.keys[name]
	if k == nil {
		k = ks.add(name)
	}
	k.held, k.compared = true, ks.comparison
	return !head && !k.active
}

// Compared records that Held was called for the whole table since the last call. It returns the
// held keys without a head in memory and without a delivery in the table: a person may have removed
// their deliveries, so the keys must be queried.
func (ks *Keys[T]) Compared() (ask []string) {
	for name, k := range ks.keys {
		if k.held && !k.active && k.compared < ks.comparison {
			ask = append(ask, name)
		}
	}
	ks.comparison++
	return ask
}

// Holds reports whether the table may have deliveries that hold a key.
func (ks *Keys[T]) Holds(name string) bool {
	k := ks.keys[name]
	return k != nil && k.held
}

// Idle reports whether a key has no head.
func (ks *Keys[T]) Idle(name string) bool {
	k := ks.keys[name]
	return k == nil || !k.active
}

// Waiting returns how many items wait in memory behind the head of a key.
func (ks *Keys[T]) Waiting(name string) int {
	if k := ks.keys[name]; k != nil {
		return len(k.waiting)
	}
	return 0
}

// Crowded returns the keys with at least that many items waiting in memory, and how many.
func (ks *Keys[T]) Crowded(least int) map[string]int {
	crowded := make(map[string]int)
	for name, k := range ks.keys {
		if n := len(k.waiting); n > 0 && n >= least && k.active {
			crowded[name] = n
		}
	}
	return crowded
}

// Pop removes and returns the first item that waits behind the head of a key. It goes together
// with the head, for which Next must not be called then.
func (ks *Keys[T]) Pop(name string) (T, bool) { return ks.keys[name].pop() }

// Unpop puts an item that was popped back in front of the others.
func (ks *Keys[T]) Unpop(name string, it T) {
	k := ks.keys[name]
	k.waiting = append([]T{it}, k.waiting...)
}

// Withdraw removes the last item that waits behind the head of a key.
func (ks *Keys[T]) Withdraw(name string) {
	k := ks.keys[name]
	k.waiting = slices.Delete(k.waiting, len(k.waiting)-1, len(k.waiting))
}

// Drop removes all waiting items of all keys, and returns how many there were.
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
