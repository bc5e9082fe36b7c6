package forwarder

import (
	"cmp"
	"container/heap"
	"iter"
	"slices"
)

// turns holds what may go now to one sink and says whose turn it is. What comes
// from the log and what was parked each have a part of the sink's slots, however
// much there is of the other.
type turns struct {
	fresh, parked fair
	picks         int // of fresh ones since the last parked one
}

// parkedShare of the slots, at least one, is what parked deliveries have beside
// fresh ones, and what they leave free for those to come.
const parkedShare = 16

func newTurns() turns { return turns{fresh: newFair(), parked: newFair()} }

func (t *turns) len() int { return t.fresh.count + t.parked.count }

func (t *turns) of(it *item) *fair {
	if it.page == nil {
		return &t.parked
	}
	return &t.fresh
}

// push lets an item of a group go behind those that may go already, or in front of
// them.
func (t *turns) push(it *item, group string, front bool) { t.of(it).push(it, group, front) }

// next is where the next item is to be popped from; nil if none may go now. n is how
// many may be in flight.
func (t *turns) next(n int) *fair {
	share := max(1, n/parkedShare)
	switch {
	case t.fresh.count > 0 && t.parked.count > 0:
		if t.picks >= parkedShare-1 && t.parked.inFlight < share {
			return &t.parked
		}
		return &t.fresh
	case t.fresh.count > 0:
		return &t.fresh
	case t.parked.count > 0 && (n == 1 || t.parked.inFlight < n-share):
		return &t.parked
	}
	return nil
}

// pop gives the item that next found. It is in flight until done.
func (t *turns) pop(from *fair) *item {
	if from == &t.parked {
		t.picks = 0
	} else {
		t.picks++
	}
	return from.pop()
}

// regroup puts what waits into other groups. What is in flight stays in the old ones.
func (t *turns) regroup(groupOf func(*item) string) {
	t.fresh.regroup(groupOf)
	t.parked.regroup(groupOf)
}

// all are the items that wait.
func (t *turns) all() iter.Seq[*item] {
	return func(yield func(*item) bool) {
		for _, f := range []*fair{&t.fresh, &t.parked} {
			for _, g := range f.waiting {
				if !g.items.each(yield) {
					return
				}
			}
		}
	}
}

// join counts an item as in flight that was not among those that wait.
func (t *turns) join(it *item, group string) { t.of(it).join(it, group) }

// done counts an item as in flight no longer.
func (t *turns) done(it *item) { t.of(it).done(it) }

// drop takes out the items of a lane and returns how many there were.
func (t *turns) drop(l *lane) int { return t.fresh.drop(l) + t.parked.drop(l) }

// fair is a queue that groups share evenly: next is the group with the fewest in
// flight, and of several the one that has waited longest. A group that is alone
// has it all. Within a group the first is the first to go.
type fair struct {
	groups   map[string]*group // those with something waiting or in flight
	waiting  waiting
	count    int // items that wait
	inFlight int
	served   int // items that went
}

func newFair() fair { return fair{groups: map[string]*group{}} }

// group is one of those that share a queue.
type group struct {
	name     string
	items    queue
	inFlight int
	last     int // when it was its turn last, by fair.served
	index    int // in the heap of those that have items; -1 if it has none
}

func (f *fair) push(it *item, name string, front bool) {
	g := f.group(name)
	it.group = g
	if front {
		g.items.pushFront(it)
	} else {
		g.items.push(it)
	}
	f.count++
	if g.index < 0 {
		heap.Push(&f.waiting, g)
	}
}

func (f *fair) join(it *item, name string) {
	it.group = f.group(name)
	it.group.inFlight++
	f.inFlight++
	f.update(it.group)
}

func (f *fair) group(name string) *group {
	g := f.groups[name]
	if g == nil {
		// It comes behind those that wait already: a group of one item at a time
		// would be a new one, and the first, each time.
		g = &group{name: name, index: -1, last: f.served}
		f.groups[name] = g
	}
	return g
}

