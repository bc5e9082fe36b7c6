package fairqueue

import "slices"

// group is a group that shares a part.
type group struct {
	name     string
	inFlight int
	last     int // part.served when it last had a turn
	index    int // in the heap of groups with waiting items; -1 if it has none
	held     bool
}

// line is a group with its waiting items.
type line[T Item] struct {
	group
	items deque[T]
}

// lines is a heap of the groups with waiting items.
type lines[T Item] []*line[T]

func (h lines[T]) Len() int { return len(h) }

func (h lines[T]) Less(i, j int) bool {
	if h[i].held != h[j].held {
		return h[j].held
	}
	if h[i].inFlight != h[j].inFlight {
		return h[i].inFlight < h[j].inFlight
	}
	return h[i].last < h[j].last
}

func (h lines[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *lines[T]) Push(l any) {
	l.(*line[T]).index = len(*h)
	*h = append(*h, l.(*line[T]))
}

func (h *lines[T]) Pop() any {
	last := (*h)[len(*h)-1]
	last.index = -1
	*h = slices.Delete(*h, len(*h)-1, len(*h))
	return last
}
