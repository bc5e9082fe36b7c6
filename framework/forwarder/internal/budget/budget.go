// Package budget bounds what all lanes of a process have in memory, whatever their
// number.
//
// A lane may have as much as is left at the moment. So one lane by itself gets half of
// the budget, and n that grow together 1/(n+1) of it each, which leaves as much again:
// those of a sink that is down do not take all from the others. The rule is that of Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory
// Packet Switches", IEEE/ACM Transactions on Networking 6 (1998), with a factor of 1.
package budget

import "sync"

// Budget is what the lanes of a process share. It is safe for concurrent use.
type Budget struct {
	mu      sync.Mutex
	left    int
	waiting map[*Share]struct{}
}

// New returns a budget of so many bytes.
func New(bytes int) *Budget {
	return &Budget{left: bytes, waiting: make(map[*Share]struct{})}
}

// Share is what one lane takes of the budget.
type Share struct {
	budget *Budget
	freed  func()
	used   int
}

// Join returns a lane's share, of which nothing is taken. freed is called once a share
// that was found full by Wait is so no more; it must not block, nor use the budget.
func (b *Budget) Join(freed func()) *Share { return &Share{budget: b, freed: freed} }

// Take takes bytes, or gives them back if they are negative.
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

// Leave gives back all that was taken.
func (s *Share) Leave() {
	b := s.budget
	b.mu.Lock()
	delete(b.waiting, s)
	b.mu.Unlock()
	s.Take(-s.Used())
}

// Used is how many bytes are taken.
func (s *Share) Used() int {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	return s.used
}

// Full says that no more is to be taken. A share of which nothing is taken is never
// full, so that no lane starves; the budget may be exceeded by what it then takes.
func (s *Share) Full() bool {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	return s.full()
}

// Wait is Full, and has freed called once that changes.
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
