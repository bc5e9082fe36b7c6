package bench

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// batch identifies the notifications of one run: an id consists of the tag and a number from 0.
type batch struct{ tag string }

func (b batch) id(n int) string { return b.tag + strconv.Itoa(n) }

// number is the inverse of id. ok is false for an id that does not belong to the batch.
func (b batch) number(id string) (n int, ok bool) {
	digits, own := strings.CutPrefix(id, b.tag)
	if !own {
		return 0, false
	}
	if digits == "" || digits[0] < '0' || digits[0] > '9' || (digits[0] == '0' && digits != "0") {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil && n < pages*pageSize
}

// A tally has pages of bits, allocated on demand, so it is small: 10 million ids take 1.25 MB.
const (
	pageSize = 1 << 16
	pages    = 1 << 12
)

type page [pageSize / 64]atomic.Uint64

// tally counts the ids of a batch. It is safe for concurrent use and takes no locks.
type tally struct {
	batch
	pages    [pages]atomic.Pointer[page]
	distinct atomic.Int64
	repeated atomic.Int64
	unknown  atomic.Int64
	goal     atomic.Int64
	reached  chan struct{}
}

func newTally(b batch) *tally { return &tally{batch: b, reached: make(chan struct{}, 1)} }

// take is add without results.
func (t *tally) take(id string) { t.add(id) }

// add counts an id and returns its number. first is false if the id was counted before, or does not
// belong to the batch.
func (t *tally) add(id string) (n int, first bool) {
	n, ok := t.number(id)
	if !ok {
		t.unknown.Add(1)
		return 0, false
	}
	at := &t.pages[n/pageSize]
	p := at.Load()
	if p == nil {
		at.CompareAndSwap(nil, new(page))
		p = at.Load()
	}
	bit := uint64(1) << (n % 64)
	if p[n%pageSize/64].Or(bit)&bit != 0 {
		t.repeated.Add(1)
		return n, false
	}
	if t.distinct.Add(1) == t.goal.Load() {
		select {
		case t.reached <- struct{}{}:
		default:
		}
	}
	return n, true
}

// await waits until n different ids are counted. It returns false when ctx is done, or if no id
// arrives for the time stalled. It is not safe for concurrent use.
func (t *tally) await(ctx context.Context, goal int, stalled time.Duration) bool {
	t.goal.Store(int64(goal))
	last, since := t.distinct.Load(), time.Now()
	ticker := time.NewTicker(max(stalled/20, time.Millisecond))
	defer ticker.Stop()
	for t.distinct.Load() < int64(goal) {
		select {
		case <-t.reached:
		case <-ctx.Done():
			return false
		case <-ticker.C:
			if now := t.distinct.Load(); now != last {
				last, since = now, time.Now()
			} else if time.Since(since) > stalled {
				return false
			}
		}
	}
	return true
}

// check compares the counted ids with the first published ids of the batch.
func (t *tally) check(sink, counted string, expected int) Check {
	c := Check{
		Sink: sink, Counted: counted, Expected: int64(expected),
		Repeated: t.repeated.Load(), Unknown: t.unknown.Load(),
	}
	for n := range expected {
		if p := t.pages[n/pageSize].Load(); p != nil && p[n%pageSize/64].Load()&(1<<(n%64)) != 0 {
			c.Arrived++
		}
	}
	c.Lost = c.Expected - c.Arrived
	c.Unknown += t.distinct.Load() - c.Arrived // numbers that were never published
	return c
}
