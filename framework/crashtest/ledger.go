package crashtest

import "sync"

// outcome is what a publisher knows of a transaction.
type outcome string

const (
	// begun: and no more was heard; its publisher was killed. It may be committed.
	begun outcome = "begun"
	// committed: the server said so.
	committed outcome = "committed"
	// rolledBack: COMMIT was never sent.
	rolledBack outcome = "rolled back"
	// unknown: COMMIT was sent, and its answer was lost.
	unknown outcome = "unknown"
)

// transaction is a publisher's line about one of its transactions: one before it
// writes anything, and one when it has ended. A killed publisher leaves whole
// lines only, since a pipe takes each at once.
type transaction struct {
	ID      string  `json:"id"`
	Outcome outcome `json:"outcome"`
	Items   []item  `json:"items,omitempty"` // in the first line
}

// item is a notification that a transaction publishes if it commits.
type item struct {
	ID  string `json:"id"`
	Key string `json:"key"`
}

// publication is what became of the transaction of a notification, as far as its
// publisher knows.
type publication struct {
	key     string
	outcome *outcome
}

// ledger is what all publishers said.
type ledger struct {
	mu           sync.Mutex
	transactions map[string]*outcome
	items        map[string]publication // by id
}

func newLedger() *ledger {
	return &ledger{transactions: make(map[string]*outcome), items: make(map[string]publication)}
}

func (l *ledger) note(t transaction) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.transactions[t.ID]; known != nil {
		*known = t.Outcome
		return
	}
	l.transactions[t.ID] = &t.Outcome
	for _, i := range t.Items {
		l.items[i.ID] = publication{i.Key, &t.Outcome}
	}
}

// publications returns everything, once nothing is noted any more.
func (l *ledger) publications() map[string]publication {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.items
}

// count counts transactions.
func (l *ledger) count() (byOutcome map[outcome]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	byOutcome = make(map[outcome]int)
	for _, o := range l.transactions {
		byOutcome[*o]++
	}
	return byOutcome
}
