// Package spans has sets of offsets.
package spans

import (
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Set is a set of offsets: ascending, disjoint, non-adjacent ranges. Methods do not change their
// receiver.
type Set []store.OffsetRange

// lastOffset is greater than all offsets, with room for additions.
const lastOffset = 1 << 62

// Add returns s with a range that does not begin before the last range of s. It reuses the memory of s.
func (s Set) Add(first, last int64) Set {
	if first > last {
		return s
	}
	if n := len(s); n > 0 && s[n-1].Last+1 >= first {
		s[n-1].Last = max(s[n-1].Last, last)
		return s
	}
	return append(s, store.OffsetRange{First: first, Last: last})
}

// Minus returns s without t.
func (s Set) Minus(t Set) Set {
	if len(s) == 0 || len(t) == 0 {
		return s
	}
	var out Set
	next := 0
	for _, r := range s {
		at := r.First
		for next < len(t) && t[next].Last < at {
			next++
		}
		for i := next; i < len(t) && t[i].First <= r.Last; i++ {
			out = out.Add(at, t[i].First-1)
			at = t[i].Last + 1
		}
		out = out.Add(at, r.Last)
	}
	return out
}

// And returns the intersection.
func (s Set) And(t Set) Set { return s.Minus(s.Minus(t)) }

// Or returns the union.
func (s Set) Or(t Set) Set {
	if len(s) == 0 {
		return t
	}
	if len(t) == 0 {
		return s
	}
	all := slices.Concat(s, t)
	slices.SortFunc(all, func(a, b store.OffsetRange) int { return int(min(max(a.First-b.First, -1), 1)) })
	var out Set
	for _, r := range all {
		out = out.Add(r.First, r.Last)
	}
	return out
}

// UpTo returns the offsets of s up to an offset, and behind returns those after it.
func (s Set) UpTo(offset int64) Set {
	return s.Minus(Set{{First: offset + 1, Last: lastOffset}})
}

func (s Set) Behind(offset int64) Set {
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

// Points returns the set of ascending offsets.
func Points(offsets []int64) (s Set) {
	for _, offset := range offsets {
		s = s.Add(offset, offset)
	}
	return s
}

// Covering returns the first part of s that fits in one statement: at most chunk ranges. It joins ranges
// with gaps of up to apart offsets, since reading the gap is cheaper than another lookup.
func Covering(s Set) (cover Set) {
	for _, r := range s {
		if n := len(cover); n > 0 && r.First-cover[n-1].Last <= apart {
			cover[n-1].Last = r.Last
			continue
		}
		if len(cover) == Chunk {
			return cover
		}
		cover = append(cover, r)
	}
	return cover
}

const (
	// Chunk is how many ranges one statement has. MariaDB does not use the index beyond
	// optimizer_max_sel_args (16,000) and rewrites lists of 1,000; MySQL does not use it beyond
	// range_optimizer_max_mem_size (8 MB).
	Chunk = 400
	// apart is the largest gap that is read rather than split into two ranges.
	apart = 8
)

// Where returns the condition that a row is in s. s must not be empty.
func (s Set) Where() string {
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

// First returns the first n offsets of s, counting gaps.
func (s Set) First(n int64) Set {
	if len(s) == 0 {
		return nil
	}
	return s.UpTo(s[0].First + n - 1)
}

// Only returns the envelopes whose offsets are in s. It reuses the slice.
func (s Set) Only(envelopes []notification.Envelope) []notification.Envelope {
	kept, next := envelopes[:0], 0
	for i := range envelopes {
		for next < len(s) && s[next].Last < envelopes[i].Offset {
			next++
		}
		if next < len(s) && s[next].First <= envelopes[i].Offset {
			kept = append(kept, envelopes[i])
		}
	}
	return kept
}
