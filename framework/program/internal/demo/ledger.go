package demo

import (
	"slices"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/route"
)

// ledger is the shop's record of what it has published, with which the receivers are compared.
type ledger struct {
	mu         sync.Mutex
	committed  map[string]entry // by id
	rolledBack map[string]entry
	expected   map[string]int // number of committed notifications by sink

	transactions struct{ committed, rolledBack int }
}

// entry is one notification in the ledger.
type entry struct {
	ID   string
	Type string
	// Notifications of the same Key must arrive in the order of Number.
	Key    string
	Number int
	// Committed is when the commit returned to the shop.
	Committed time.Time
}

func newLedger() *ledger {
	return &ledger{
		committed:  make(map[string]entry),
		rolledBack: make(map[string]entry),
		expected:   make(map[string]int),
	}
}

// commit records what a committed transaction has published.
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

// rollBack records what a transaction had published before it was rolled back.
func (l *ledger) rollBack(published []entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.transactions.rolledBack++
	for _, e := range published {
		l.rolledBack[e.ID] = e
	}
}

// count returns how many transactions were committed and rolled back so far.
func (l *ledger) count() (committed, rolledBack int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.transactions.committed, l.transactions.rolledBack
}

// owed returns how many of the notifications committed so far a sink must deliver.
func (l *ledger) owed(sink string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.expected[sink]
}

// owes reports whether a sink must deliver a notification.
func owes(sink string, e entry) bool {
	return slices.ContainsFunc(routes[e.Type], func(r route.Rule) bool { return r.Sink == sink })
}
