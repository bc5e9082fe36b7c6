package mysql

import (
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-go/waybill/framework/store"
)

// spans is a set of offsets: ascending, disjoint, non-adjacent ranges. Methods do not change their
// receiver.
type spans []store.OffsetRange

// lastOffset is greater than all offsets, with room for additions.
const lastOffset = 1 << 62

// add returns s with a range that does not begin before the last range of s. It reuses the memory of s.
func (s spans) add(first, last int64) spans {
	if first > last {
		return s
	}
	if n := len(s); n > 0 && s[n-1].Last+1 >= first {
		s[n-1].Last = max(s[n-1].Last, last)
		return s
	}
	return append(s, store.OffsetRange{First: first, Last: last})
}

// minus returns s without t.
func (s spans) minus(t spans) spans {
	if len(s) == 0 || len(t) == 0 {
		return s
	}
	var out spans
	next := 0
	for _, r := range s {
		at := r.First
		for next < len(t) && t[next].Last < at {
			next++
		}
		for i := next; i < len(t) && t[i].First <= r.Last; i++ {
			out = out.add(at, t[i].First-1)
			at = t[i].Last + 1
		}
		out = out.add(at, r.Last)
	}
	return out
}

// and returns the intersection.
func (s spans) and(t spans) spans { return s.minus(s.minus(t)) }

// or returns the union.
func (s spans) or(t spans) spans {
	if len(s) == 0 {
		return t
	}
	if len(t) == 0 {
		return s
	}
	all := slices.Concat(s, t)
	slices.SortFunc(all, func(a, b store.OffsetRange) int { return int(min(max(a.First-b.First, -1), 1)) })
	var out spans
	for _, r := range all {
		out = out.add(r.First, r.Last)
	}
	return out
}

// upTo returns the offsets of s up to an offset, and behind returns those after it.
func (s spans) upTo(offset int64) spans {
	return s.minus(spans{{First: offset + 1, Last: lastOffset}})
}

func (s spans) behind(offset int64) spans {
	i, _ := slices.BinarySearchFunc(s, offset+1, func(r store.OffsetRange, offset int64) int { return int(min(max(r.Last-offset, -1), 1)) })
	if i == len(s) {
		return nil
	}
	if s[i].First > offset {
		return s[i:]
	}
	rest := slices.Clone(s[i:])
	rest[0].First = offset + 1
	return rest
}

// points returns the set of ascending offsets.
func points(offsets []int64) (s spans) {
	for _, offset := range offsets {
		s = s.add(offset, offset)
	}
	return s
}

// covering returns the first part of s that fits in one statement: at most chunk ranges. It joins ranges
// with gaps of up to apart offsets, since reading the gap is cheaper than another lookup.
func covering(s spans) (cover spans) {
	for _, r := range s {
		if n := len(cover); n > 0 && r.First-cover[n-1].Last <= apart {
			cover[n-1].Last = r.Last
			continue
		}
		if len(cover) == chunk {
			return cover
		}
		cover = append(cover, r)
	}
	return cover
}

const (
	// chunk is how many ranges one statement has. MariaDB does not use the index beyond
	// optimizer_max_sel_args (16,000) and rewrites lists of 1,000; MySQL does not use it beyond
	// range_optimizer_max_mem_size (8 MB).
	chunk = 400
	// apart is the largest gap that is read rather than split into two ranges.
	apart = 8
)

// where returns the condition that a row is in s. s must not be empty.
func (s spans) where() string {
	var ranges, list []string
	for _, r := range s {
		first := strconv.FormatInt(r.First, 10)
		if r.First == r.Last {
			list = append(list, first)
		} else {
			ranges = append(ranges, "`offset` BETWEEN "+first+" AND "+strconv.FormatInt(r.Last, 10))
		}
	}
	if len(list) > 0 {
		ranges = append(ranges, "`offset` IN ("+strings.Join(list, ",")+")")
	}
	return "(" + strings.Join(ranges, " OR ") + ")"
}
