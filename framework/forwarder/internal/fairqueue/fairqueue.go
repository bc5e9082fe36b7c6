// Package fairqueue holds the items that may go now and decides which one goes next. Items from
// the log and from the parked table each have a part of the slots, however many there are of the
// other; within each part, groups share evenly, however many items a group has.
//
// The package uses no clock and no locks: the caller guards the queue.
package fairqueue

import (
	"container/heap"
	"iter"
	"slices"
)

// Origin is where an item comes from.
type Origin uint8

// The two origins.
const (
	FromLog Origin = iota
	FromParked
)

// Item is a pointer to a struct that embeds a [Ticket]. An item may be in only one queue, once.
type Item interface {
	comparable
	ticket() *Ticket
}

// Ticket is an item's place in a queue. A copy of the item may take its place if only one of the
// two is used further.
type Ticket struct {
	// Origin must be set before the item's first Push or Join, and must not change.
	Origin Origin

	group *group // since the last Push or Join
}

func (t *Ticket) ticket() *Ticket { return t }

// ParkedShare defines the share of parked items: while items of the log wait, parked ones use
// one slot in ParkedShare; while none wait, parked ones leave one slot in ParkedShare free for
// them. At least one slot in each case.
const ParkedShare = 16

// Queue is a fair queue. It is not safe for concurrent use.
type Queue[T Item] struct {
	fresh, parked part[T]
	picks         int             // fresh items taken since the last parked one
	held          map[string]bool // groups of which no item may go
}

// New returns an empty queue.
func New[T Item]() *Queue[T] {
	held := make(map[string]bool)
	return &Queue[T]{fresh: newPart[T](held), parked: newPart[T](held), held: held}
}

// Len returns how many items wait.
func (q *Queue[T]) Len() int { return q.fresh.count + q.parked.count }

// Push adds an item to a group, behind or in front of the waiting items of the group.
func (q *Queue[T]) Push(item T, group string, front bool) { q.of(item).push(item, group, front) }

// Hold stops the items of a group, or lets them go again. It applies also to items that are
// added later.
func (q *Queue[T]) Hold(group string, hold bool) {
	if q.held[group] == hold {
		return
	}
	if hold {
		q.held[group] = true
	} else {
		delete(q.held, group)
	}
	q.fresh.hold(group, hold)
	q.parked.hold(group, hold)
}

// Release lets all held groups go again.
func (q *Queue[T]) Release() {
	for group := range q.held {
		q.Hold(group, false)
	}
}

// Next returns the origin of the next item to pop; false if none may go now. slots is how many
// items may be in flight. It changes nothing.
func (q *Queue[T]) Next(slots int) (from Origin, ok bool) {
	share := max(1, slots/ParkedShare)
	switch {
	case q.fresh.ready() && q.parked.ready():
		if q.picks >= ParkedShare-1 && q.parked.inFlight < share {
			return FromParked, true
		}
		return FromLog, true
	case q.fresh.ready():
		return FromLog, true
	case q.parked.ready() && (slots == 1 || q.parked.inFlight < slots-share):
		return FromParked, true
	}
	return FromLog, false
}

// Group returns the group of the item that Next found, and how many of its items are in flight.
// No other waiting group of that origin has fewer.
func (q *Queue[T]) Group(from Origin) (name string, inFlight int) {
	first := q.fresh.lines
	if from == FromParked {
		first = q.parked.lines
	}
	return first[0].name, first[0].inFlight
}

// Pop removes and returns the item that Next found. It is in flight until Done.
func (q *Queue[T]) Pop(from Origin) T {
	if from == FromParked {
		q.picks = 0
		return q.parked.pop()
	}
	q.picks++
	return q.fresh.pop()
}

// PopPreferred is Pop for the item that prefers puts before all others, from either origin. Next must have found one.
// prefers gets an item and one that waits in front of it.
func (q *Queue[T]) PopPreferred(prefers func(a, b T) bool) (best T) {
	found := false
	for _, p := range []*part[T]{&q.fresh, &q.parked} {
		for _, l := range p.lines {
			if l.held {
				continue
			}
			l.items.each(func(item T) bool {
				if !found || prefers(item, best) {
					best, found = item, true
				}
				return true
			})
		}
	}
	q.of(best).remove(best)
	return best
}

// Join counts an item as in flight that was not waiting in the queue.
func (q *Queue[T]) Join(item T, group string) { q.of(item).join(item, group) }

// Done counts an item as no longer in flight.
func (q *Queue[T]) Done(item T) { q.of(item).done(item.ticket().group) }

