package fairqueue

import "slices"

// deque is a double-ended queue.
type deque[T any] struct {
	front []T // reversed: the last element goes first
	back  []T
	head  int // index of the first element of back
}

func (q *deque[T]) len() int { return len(q.front) + len(q.back) - q.head }

func (q *deque[T]) push(item T) { q.back = append(q.back, item) }

func (q *deque[T]) pushFront(item T) { q.front = append(q.front, item) }

// pop removes and returns the first item; there must be one.
func (q *deque[T]) pop() T {
	var none T
	if n := len(q.front); n > 0 {
		item := q.front[n-1]
		q.front[n-1] = none
		q.front = q.front[:n-1]
		return item
	}
	item := q.back[q.head]
	q.back[q.head] = none
	q.head++
	if q.head > len(q.back)/2 { // half of it is free: move the rest to the beginning
		n := copy(q.back, q.back[q.head:])
		clear(q.back[n:])
		q.back, q.head = q.back[:n], 0
	}
	return item
}

// each calls f with the items in order, until f returns false.
func (q *deque[T]) each(f func(T) bool) bool {
	for _, item := range slices.Backward(q.front) {
		if !f(item) {
			return false
		}
	}
	for _, item := range q.back[q.head:] {
		if !f(item) {
			return false
		}
	}
	return true
}

// drop removes the items for which drop is true, and appends them to dropped in order.
func (q *deque[T]) drop(drop func(T) bool, dropped []T) []T {
	before := len(dropped)
	take := func(item T) bool {
		if !drop(item) {
			return false
		}
		dropped = append(dropped, item)
		return true
	}
	q.front = slices.DeleteFunc(q.front, take)
	slices.Reverse(dropped[before:])
	q.back = slices.DeleteFunc(q.back[q.head:], take)
	q.head = 0
	return dropped
}
