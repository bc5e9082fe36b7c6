package looks

import (
	"context"
	"math"
	"time"

	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// How many offsets one statement counts in: few at first, so that few rows cost little, and then
// more, up to what takes some tens of milliseconds.
const (
	waitingFirst  = 5000
	waitingGrowth = 4
	waitingMost   = 80_000
)

// An estimate counts in windows of that many offsets, and in that many of them altogether, but in one at
// least for each rest. Types of which fewer rows than that are expected there are better known from what
// was counted before the rest.
const (
	windowOffsets = 500
	windows       = 8
	windowRows    = 100
)

// counter counts the pending rows of the lanes of one sink.
type counter struct {
	until time.Time // when it stops counting
	room  int       // how many more rows it counts
	begun bool
	found []waited // by lane
	rests []rest
}

// rest is the part of a span that is not counted.
type rest struct {
	tables.WaitingSpan
	from    int64 // it is after this offset
	counted density
}

// density is how many rows of each lane there are in some offsets.
type density struct {
	offsets int64
	rows    int
	byLane  map[int]int
}

func (d *density) add(lane, rows int) {
	d.rows += rows
	d.byLane[lane] += rows
}

// in returns how many rows of all lanes there are in that many offsets.
func (d *density) in(offsets int64) float64 {
	return float64(d.rows) / float64(max(1, d.offsets)) * float64(offsets)
}

// count counts in one span until there is no room or no time.
func (c *counter) count(ctx context.Context, span tables.WaitingSpan, oldest int64) error {
	first := max(span.After, oldest-1)
	r := rest{span, first, density{byLane: make(map[int]int)}}
	for size := int64(waitingFirst); r.from < span.Last && c.room > 0; size = min(size*waitingGrowth, waitingMost) {
		if c.begun && time.Now().After(c.until) {
			break
		}
		c.begun = true
		limit, last, through := c.room, min(r.from+size, span.Last), int64(0)
		err := span.Count(ctx, r.from, last, limit, func(lane int, w tables.Waiting) {
			c.found[lane].add(w.Rows, w.Oldest)
			r.counted.add(lane, w.Rows)
			c.room, through = c.room-w.Rows, max(through, w.Through)
		})
		if err != nil {
			return err
		}
		if c.room > 0 {
			through = last
		}
		r.from = through
	}
	r.counted.offsets = r.from - first
	if r.from < span.Last {
		c.rests = append(c.rests, r)
	}
	return nil
}

// estimate adds what the rests have by their density. It looks at a number of windows however long that takes: in
// fewer it would mistake a gap of the log for the whole. Without time, of more rests than that it takes what was counted.
func (c *counter) estimate(ctx context.Context) error {
	each := max(1, windows/max(1, len(c.rests)))
	for i := range c.rests {
		r := &c.rests[i]
		seen := density{byLane: make(map[int]int)}
		for n := range each {
			if i >= windows && time.Now().After(c.until) {
				break
			}
			if err := c.look(ctx, r, n, &seen); err != nil {
				return err
			}
		}
		if seen.rows < windowRows && r.counted.in(seen.offsets) < windowRows {
			seen.offsets += r.counted.offsets
			for lane, rows := range r.counted.byLane {
				seen.add(lane, rows)
			}
		}
		for lane, rows := range seen.byLane {
			c.found[lane].rows += int(math.Round(float64(rows) / float64(seen.offsets) * float64(r.Last-r.from)))
		}
	}
	return nil
}

// golden is the golden ratio less one. Its multiples, without their whole part, divide a range evenly, however many of
// them there are.
const golden = 0.6180339887498949

// look counts in the nth window of a rest. The first one is in the middle, or where nothing of the span is
// counted at its beginning, which has the oldest rows.
func (c *counter) look(ctx context.Context, r *rest, n int, seen *density) error {
	first := 0.5
	if r.counted.offsets == 0 {
		first = 0
	}
	_, place := math.Modf(first + float64(n)*golden)
	after := r.from + int64(place*float64(max(0, r.Last-r.from-windowOffsets)))
	last := min(after+windowOffsets, r.Last)
	seen.offsets += last - after
	return r.Count(ctx, after, last, windowOffsets, func(lane int, w tables.Waiting) {
		seen.add(lane, w.Rows)
		if c.found[lane].oldest.IsZero() || w.Oldest.Before(c.found[lane].oldest) {
			c.found[lane].oldest = w.Oldest
		}
	})
}
