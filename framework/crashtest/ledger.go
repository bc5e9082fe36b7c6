package crashtest

import "sync"

// outcome is what a publisher knows of a transaction.
type outcome string

const (
	// begun means that nothing more is known: the publisher was killed. It may be committed.
	begun outcome = "begun"
	// prepared means that the server will commit it or roll it back, whatever happens to the publisher. The harness ends
	// what no one has ended.
	prepared outcome = "prepared"
	// committed means that the server confirmed it.
	committed outcome = "committed"
	// rolledBack means that COMMIT was never sent.
	rolledBack outcome = "rolled back"
	// unknown means that COMMIT or PREPARE was sent and its answer was lost.
	unknown outcome = "unknown"
)

// transaction is a line that a publisher writes about a transaction: one before it writes to the
// database, and one when the transaction has ended. A killed publisher leaves no partial lines,
// because it writes each line to the pipe at once.
type transaction struct {
	ID      string  `json:"id"`
	Outcome outcome `json:"outcome"`
	Items   []item  `json:"items,omitempty"` // in the first line only
}

// item is a notification that a transaction publishes if it commits, unless the database chooses its id.
type item struct {
	ID  string `json:"id"`
	Key string `json:"key"`
}

// record is a notification of a transaction as the transaction itself notes it, in the database.
type record struct {
	item
	N int64 `json:"n"` // number among the ordered notifications of its key; 0 if it has no order
}

// publication is what a publisher knows about the transaction of a notification.
type publication struct {
	key     string
	outcome *outcome
}

// ledger collects what all publishers know. It is read once they have ended.
type ledger struct {
	mu           sync.Mutex // for note
	transactions map[string]*outcome
	items        map[string]publication // by id
	prepared     int                    // number of transactions that were prepared
}

func newLedger() *ledger {
	return &ledger{transactions: make(map[string]*outcome), items: make(map[string]publication)}
}

func (l *ledger) note(t transaction) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.Outcome == prepared {
		l.prepared++
	}
	if known := l.transactions[t.ID]; known != nil {
		*known = t.Outcome
		return
	}
	l.transactions[t.ID] = &t.Outcome
	for _, i := range t.Items {
		l.items[i.ID] = publication{i.Key, &t.Outcome}
	}
}
