package simulation

import "time"

// events are future events, ordered by their time, and at the same time by the order in which
// they were added. They are a binary heap, written out: container/heap would make an allocation
// for each of hundreds of millions.
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

// add adds an event at a time, or now if the time has passed.
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

// pop advances to the next event before end; false if there is none.
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

// epoch is when a simulation begins. The engine treats zero times specially.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
