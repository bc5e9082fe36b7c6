package simulation

import "time"

// events are what is going to happen, in the order of its time; of several at one time, in the
// order in which they were added. They are a binary heap, written out: container/heap would make an
// allocation for each of hundreds of millions.
type events[T any] struct {
	now  time.Duration // since the beginning
	list []event[T]
	next int
}

// event is something at a time.
type event[T any] struct {
	at    time.Duration
	order int
	what  T
}

func (e event[T]) before(o event[T]) bool { return e.at < o.at || e.at == o.at && e.order < o.order }

// add has something happen at a time, or now where that is past.
func (e *events[T]) add(at time.Duration, what T) {
	e.next++
	e.list = append(e.list, event[T]{max(at, e.now), e.next, what})
	for i := len(e.list) - 1; i > 0; {
		parent := (i - 1) / 2
		if !e.list[i].before(e.list[parent]) {
			return
		}
		e.list[i], e.list[parent] = e.list[parent], e.list[i]
		i = parent
	}
}

// pop goes on to what happens next, before an end; false if nothing does.
func (e *events[T]) pop(end time.Duration) (what T, ok bool) {
	if len(e.list) == 0 || e.list[0].at >= end {
		return what, false
	}
	first, last := e.list[0], len(e.list)-1
	e.list[0], e.list[last] = e.list[last], event[T]{}
	e.list = e.list[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child+1 < last && e.list[child+1].before(e.list[child]) {
			child++
		}
		if child >= last || !e.list[child].before(e.list[i]) {
			break
		}
		e.list[i], e.list[child] = e.list[child], e.list[i]
		i = child
	}
	e.now = first.at
	return first.what, true
}

// epoch is the time of day at which a simulation begins. Zero times mean something to the engine.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
