package keyqueue_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/forwarder/internal/keyqueue"
)

// In TestRandomActionsKeepTheOrderOfEachKey deliveries end in any way and in any order, while a
// checkpointer writes and reads the parked table in steps, an operator changes the table, and the process
// crashes. No item may begin before the earlier ones of its key are over, no key may have two heads, and
// without further faults all must end.
func TestRandomActionsKeepTheOrderOfEachKey(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{rt: rt, halt: rapid.Bool().Draw(rt, "halt"), table: make(map[*thing]state)}
		w.start()
		rt.Repeat(map[string]func(*rapid.T){
			"publish": w.publish,
			"read":    w.read,
			"end":     w.endOne,
			"chain":   w.chain,
			"spill":   w.spill,
			"step":    func(*rapid.T) { w.step() },
			"steps":   func(rt *rapid.T) { w.steps(rapid.IntRange(2, 12).Draw(rt, "count")) },
			"discard": w.discard,
			"requeue": w.requeue,
			"crash":   func(*rapid.T) { w.start() },
			"":        w.check,
		})
		w.finish()
	})
}

type state string

const (
	blocked   state = "blocked"
	retrying  state = "retrying"
	scheduled state = "scheduled"
	dead      state = "dead"
)

// thing is a delivery of the log.
type thing struct {
	key string
	seq int
	// free means that the key's order does not bind it: it was scheduled, or requeued by an operator.
	free      bool
	scheduled bool
	over      bool // later deliveries of its key may begin
	// written means that it is settled in the log; overWritten means that it is over even after a crash.
	written, overWritten bool
}

func (it *thing) String() string { return fmt.Sprintf("%s%d", it.key, it.seq) }

// under is a delivery that the engine has in memory.
type under struct {
	*thing
	parked  bool // it was read from the table
	chained []*under
}

// end is the outcome of a delivery, for a checkpoint.
type end struct {
	it   *under
	park state // "": removed from the table
	ask  bool
}

// world is the log, the parked table, the dispatcher and the checkpointer around the
// keys of a lane.
type world struct {
	rt   *rapid.T
	halt bool
	log  []*thing

	table map[*thing]state

	ks      *keyqueue.Keys[*under]
	at      int                 // next row of the log to read
	unmet   map[*thing]bool     // settled before the start and not read yet
	passed  bool                // unmet was empty when taken was taken
	heads   map[string]*under   // of each key, at most one
	waiting map[string][]*under // deliveries behind the head
	busy    map[*thing]bool     // parked deliveries that the engine has in memory
	settled []end               // not yet taken by the checkpointer
	taken   []end               // taken, but not yet written
	number  uint64              // number of the last parking in taken
	ask     []string            // keys to ask for
	phase   int                 // next step of the checkpointer
	seen    map[*thing]state    // the table at its last reading
	asked   string              // the key for which it was read
}

// start starts from the state after a crash: the table and the settled rows of the log.
func (w *world) start() {
	for _, it := range w.log {
		it.over = it.overWritten
	}
	w.ks = keyqueue.New[*under]()
	w.heads, w.waiting, w.busy = make(map[string]*under), make(map[string][]*under), make(map[*thing]bool)
	w.settled, w.taken, w.ask, w.phase, w.passed = nil, nil, nil, 0, false
	w.at = len(w.log)
	w.unmet = make(map[*thing]bool)
	for i, it := range w.log {
		if !it.written {
			w.at = min(w.at, i)
		} else if i > w.at {
			w.unmet[it] = true
		}
	}
	w.seen = maps.Clone(w.table)
	w.compare()
}

func (w *world) publish(rt *rapid.T) {
	for range rapid.IntRange(1, 5).Draw(rt, "count") {
		it := &thing{key: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "key"), seq: len(w.log)}
		it.scheduled = rapid.IntRange(0, 5).Draw(rt, "scheduled") == 0
		it.free = it.scheduled
		w.log = append(w.log, it)
	}
}

