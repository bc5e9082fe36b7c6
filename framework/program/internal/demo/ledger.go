package demo

import (
	"slices"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/route"
)

// ledger is the shop's own record of what it published: the truth that the
// receivers are compared with.
type ledger struct {
	mu         sync.Mutex
	committed  map[string]entry // by id
	rolledBack map[string]entry
	expected   map[string]int // committed notifications, by the sink that should get them

	transactions struct{ committed, rolledBack int }
}

// entry is one notification in the ledger.
type entry struct {
	ID   string
	Type string
	// Key and Number say that it comes behind all of that key with a lower number,
	// and before those with a higher one.
	Key    string
	Number int
	// Committed is when the shop knew that its transaction was committed.
	Committed time.Time
}

func newLedger() *ledger {
	return &ledger{
		committed:  make(map[string]entry),
		rolledBack: make(map[string]entry),
		expected:   make(map[string]int),
	}
}

// commit writes down what one transaction published that was committed.
func (l *ledger) commit(at time.Time, published []entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.transactions.committed++
	for _, e := range published {
		e.Committed = at
		l.committed[e.ID] = e
		for _, rule := range routes[e.Type] {
			l.expected[rule.Sink]++
		}
	}
}

// rollBack writes down what one transaction published that was rolled back.
func (l *ledger) rollBack(published []entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.transactions.rolledBack++
	for _, e := range published {
		l.rolledBack[e.ID] = e
	}
}

// count says how many transactions were committed and rolled back so far.
func (l *ledger) count() (committed, rolledBack int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.transactions.committed, l.transactions.rolledBack
}

// owed is how many notifications a sink has to deliver, of those committed so far.
func (l *ledger) owed(sink string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.expected[sink]
}

// owes says whether a sink has to deliver what the entry stands for.
func owes(sink string, e entry) bool {
	return slices.ContainsFunc(routes[e.Type], func(r route.Rule) bool { return r.Sink == sink })
}
