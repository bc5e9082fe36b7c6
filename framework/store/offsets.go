package store

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// OffsetRange is a closed range of offsets, from First to Last.
type OffsetRange struct{ First, Last int64 }

// Count returns the number of offsets in the range.
func (r OffsetRange) Count() int64 { return r.Last - r.First + 1 }

// CountOffsets returns the number of offsets in all ranges.
func CountOffsets(ranges []OffsetRange) (n int64) {
	for _, r := range ranges {
		n += r.Count()
	}
	return n
}

// OffsetRanges returns the ranges of ascending offsets.
func OffsetRanges(offsets ...int64) (ranges []OffsetRange) {
	for _, offset := range offsets {
		if n := len(ranges); n > 0 && ranges[n-1].Last+1 == offset {
			ranges[n-1].Last = offset
			continue
		}
		ranges = append(ranges, OffsetRange{offset, offset})
	}
	return ranges
}

// JoinOffsets returns ranges that have no offset in common in ascending order, with gaps between them.
func JoinOffsets(ranges []OffsetRange) (joined []OffsetRange) {
	ranges = slices.SortedFunc(slices.Values(ranges), func(a, b OffsetRange) int { return cmp.Compare(a.First, b.First) })
	for _, r := range ranges {
		if n := len(joined); n > 0 && joined[n-1].Last+1 == r.First {
			joined[n-1].Last = r.Last
			continue
		}
		joined = append(joined, r)
	}
	return joined
}

// ContainsOffset reports whether ascending ranges contain an offset.
func ContainsOffset(ranges []OffsetRange, offset int64) bool {
	_, found := slices.BinarySearchFunc(ranges, offset, func(r OffsetRange, offset int64) int {
		switch {
		case r.Last < offset:
			return -1
		case r.First > offset:
			return 1
		}
		return 0
	})
	return found
}

// EncodeOffsets encodes ascending ranges for a cursor, such as "5-9,12"; no ranges give "". The
// offsets must be positive, and the ranges ascending with gaps between them: DecodeOffsets
// refuses anything else.
func EncodeOffsets(ranges []OffsetRange) string {
	var b []byte
	for i, r := range ranges {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, r.First, 10)
		if r.Last > r.First {
			b = append(b, '-')
			b = strconv.AppendInt(b, r.Last, 10)
		}
	}
	return string(b)
}

// DecodeOffsets is the inverse of EncodeOffsets; "" gives nil. Text that EncodeOffsets cannot
// have written fails with ErrPosition.
func DecodeOffsets(text string) ([]OffsetRange, error) {
	if text == "" {
		return nil, nil
	}
	var ranges []OffsetRange
	var previous int64
	for part := range strings.SplitSeq(text, ",") {
		first, last, err := parseOffsetRange(part)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: settled offsets %.40q: %w", ErrPosition, text, err)
		case first <= previous:
			return nil, fmt.Errorf("%w: settled offsets %.40q: %d does not follow %d", ErrPosition, text, first, previous)
		}
		ranges = append(ranges, OffsetRange{first, last})
		previous = last
	}
	return ranges, nil
}

// parseOffsetRange parses "5-9", or "12" as the range from 12 to 12.
func parseOffsetRange(text string) (first, last int64, err error) {
	from, to, isRange := strings.Cut(text, "-")
	if first, err = parseOffset(from); err != nil || !isRange {
		return first, first, err
	}
	if last, err = parseOffset(to); err != nil {
		return 0, 0, err
	}
	if last <= first {
		return 0, 0, fmt.Errorf("range %q does not ascend", text)
	}
	return first, last, nil
}

// parseOffset accepts only the digits that AppendInt writes: no sign and no leading zero.
func parseOffset(text string) (int64, error) {
	if text == "" || text[0] < '1' || text[0] > '9' {
		return 0, fmt.Errorf("%q is not an offset", text)
	}
	return strconv.ParseInt(text, 10, 64)
}