func (w *world) read(rt *rapid.T) {
	for range rapid.IntRange(1, 5).Draw(rt, "rows") {
		w.readOne()
	}
}

func (w *world) readOne() {
	if w.at == len(w.log) {
		return
	}
	it := &under{thing: w.log[w.at]}
	w.at++
	switch {
	case w.unmet[it.thing]:
		delete(w.unmet, it.thing)
	case it.written:
	case it.scheduled:
		w.settled = append(w.settled, end{it: it, park: scheduled})
	default:
		switch turn := w.ks.Enqueue(it.key, it); turn {
		case keyqueue.Go:
			w.begin(it)
		case keyqueue.Wait:
			w.waiting[it.key] = append(w.waiting[it.key], it)
		case keyqueue.Park:
			w.settled = append(w.settled, end{it: it, park: blocked})
		default:
			w.rt.Fatalf("%s has the turn %d", it, turn)
		}
	}
}

// begin makes an item the head of its key.
func (w *world) begin(it *under) {
	if head := w.heads[it.key]; head != nil {
		w.rt.Fatalf("%s begins while %s is the head", it, head)
	}
	w.heads[it.key] = it
	w.mayBegin(it)
}

func (w *world) mayBegin(it *under) {
	if it.free {
		return
	}
	for _, other := range w.log[:it.seq] {
		if other.key == it.key && !other.free && !other.over && !w.chainedBehind(other, it.key) {
			w.rt.Fatalf("%s begins before %s is over", it, other)
		}
	}
}

func (w *world) chainedBehind(it *thing, key string) bool {
	head := w.heads[key]
	return head != nil && (head.thing == it || slices.ContainsFunc(head.chained, func(c *under) bool { return c.thing == it }))
}

// endOne ends the delivery of a head, and of those in the same batch.
func (w *world) endOne(rt *rapid.T) {
	if len(w.heads) == 0 {
		rt.Skip("nothing is in flight")
	}
	key := rapid.SampledFrom(slices.Sorted(maps.Keys(w.heads))).Draw(rt, "key")
	head := w.heads[key]
	batch := append([]*under{head}, head.chained...)
	good := rapid.IntRange(0, len(batch)).Draw(rt, "good")
	w.endBatch(batch, good, rapid.SampledFrom([]state{retrying, retrying, dead}).Draw(rt, "becomes"))
}

// endBatch delivers the first items of a batch; the next item fails, and the later ones
// wait again.
func (w *world) endBatch(batch []*under, good int, becomes state) {
	key := batch[0].key
	for _, it := range slices.Backward(batch[min(good+1, len(batch)):]) {
		w.ks.Unpop(key, it)
		w.waiting[key] = append([]*under{it}, w.waiting[key]...)
	}
	batch[0].chained = nil
	delete(w.heads, key)
	for _, it := range batch[:min(good, len(batch)-1)] {
		it.over = true
		w.settled = append(w.settled, end{it: it})
	}
	last := batch[min(good, len(batch)-1)]
	switch {
	case good == len(batch):
		last.over = true
		w.settled = append(w.settled, end{it: last, ask: w.next(key)})
	case becomes == dead && !w.halt:
		last.over = true
		w.settled = append(w.settled, end{it: last, park: dead, ask: w.next(key)})
	default:
		w.settled = append(w.settled, end{it: last, park: becomes})
		w.parkAll(key, w.ks.Hold(key))
	}
}

func (w *world) next(key string) (ask bool) {
	next, ok, ask := w.ks.Next(key)
	waiting := w.waiting[key]
	require.Equal(w.rt, len(waiting) > 0, ok)
	if ok {
		require.Same(w.rt, waiting[0], next)
		require.False(w.rt, ask)
		w.waiting[key] = waiting[1:]
		w.begin(next)
	}
	return ask
}

