package dispatch

import "sync"

// Budget bounds what all lanes of a process have in memory, whatever their number. A
// lane that has nothing may always read a page, so none starves.
type Budget struct {
	mu      sync.Mutex
	left    int
	waiting map[*Lane]bool
}

// NewBudget returns a budget of so many bytes.
func NewBudget(bytes int) *Budget {
	return &Budget{left: bytes, waiting: make(map[*Lane]bool)}
}

// take spends bytes, or gives them back if they are negative. Lanes that wait look
// again once there are some.
func (b *Budget) take(bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left -= bytes
	if bytes < 0 && b.left > 0 {
		for l := range b.waiting {
			l.look()
		}
		clear(b.waiting)
	}
}

// wait returns whether all is spent; if so, the lane looks again once that changes.
func (b *Budget) wait(l *Lane) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left > 0 {
		return false
	}
	b.waiting[l] = true
	return true
}

// spent returns whether all is spent.
func (b *Budget) spent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left <= 0
}
