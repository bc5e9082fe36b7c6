// Package fairqueue holds what may go now and says whose turn it is. What comes from the
// log and what was parked each have a part of the slots, however much there is of the
// other; within each, groups share evenly, however much a group has.
//
// The package knows no clock and locks nothing: the caller guards the queue.
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

// Item is a pointer to a struct that embeds a [Ticket]. An item waits in one queue at a
// time, once.
type Item interface{ ticket() *Ticket }

// Ticket is an item's place in a queue. A copy of the item may take its place, as long as
// only one of the two goes on.
type Ticket struct {
	// Origin is set before the item's first Push or Join, and stays.
	Origin Origin

	group *group // since the last Push or Join
}

func (t *Ticket) ticket() *Ticket { return t }

// ParkedShare sets how many slots parked items have beside items of the log, and how
// many they leave free for items of the log to come: one slot in ParkedShare, at least
// one.
const ParkedShare = 16

// Queue is a fair queue. It is for one goroutine at a time.
type Queue[T Item] struct {
	fresh, parked part[T]
	picks         int             // of fresh items since the last parked one
	held          map[string]bool // groups of which nothing goes
}

// New returns an empty queue.
func New[T Item]() *Queue[T] {
	held := make(map[string]bool)
	return &Queue[T]{fresh: newPart[T](held), parked: newPart[T](held), held: held}
}

// Len is how many items wait.
func (q *Queue[T]) Len() int { return q.fresh.count + q.parked.count }

// Push adds an item to a group, behind the items of the group that wait, or in front
// of them.
func (q *Queue[T]) Push(item T, group string, front bool) { q.of(item).push(item, group, front) }

// Hold lets nothing of a group go, or lets it go again. It holds whether or not the group
// has something now, until it is taken back.
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

// Release lets all groups go again that are held.
func (q *Queue[T]) Release() {
	for group := range q.held {
		q.Hold(group, false)
	}
}

// Next finds where the next item is to be popped from; false if none may go now. slots is
// how many may be in flight. Asking changes nothing.
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

// Group is the group whose item Next found, and how many of it are in flight. No other
// group of that origin that has something waiting has fewer.
func (q *Queue[T]) Group(from Origin) (name string, inFlight int) {
	first := q.fresh.lines
	if from == FromParked {
		first = q.parked.lines
	}
	return first[0].name, first[0].inFlight
}

// Pop takes the item that Next found. It is in flight until Done.
func (q *Queue[T]) Pop(from Origin) T {
	if from == FromParked {
		q.picks = 0
		return q.parked.pop()
	}
	q.picks++
	return q.fresh.pop()
}

// Join counts an item as in flight that was not among those that wait.
func (q *Queue[T]) Join(item T, group string) { q.of(item).join(item, group) }

// Done counts an item as in flight no longer.
func (q *Queue[T]) Done(item T) { q.of(item).done(item.ticket().group) }

// All are the items that wait, in no particular order.
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

// Regroup puts what waits into other groups, each in the order that compare gives. What
// is in flight stays in the old groups.
func (q *Queue[T]) Regroup(groupOf func(T) string, compare func(a, b T) int) {
	q.fresh.regroup(groupOf, compare)
	q.parked.regroup(groupOf, compare)
}

// Drop takes out the waiting items for which drop is true. Those of a group are in the
// order in which they would have gone, so they can be pushed again in that order.
func (q *Queue[T]) Drop(drop func(T) bool) (dropped []T) {
	return q.parked.drop(drop, q.fresh.drop(drop, nil))
}

func (q *Queue[T]) of(item T) *part[T] {
	if item.ticket().Origin == FromParked {
		return &q.parked
	}
	return &q.fresh
}

// part is what groups share evenly: next is the group with the fewest in flight, and of
// several the one that has waited longest. A group that is alone has it all. Within a
// group the first is the first to go.
type part[T Item] struct {
	groups   map[string]*line[T] // those with something waiting or in flight
	lines    lines[T]            // those with something waiting
	count    int                 // items that wait
	inFlight int
	served   int // items that went
	held     map[string]bool
}

func newPart[T Item](held map[string]bool) part[T] {
	return part[T]{groups: make(map[string]*line[T]), held: held}
}

// ready says whether something waits whose group is not held.
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
		// It comes behind those that wait already: a group of one item at a time
		// would be a new one, and the first, each time.
		l = &line[T]{group: group{name: name, index: -1, last: p.served, held: p.held[name]}}
		p.groups[name] = l
	}
	return l
}

func (p *part[T]) pop() T {
	l := p.lines[0]
	item := l.items.pop()
	p.served++
	l.last = p.served
	l.inFlight++
	p.inFlight++
	p.count--
	if l.items.len() == 0 {
		heap.Remove(&p.lines, l.index)
	}
	p.update(&l.group)
	return item
}

func (p *part[T]) done(g *group) {
	g.inFlight--
	p.inFlight--
	p.update(g)
}

// update puts a group in its place after it has changed, or forgets it.
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

// drop appends what it takes out.
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