// parkAll parks the deliveries that waited for a head.
func (w *world) parkAll(key string, waiting []*under) {
	require.Equal(w.rt, len(w.waiting[key]), len(waiting))
	for i, it := range waiting {
		require.Same(w.rt, w.waiting[key][i], it)
		if it.parked {
			delete(w.busy, it.thing)
		} else {
			w.settled = append(w.settled, end{it: it, park: blocked})
		}
	}
	w.waiting[key] = nil
}

// chain adds waiting deliveries to the batch of their head.
func (w *world) chain(rt *rapid.T) {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(w.heads)) {
		if len(w.waiting[key]) > 0 {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		rt.Skip("nothing waits")
	}
	key := rapid.SampledFrom(keys).Draw(rt, "key")
	it, ok := w.ks.Pop(key)
	require.True(rt, ok)
	require.Same(rt, w.waiting[key][0], it)
	w.waiting[key] = w.waiting[key][1:]
	w.mayBegin(it)
	w.heads[key].chained = append(w.heads[key].chained, it)
}

func (w *world) spill(rt *rapid.T) {
	crowded := w.ks.Crowded(2)
	if len(crowded) == 0 {
		rt.Skip("nothing waits")
	}
	key := rapid.SampledFrom(slices.Sorted(maps.Keys(crowded))).Draw(rt, "key")
	require.Len(rt, w.waiting[key], crowded[key])
	w.parkAll(key, w.ks.Spill(key))
}

func (w *world) steps(n int) {
	for range n {
		w.step()
	}
}

// step is one step of the checkpointer. Anything may happen between two.
func (w *world) step() {
	switch w.phase {
	case 0: // take
		w.taken, w.settled = w.settled, nil
		w.number = w.ks.Parking()
		w.passed = len(w.unmet) == 0
	case 1:
		w.write()
	case 2: // read due deliveries
		w.seen = maps.Clone(w.table)
	case 3:
		w.resumeDue()
	case 4: // read the followers of a key
		w.asked = ""
		if w.passed && len(w.ask) > 0 {
			w.asked, w.ask = w.ask[0], w.ask[1:]
		}
		w.seen = maps.Clone(w.table)
	case 5:
		if w.asked != "" && w.resumeFollowers() {
			w.phase = 3
		}
	case 6: // read the blocked keys
		w.seen = maps.Clone(w.table)
	case 7:
		w.compare()
	}
	w.phase = (w.phase + 1) % 8
}

func (w *world) write() {
	for _, e := range w.taken {
		it := e.it
		it.written, it.overWritten = true, it.over
		switch _, has := w.table[it.thing]; {
		case e.park == "":
			delete(w.table, it.thing)
		case e.park == blocked && has: // a blocked delivery replaces no other
		default:
			w.table[it.thing] = e.park
		}
		if it.parked {
			delete(w.busy, it.thing)
		}
		if e.ask {
			w.askFor(it.key)
		}
	}
	w.taken = nil
}

func (w *world) askFor(keys ...string) {
	for _, key := range keys {
		if !slices.Contains(w.ask, key) {
			w.ask = append(w.ask, key)
		}
	}
}

// rows returns the rows of a table in the order of the log.
func rows(table map[*thing]state, of func(it *thing, s state) bool) []*thing {
	var all []*thing
	for it, s := range table {
		if of(it, s) {
			all = append(all, it)
		}
	}
	slices.SortFunc(all, func(a, b *thing) int { return cmp.Compare(a.seq, b.seq) })
	return all
}

func (w *world) holds(s state) bool { return s == retrying || s == blocked || s == dead && w.halt }

func (w *world) holders(key string) []*thing {
	return rows(w.seen, func(it *thing, s state) bool { return it.key == key && w.holds(s) })
}

func (w *world) resumeDue() {
	for _, it := range rows(w.seen, func(it *thing, s state) bool {
		return s == retrying || s == scheduled && len(w.holders(it.key)) == 0
	}) {
		w.resume(it, w.seen[it])
	}
}

