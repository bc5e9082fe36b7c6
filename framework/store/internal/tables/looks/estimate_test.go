package looks

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// strewn is a log in which a function says which lane the row at an offset is in; -1: it has none.
type strewn struct {
	lane   func(offset int64) int
	last   int64
	looked int64 // how many offsets were looked at
	asked  int
}

func (s *strewn) span(after, last int64) tables.WaitingSpan {
	return tables.WaitingSpan{After: after, Last: last, Count: func(_ context.Context, after, last int64, limit int, found func(int, tables.Waiting)) error {
		s.asked++
		rows := make(map[int]tables.Waiting)
		for offset := after + 1; offset <= last && limit > 0; offset++ {
			s.looked++
			if lane := s.lane(offset); lane >= 0 {
				limit--
				w := rows[lane]
				if w.Rows == 0 {
					w.Oldest = time.Unix(offset, 0)
				}
				w.Rows, w.Through = w.Rows+1, offset
				rows[lane] = w
			}
		}
		for lane, w := range rows {
			found(lane, w)
		}
		return nil
	}}
}

func TestAnEstimateIsWithinAFactorOfTwo(t *testing.T) {
	t.Parallel()
	const last = 1_000_000
	evenly := func(every int64) func(int64) int {
		return func(offset int64) int {
			if offset*2654435761>>7%every != 0 {
				return -1
			}
			return int(offset / every % 4)
		}
	}
	for name, c := range map[string]struct {
		lane func(offset int64) int
		stop bool // time is over after the first statement
	}{
		"rows of all types":                   {lane: evenly(1)},
		"one of three":                        {lane: evenly(3)},
		"one of fifty":                        {lane: evenly(50)},
		"one of a hundred, and no time":       {lane: evenly(100), stop: true},
		"all, and no time":                    {lane: evenly(1), stop: true},
		"few at first":                        {lane: func(o int64) int { return evenly(max(1, 5-o/100_000))(o) }},
		"a third of the log is gone":          {lane: func(o int64) int { return choose(o > 300_000 && o < 630_000, -1, int(o%4)) }},
		"a third is gone, and no time":        {lane: func(o int64) int { return choose(o > 300_000 && o < 630_000, -1, int(o%4)) }, stop: true},
		"nothing after what was counted":      {lane: func(o int64) int { return choose(o > 20_000, -1, int(o%4)) }},
		"others after what was counted":       {lane: func(o int64) int { return choose(o > 20_000, 3, 0) }},
		"everything after what was not there": {lane: func(o int64) int { return choose(o < 100_000, -1, int(o%4)) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &strewn{lane: c.lane, last: last}
			right := make([]int, 4)
			for offset := int64(1); offset <= last; offset++ {
				if lane := c.lane(offset); lane >= 0 {
					right[lane]++
				}
			}
			k := counter{until: time.Now().Add(time.Hour), room: store.PendingLimit, found: make([]waited, 4)}
			if c.stop {
				k.until = time.Now()
			}
			require.NoError(t, k.count(t.Context(), log.span(0, last), 1))
			require.NotEmpty(t, k.rests)
			counted, asked := log.looked, log.asked
			require.NoError(t, k.estimate(t.Context()))
			require.LessOrEqual(t, log.looked-counted, int64(windows*windowOffsets))
			require.LessOrEqual(t, log.asked-asked, windows)
			for lane, w := range k.found {
				require.InDelta(t, right[lane], w.rows, max(float64(right[lane]), store.PendingLimit)/2, "lane %d", lane)
			}
		})
	}
}

func choose(first bool, a, b int) int {
	if first {
		return a
	}
	return b
}

// Lanes that stand at different places have a span each.
func TestEachSpanIsEstimated(t *testing.T) {
	t.Parallel()
	const lanes, last = 20, 500_000
	k := counter{until: time.Now().Add(time.Hour), room: store.PendingLimit, found: make([]waited, lanes)}
	for lane := range lanes {
		log := &strewn{lane: func(offset int64) int { return choose(offset%lanes == int64(lane), lane, -1) }}
		require.NoError(t, k.count(t.Context(), log.span(int64(lane)*10_000, last), 1))
	}
	require.NoError(t, k.estimate(t.Context()))
	for lane, w := range k.found {
		right := float64(last-lane*10_000) / lanes
		require.InDelta(t, right, w.rows, right/2, "lane %d", lane)
		require.Equal(t, int64(lane), w.oldest.Unix()%lanes)
		require.Less(t, w.oldest.Unix(), int64(lane)*10_000+lanes+1, "the oldest row of lane %d", lane)
	}
}
