// Package budget bounds the memory of all lanes of a process, however many there are.
//
// A lane may use as much as is left at the moment. So a single lane gets half of the budget, and
// n lanes that grow together get 1/(n+1) of it each, which leaves the same amount free: the lanes
// of a sink that is down do not take everything from the others. The rule is that of Choudhury
// and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", IEEE/ACM
// Transactions on Networking 6 (1998), with a factor of 1.
package budget

import "sync"

// Budget is shared by the lanes of a process. It is safe for concurrent use.
type Budget struct {
	mu      sync.Mutex
	left    int
	waiting map[*Share]struct{}
}

// New returns a budget of the given number of bytes.
func New(bytes int) *Budget {
	return &Budget{left: bytes, waiting: make(map[*Share]struct{})}
}

// Share is one lane's part of the budget.
type Share struct {
	budget *Budget
	freed  func()
	used   int
}

// Join returns a lane's share, of which nothing is used. freed is called once after Wait found
// the share full and that has changed. freed must not block, nor use the budget.
func (b *Budget) Join(freed func()) *Share { return &Share{budget: b, freed: freed} }

// Take uses bytes of the budget, or gives them back if the number is negative.
func (s *Share) Take(bytes int) {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	s.used += bytes
	b.left -= bytes
	if bytes >= 0 {
		return
	}
	for w := range b.waiting {
		if !w.full() {
			delete(b.waiting, w)
			w.freed()
		}
	}
}

// Leave gives everything back.
func (s *Share) Leave() {
	b := s.budget
	b.mu.Lock()
	delete(b.waiting, s)
	b.mu.Unlock()
	s.Take(-s.Used())
}

// Used returns how many bytes the share uses.
func (s *Share) Used() int {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	return s.used
}

// Full reports whether the lane must not use more. A share that uses nothing is never full, so
// that no lane starves; what it then uses may exceed the budget.
func (s *Share) Full() bool {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	return s.full()
}

// Wait is Full, and lets freed be called once when that changes.
func (s *Share) Wait() bool {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if !s.full() {
		return false
	}
	b.waiting[s] = struct{}{}
	return true
}

func (s *Share) full() bool { return s.used > 0 && s.used >= s.budget.left }