func (w *world) resume(it *thing, s state) {
	if w.busy[it] {
		return
	}
	u := &under{thing: it, parked: true}
	switch w.ks.Resume(it.key, u, s != scheduled) {
	case keyqueue.Go:
		w.busy[it] = true
		w.begin(u)
	case keyqueue.Wait:
		w.busy[it] = true
		w.waiting[it.key] = append(w.waiting[it.key], u)
	case keyqueue.Park:
		w.rt.Fatalf("%s is parked already", it)
	case keyqueue.Refuse:
		require.Equal(w.rt, scheduled, s)
	}
}

// resumeFollowers adds the parked deliveries of the key that was asked for, and reports whether there
// are more keys to ask for at once.
func (w *world) resumeFollowers() (more bool) {
	if !w.ks.Idle(w.asked) {
		return true
	}
	parked := w.holders(w.asked)
	if len(parked) == 0 {
		if _, again := w.ks.Free(w.asked, w.number); again {
			w.askFor(w.asked)
			return false
		}
		return true
	}
	for _, it := range parked[:min(3, len(parked))] {
		if w.seen[it] != blocked {
			break
		}
		w.resume(it, blocked)
	}
	return true
}

func (w *world) compare() {
	heads := make(map[string]bool)
	for it, s := range w.seen {
		if w.holds(s) {
			heads[it.key] = heads[it.key] || s != blocked
		}
	}
	for _, key := range slices.Sorted(maps.Keys(heads)) {
		if w.ks.Held(key, heads[key]) {
			w.askFor(key)
		}
	}
	w.askFor(slices.Sorted(slices.Values(w.ks.Compared()))...)
}

// choose draws a delivery for an operator's action, but none that the engine has in memory or has yet to
// write.
func (w *world) choose(rt *rapid.T, of func(it *thing, s state) bool) *thing {
	if w.phase%2 == 1 {
		rt.Skip("the table is being read")
	}
	all := rows(w.table, func(it *thing, s state) bool { return !w.busy[it] && of(it, s) })
	if len(all) == 0 {
		rt.Skip("no such delivery")
	}
	return all[rapid.IntRange(0, len(all)-1).Draw(rt, "row")]
}

func (w *world) discard(rt *rapid.T) {
	it := w.choose(rt, func(*thing, state) bool { return true })
	delete(w.table, it)
	it.over, it.overWritten = true, true
}

func (w *world) requeue(rt *rapid.T) {
	it := w.choose(rt, func(_ *thing, s state) bool { return s == dead })
	w.table[it] = retrying
	it.free, it.over, it.overWritten = it.free || !w.halt, false, false
}

// check compares the keys with the model.
func (w *world) check(rt *rapid.T) {
	for _, key := range []string{"a", "b"} {
		require.Equal(rt, w.heads[key] == nil, w.ks.Idle(key))
		require.Equal(rt, len(w.waiting[key]), w.ks.Waiting(key))
		if w.heads[key] == nil {
			require.Empty(rt, w.waiting[key], "without a head no delivery may wait in memory")
		}
	}
}

// finish delivers everything, without further faults.
func (w *world) finish() {
	for range 20*len(w.log) + 50 {
		w.readOne()
		for _, key := range slices.Sorted(maps.Keys(w.heads)) {
			head := w.heads[key]
			batch := append([]*under{head}, head.chained...)
			w.endBatch(batch, len(batch), "")
		}
		if w.phase == 0 {
			for _, it := range rows(w.table, func(it *thing, s state) bool { return s == dead && w.halt && !w.busy[it] }) {
				delete(w.table, it)
				it.over = true
			}
		}
		w.steps(1)
		w.check(w.rt)
	}
	for _, it := range w.log {
		if !it.over || !it.written {
			w.rt.Fatalf("%s was lost: in the table %q, in memory %v", it, w.table[it], w.busy[it])
		}
	}
	for it, s := range w.table {
		require.Equal(w.rt, dead, s, "%s is still parked", it)
	}
	require.Empty(w.rt, w.heads)
}
