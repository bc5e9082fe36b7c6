package dispatch

import (
	"container/heap"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// gather holds the newest items of keys, which have no turn yet.
type gather struct {
	newest map[string]*gathered
	order  checks
	alarm  alarm
}

// gathered is a collection of which only the newest item is left.
type gathered struct {
	key         string
	it          *item     // nil once it has got its turn
	first, last time.Time // when its first and its last member came
	members     int
}

// check is when to look whether a collection is due. A member that comes later does not move it.
type check struct {
	at time.Time
	of *gathered
}

// checks is a heap of checks, the earliest first.
type checks []check

func (c checks) Len() int           { return len(c) }
func (c checks) Less(i, j int) bool { return c[i].at.Before(c[j].at) }
func (c checks) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }

// Push implements heap.Interface.
func (c *checks) Push(x any) { *c = append(*c, x.(check)) }

// Pop implements heap.Interface.
func (c *checks) Pop() any {
	last := len(*c) - 1
	x := (*c)[last]
	*c = (*c)[:last]
	return x
}

// add adds an item to the collection of its key.
func (g *gather) add(l *Lane, it *item) {
	now, terms := time.Now(), l.dispatcher.collect
	of := g.newest[it.Key]
	if of == nil {
		of = &gathered{key: it.Key, first: now}
		g.newest[it.Key] = of
		at := now.Add(min(terms.Wait, terms.MaxWait))
		heap.Push(&g.order, check{at, of})
		g.alarm.set(at)
	} else {
		l.supersede(of.it, it)
	}
	it.gathered = true
	of.it, of.last, of.members = it, now, of.members+1
	if of.members == terms.Size {
		l.letKeyGo(it.Key)
	}
}

// remove removes a collection that gets its turn. Its check stays for a while, without the item's memory.
func (g *gather) remove(of *gathered) {
	delete(g.newest, of.key)
	of.it = nil
	if len(g.order) > 2*len(g.newest)+leastChecks {
		g.order = slices.DeleteFunc(g.order, func(c check) bool { return c.of.it == nil })
		heap.Init(&g.order)
	}
}

// leastChecks is up to how many checks are not worth removing.
const leastChecks = 64

// forget drops everything.
func (g *gather) forget() {
	clear(g.newest)
	g.order = nil
	g.alarm.timer.Stop()
	g.alarm.rang()
}

// letDueGo gives the collections that are due their turn.
func (l *Lane) letDueGo() {
	d := l.dispatcher
	d.mu.Lock()
	defer d.mu.Unlock()
	g := &l.gather
	g.alarm.rang()
	now := time.Now()
	for len(g.order) > 0 && !g.order[0].at.After(now) {
		of := heap.Pop(&g.order).(check).of
		if of.it == nil {
			continue
		}
		due := of.last.Add(d.collect.Wait)
		if by := of.first.Add(d.collect.MaxWait); by.Before(due) {
			due = by
		}
		if due.After(now) {
			heap.Push(&g.order, check{due, of})
			continue
		}
		l.letKeyGo(of.key)
	}
	if len(g.order) > 0 {
		g.alarm.set(g.order[0].at)
	}
}

// letKeyGo gives the collection of a key its turn. One that waits behind the head of the key is superseded.
func (l *Lane) letKeyGo(key string) {
	of := l.gather.newest[key]
	if of == nil {
		return
	}
	it := of.it
	l.gather.remove(of)
	l.enqueue(it)
	for l.keys.Waiting(key) > 1 {
		older, _ := l.keys.Pop(key)
		if !older.gathered {
			l.keys.Unpop(key, older)
			return
		}
		l.dispatcher.pending--
		l.supersede(older, it)
	}
}

// letAllGo gives all collections in memory their turn.
func (l *Lane) letAllGo() {
	for _, key := range slices.SortedFunc(maps.Keys(l.gather.newest), func(a, b string) int {
		return l.gather.newest[a].last.Compare(l.gather.newest[b].last)
	}) {
		l.letKeyGo(key)
	}
}

// gathersTooMuch reports that much of what the lane has in memory only waits for its collection.
func (l *Lane) gathersTooMuch() bool {
	return len(l.gather.newest) > 0 && 2*len(l.gather.newest) >= l.rows
}

// supersede settles an item instead of which another one is delivered.
func (l *Lane) supersede(it, by *item) {
	l.stats.Superseded++
	l.end(it, Settlement{Superseded: by.ID})
}

// supersedeParked settles the parked deliveries of a key before its last one, if that is enough. It returns false if
// the delivery gets its turn.
func (l *Lane) supersedeParked(p, last *store.Parked) bool {
	c := l.dispatcher.caller
	if p == last || c.Groups == nil || !l.dispatcher.collect.InMemory() || c.Group(context.Background(), &p.Envelope) == "" || c.Group(context.Background(), &last.Envelope) == "" {
		return false
	}
	it := l.itemOf(p)
	l.busy.add(it.ref(), p)
	l.supersede(it, l.itemOf(last))
	return true
}
