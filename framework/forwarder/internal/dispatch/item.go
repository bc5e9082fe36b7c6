package dispatch

import (
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/fairqueue"
	"github.com/waybill-go/waybill/framework/forwarder/internal/memory"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/forwarder/internal/window"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// item is one delivery in the engine's hands.
type item struct {
	notification.Delivery
	fairqueue.Ticket
	lane *Lane

	// rows and index are the item's place in what was read of the log; rows is nil for
	// one that comes from the parked table.
	rows  *rows
	index int

	// state is that of the row in the parked table; "" for an item of the log.
	state store.State
	// firstParked is when the delivery was parked for the first time; zero if it is not.
	firstParked time.Time

	// unavailable is one more than how often the breaker had recovered when the
	// destination could not be reached with this item; 0: it never met that.
	unavailable int

	// destination is where the item goes, if the sink says so; probe says that it is under
	// way though the destination is open.
	destination string
	probe       bool

	// hookFailures is how often in a row a hook has failed for the row.
	hookFailures int

	// chained says that the next one of its key is in the same batch.
	chained bool
}

func (it *item) fromLog() bool { return it.rows != nil }

func (it *item) ref() store.Ref { return store.RefOf(it.Envelope) }

// row is what a memory knows the item by.
func (it *item) row() memory.Row {
	return memory.Row{Attempt: it.Attempt, FromLog: it.fromLog(), State: it.state, FirstParked: it.firstParked}
}

// rows are those of one page, as far as they take room.
type rows struct {
	page  *window.Page
	items []item
	left  int // not settled, or settled and not written yet
	bytes int
	log   int // in which log of the lane: one that was read again is another
}

// Settlement is the end of a delivery's turn. What is neither delivered nor parked passes
// the sink by, or was settled before the lease began. One that is delivered and parked as
// well is settling.
type Settlement struct {
	item *item
	// Receipt is the sink's, of a delivery that was made.
	Receipt notification.Receipt
	// Parked is the row to write, for a delivery that could not be made.
	Parked *store.Parked
	// Delivered says that the sink has taken it.
	Delivered bool
	// HeldBack says that it is written without a hook, which has failed.
	HeldBack bool
	// Ask says that the parked table is to be asked for the next one of its key.
	Ask bool
	// Dead is why it was given up, if it was.
	Dead policy.DeadReason
}

// HoldBack parks a settlement for which a hook has failed until the hook is to be called
// again: as settling if the delivery was made, as dead if it is dead. One that will be
// tried again is parked as it is; its next attempt calls the hook. It returns how long the
// hook waits; 0 for the next attempt.
func (s *Settlement) HoldBack(hook error) (pause time.Duration) {
	it := s.item
	if s.Delivered {
		p := it.parked(store.StateSettling)
		s.Parked, p.Receipt = &p, s.Receipt
	}
	s.HeldBack = true
	s.Parked.HookError = policy.Text(hook.Error(), maxErrorText)
	if !s.Delivered && s.Parked.State != store.StateDead {
		return 0
	}
	s.Parked.HookFailures = it.hookFailures + 1
	pause = hookRetry.Pause(s.Parked.HookFailures)
	s.Parked.DueAt = time.Now().Add(pause)
	return pause
}

// hookRetry is when a hook that failed is called again. It never gives up.
var hookRetry = policy.Retry{Initial: time.Second, Max: 5 * time.Minute}.WithDefaults()

// parked is the item's row in the parked table.
func (it *item) parked(state store.State) store.Parked {
	first := it.firstParked
	if first.IsZero() {
		first = time.Now()
	}
	return store.Parked{Envelope: *it.Envelope, State: state, Attempt: it.Attempt, FirstParkedAt: first}
}

// Again says that a hook has failed for the settlement before.
func (s *Settlement) Again() bool { return s.item.hookFailures > 0 }

// Noted is what a ledger says of a delivery that was made.
func (s *Settlement) Noted() memory.Noted { return memory.NotedOf(s.item.ref(), s.item.row()) }

// Delivery is what was settled.
func (s *Settlement) Delivery() *notification.Delivery { return &s.item.Delivery }

// FromLog says that it was read from the log, and not from the parked table.
func (s *Settlement) FromLog() bool { return s.item.fromLog() }

// SettleRow settles the row in the window.
func (s *Settlement) SettleRow() { s.item.rows.page.Settle(s.item.index) }

// UnsettleRow takes SettleRow back.
func (s *Settlement) UnsettleRow() { s.item.rows.page.Unsettle(s.item.index) }
