package store

import (
	"fmt"
	"strconv"
	"strings"
)

// maxOffsets is how many offsets DecodeOffsets unfolds. It is far above what a
// lane can have in flight, and keeps a damaged text from taking all memory.
const maxOffsets = 1 << 22

// EncodeOffsets writes ascending offsets as the ranges they form, such as
// "5-9,12", so that thousands of neighbours take a few bytes in a cursor's
// position. No offsets give "". The offsets must be positive and ascending
// without repeats: DecodeOffsets refuses anything else.
func EncodeOffsets(offsets []int64) string {
	var b []byte
	for first := 0; first < len(offsets); {
		last := first
		for last+1 < len(offsets) && offsets[last+1] == offsets[last]+1 {
			last++
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, offsets[first], 10)
		if last > first {
			b = append(b, '-')
			b = strconv.AppendInt(b, offsets[last], 10)
		}
		first = last + 1
	}
	return string(b)
}

// DecodeOffsets is the inverse of EncodeOffsets; "" gives nil. Text that
// EncodeOffsets cannot have written, and text of more than 4,194,304 offsets,
// gives ErrPosition.
func DecodeOffsets(text string) ([]int64, error) {
	if text == "" {
		return nil, nil
	}
	var offsets []int64
	var previous int64
	for part := range strings.SplitSeq(text, ",") {
		first, last, err := parseOffsetRange(part)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: settled offsets %.40q: %w", ErrPosition, text, err)
		case first <= previous:
			return nil, fmt.Errorf("%w: settled offsets %.40q: %d does not follow %d", ErrPosition, text, first, previous)
		case last-first >= int64(maxOffsets-len(offsets)):
			return nil, fmt.Errorf("%w: settled offsets %.40q: more than %d of them", ErrPosition, text, maxOffsets)
		}
		for offset := first; offset < last; offset++ {
			offsets = append(offsets, offset)
		}
		offsets = append(offsets, last)
		previous = last
	}
	return offsets, nil
}

// parseOffsetRange reads "5-9", or "12" as the range from 12 to 12.
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

// parseOffset takes nothing but the digits that AppendInt writes: no sign, no
// leading zero.
func parseOffset(text string) (int64, error) {
	if text == "" || text[0] < '1' || text[0] > '9' {
		return 0, fmt.Errorf("%q is not an offset", text)
	}
	return strconv.ParseInt(text, 10, 64)
}