// pop gives the next item, of which there must be one. It is in flight until done.
func (f *fair) pop() *item {
	g := f.waiting[0]
	it := g.items.pop()
	f.served++
	g.last = f.served
	g.inFlight++
	f.inFlight++
	f.count--
	f.update(g)
	return it
}

func (f *fair) done(it *item) {
	it.group.inFlight--
	f.inFlight--
	f.update(it.group)
}

// update puts a group in its place after it has changed.
func (f *fair) update(g *group) {
	switch {
	case g.items.len() > 0:
		heap.Fix(&f.waiting, g.index)
		return
	case g.index >= 0:
		heap.Remove(&f.waiting, g.index)
	}
	if g.inFlight == 0 && g.name != "" && f.groups[g.name] == g {
		delete(f.groups, g.name)
	}
}

func (f *fair) regroup(groupOf func(*item) string) {
	var items []*item
	for _, g := range f.waiting {
		g.items.each(func(it *item) bool { items = append(items, it); return true })
		g.items, g.index = queue{}, -1
	}
	slices.SortStableFunc(items, func(a, b *item) int { return cmp.Compare(a.Offset, b.Offset) })
	f.groups, f.waiting, f.count = map[string]*group{}, nil, 0
	for _, it := range items {
		f.push(it, groupOf(it), false)
	}
}

func (f *fair) drop(l *lane) (dropped int) {
	for _, g := range f.groups {
		if n := g.items.drop(l); n > 0 {
			dropped += n
			f.update(g)
		}
	}
	f.count -= dropped
	return dropped
}

// waiting is a heap of the groups that have items.
type waiting []*group

func (w waiting) Len() int { return len(w) }

func (w waiting) Less(i, j int) bool {
	if w[i].inFlight != w[j].inFlight {
		return w[i].inFlight < w[j].inFlight
	}
	return w[i].last < w[j].last
}

func (w waiting) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].index, w[j].index = i, j
}

func (w *waiting) Push(g any) {
	g.(*group).index = len(*w)
	*w = append(*w, g.(*group))
}

func (w *waiting) Pop() any {
	last := (*w)[len(*w)-1]
	last.index = -1
	*w = slices.Delete(*w, len(*w)-1, len(*w))
	return last
}

// queue is a double-ended queue of items.
type queue struct {
	front []*item // in reverse: the last one is the first to go
	back  []*item
	head  int // of back
}

func (q *queue) len() int { return len(q.front) + len(q.back) - q.head }

func (q *queue) push(it *item) { q.back = append(q.back, it) }

func (q *queue) pushFront(it *item) { q.front = append(q.front, it) }

// each calls f with the items, in their order, until it returns false.
func (q *queue) each(f func(*item) bool) bool {
	for _, it := range slices.Backward(q.front) {
		if !f(it) {
			return false
		}
	}
	for _, it := range q.back[q.head:] {
		if !f(it) {
			return false
		}
	}
	return true
}

// drop takes out the items of a lane and returns how many there were.
func (q *queue) drop(l *lane) (n int) {
	ofLane := func(it *item) bool { return it.lane == l }
	before := q.len()
	q.front = slices.DeleteFunc(q.front, ofLane)
	q.back = slices.DeleteFunc(q.back[q.head:], ofLane)
	q.head = 0
	return before - q.len()
}

// pop takes the first item; there must be one.
func (q *queue) pop() *item {
	if n := len(q.front); n > 0 {
		it := q.front[n-1]
		q.front[n-1] = nil
		q.front = q.front[:n-1]
		return it
	}
	it := q.back[q.head]
	q.back[q.head] = nil
	q.head++
	if q.head > len(q.back)/2 { // half of it is free: move the rest to the beginning
		n := copy(q.back, q.back[q.head:])
		clear(q.back[n:])
		q.back, q.head = q.back[:n], 0
	}
	return it
}