// All returns the waiting items, in no particular order.
func (q *Queue[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, p := range []*part[T]{&q.fresh, &q.parked} {
			for _, l := range p.lines {
				if !l.items.each(yield) {
					return
				}
			}
		}
	}
}

// Regroup moves the waiting items to other groups, each sorted by compare. Items in flight stay
// in their old groups.
func (q *Queue[T]) Regroup(groupOf func(T) string, compare func(a, b T) int) {
	q.fresh.regroup(groupOf, compare)
	q.parked.regroup(groupOf, compare)
}

// Drop removes the waiting items for which drop is true. Those of a group are in the order in
// which they would have gone, so they can be pushed again in that order.
func (q *Queue[T]) Drop(drop func(T) bool) (dropped []T) {
	return q.parked.drop(drop, q.fresh.drop(drop, nil))
}

func (q *Queue[T]) of(item T) *part[T] {
	if item.ticket().Origin == FromParked {
		return &q.parked
	}
	return &q.fresh
}

// part is shared evenly by its groups. Next is the group with the fewest items in flight and,
// among several, the one that has waited longest. A single group may use all slots. Within a
// group, the first item goes first.
type part[T Item] struct {
	groups   map[string]*line[T] // groups with items waiting or in flight
	lines    lines[T]            // groups with items waiting
	count    int                 // number of waiting items
	inFlight int
	served   int // number of items popped so far
	held     map[string]bool
}

func newPart[T Item](held map[string]bool) part[T] {
	return part[T]{groups: make(map[string]*line[T]), held: held}
}

// ready reports whether an item waits whose group is not held.
func (p *part[T]) ready() bool { return p.count > 0 && !p.lines[0].held }

func (p *part[T]) hold(name string, hold bool) {
	if l := p.groups[name]; l != nil {
		l.held = hold
		p.update(&l.group)
	}
}

func (p *part[T]) push(item T, name string, front bool) {
	l := p.line(name)
	item.ticket().group = &l.group
	if front {
		l.items.pushFront(item)
	} else {
		l.items.push(item)
	}
	p.count++
	if l.index < 0 {
		heap.Push(&p.lines, l)
	}
}

func (p *part[T]) join(item T, name string) {
	g := &p.line(name).group
	item.ticket().group = g
	g.inFlight++
	p.inFlight++
	p.update(g)
}

func (p *part[T]) line(name string) *line[T] {
	l := p.groups[name]
	if l == nil {
		// A new group comes after those that already wait: otherwise a group with a single
		// item at a time would be new, and first, each time.
		l = &line[T]{group: group{name: name, index: -1, last: p.served, held: p.held[name]}}
		p.groups[name] = l
	}
	return l
}

func (p *part[T]) pop() T {
	l := p.lines[0]
	item := l.items.pop()
	p.took(l)
	return item
}

// took counts an item that was removed from a line as in flight.
func (p *part[T]) took(l *line[T]) {
	p.served++
	l.last = p.served
	l.inFlight++
	p.inFlight++
	p.count--
	if l.items.len() == 0 {
		heap.Remove(&p.lines, l.index)
	}
	p.update(&l.group)
}

// remove takes a waiting item out of the middle. It is in flight then.
func (p *part[T]) remove(item T) {
	l := p.groups[item.ticket().group.name]
	l.items.drop(func(other T) bool { return other == item }, nil)
	p.took(l)
}

func (p *part[T]) done(g *group) {
	g.inFlight--
	p.inFlight--
	p.update(g)
}

// update restores a group's place in the heap after a change, or forgets the group.
func (p *part[T]) update(g *group) {
	if g.index >= 0 {
		heap.Fix(&p.lines, g.index)
		return
	}
	if l := p.groups[g.name]; g.inFlight == 0 && g.name != "" && l != nil && &l.group == g {
		delete(p.groups, g.name)
	}
}

func (p *part[T]) regroup(groupOf func(T) string, compare func(a, b T) int) {
	items := make([]T, 0, p.count)
	for _, l := range p.lines {
		l.items.each(func(item T) bool { items = append(items, item); return true })
		l.items, l.index = deque[T]{}, -1
	}
	slices.SortStableFunc(items, compare)
	p.groups, p.lines, p.count = make(map[string]*line[T]), nil, 0
	for _, item := range items {
		p.push(item, groupOf(item), false)
	}
}

// drop appends the items that it removes to dropped.
func (p *part[T]) drop(drop func(T) bool, dropped []T) []T {
	before := len(dropped)
	for _, l := range slices.Clone(p.lines) {
		if dropped = l.items.drop(drop, dropped); l.items.len() == 0 {
			heap.Remove(&p.lines, l.index)
			p.update(&l.group)
		}
	}
	p.count -= len(dropped) - before
	return dropped
}
