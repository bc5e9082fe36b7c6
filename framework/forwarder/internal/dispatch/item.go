package dispatch

import (
	"time"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder/internal/fairqueue"
	"github.com/waybill-go/waybill/framework/forwarder/internal/memory"
	"github.com/waybill-go/waybill/framework/forwarder/internal/window"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// item is one delivery in memory.
type item struct {
	notification.Delivery
	fairqueue.Ticket
	lane *Lane

	// rows and index are the item's place in a page of the log; rows is nil for an item from
	// the parked table.
	rows  *rows
	index int

	// state is the state in the parked table; "" for an item of the log.
	state store.State
	// firstParked is when the delivery was first parked; zero if it never was.
	firstParked time.Time

	// unavailable is 0 if no attempt of the item found the destination unavailable. Otherwise
	// it is one more than the number of the breaker's recoveries at that time.
	unavailable int

	// destination is where the item goes, if the sink names it. While the item is in flight,
	// contact has the calls to its destination, probe is true if the destination's breaker is open,
	// and doubtful if the destination has failed since its last success.
	destination     string
	contact         *contact
	probe, doubtful bool

	// hookFailures is how often in a row its hook has failed.
	hookFailures int

	// past is what is known of earlier attempts; nil if there are none.
	past *past

	// timing says what the hours of the sink mean for it. It is loose if it goes without regard to its key.
	timing timing
	loose  bool

	// unit is the closed collection that the item is; nil: it is a single delivery.
	unit *unit

	// gathered means that a newer one of its key may take its place.
	gathered bool

	// chained means that the next item of its key is in the same batch.
	chained bool
}

func (it *item) fromLog() bool { return it.rows != nil }

func (it *item) ref() store.Ref { return store.RefOf(it.Envelope) }

// row returns what identifies the item in a memory.
func (it *item) row() memory.Row {
	return memory.Row{Attempt: it.Attempt, FromLog: it.fromLog(), State: it.state, FirstParked: it.firstParked}
}

// rows holds the items of one page, and their memory.
type rows struct {
	page    *window.Page
	items   []item
	left    int // not settled, or not written yet
	bytes   int
	rebases int // Lane.rebases when the page was read
}

// Settlement is the end of a delivery's turn. If it is neither delivered nor parked, it is not
// for the sink, or was settled before the lease began. If it is both, it is settling.
type Settlement struct {
	item *item
	// Receipt is the sink's receipt, if it was delivered.
	Receipt notification.Receipt
	// Parked is the row to write, if it was not delivered.
	Parked *store.Parked
	// Delivered means that it was delivered.
	Delivered bool
	// HeldBack means that it is written without calling its hook, which has failed.
	HeldBack bool
	// Ask means that the parked table must be queried for the next delivery of its key.
	Ask bool
	// Dead is why it is dead, if it is.
	Dead event.DeadReason
	// Replaces means that its row is replaced, since that is in another collection.
	Replaces bool
	// Released means that it is no longer in its collection.
	Released bool
	// Superseded is the id of the delivery that is made instead.
	Superseded string
}

// HoldBack parks a settlement whose hook has failed until the hook is called again: as settling
// if it was delivered, as dead if it is dead. One that will be tried again is parked as before;
// its next attempt calls the hook. It returns the pause until the hook is called again, 0 meaning
// with the next attempt, and the error as short as answer_bytes has it.
func (s *Settlement) HoldBack(hook error) (pause time.Duration, short error) {
	it := s.item
	switch {
	case s.Delivered:
		p := it.parked(store.StateSettling)
		s.Parked, p.Receipt = &p, s.Receipt
	case s.Parked == nil: // a collection of which only single members are parked
		p := it.parked(store.StateDead)
		s.Parked = &p
	}
	s.HeldBack = true
	hook = sinks.CutAnswer(hook, it.lane.dispatcher.caller.AnswerBytes)
	s.Parked.HookError = store.CutText(hook.Error(), maxErrorText)
	if !s.Delivered && s.Parked.State != store.StateDead {
		return 0, hook
	}
	s.Parked.HookFailures = it.hookFailures + 1
	pause = hookRetry.Pause(s.Parked.HookFailures)
	s.Parked.DueAt = time.Now().Add(pause)
	return pause, hook
}

// hookRetry says when a failed hook is called again. It never gives up.
var hookRetry = settings.Retry{Initial: time.Second, Max: 5 * time.Minute}.WithDefaults()

// parked returns the item's row for the parked table.
func (it *item) parked(state store.State) store.Parked {
	first := it.firstParked
	if first.IsZero() {
		first = time.Now()
	}
	p := store.Parked{Envelope: *it.Envelope, State: state, Attempt: it.Attempt, FirstParkedAt: first}
	if it.past != nil {
		p.Attempts = it.past.attempts
	}
	if it.unit != nil {
		it.unit.park(&p)
	}
	return p
}

// Again reports whether a hook had already failed for an earlier settlement.
func (s *Settlement) Again() bool { return s.item.hookFailures > 0 }

// Noted returns the delivery for a ledger.
func (s *Settlement) Noted() memory.Noted { return memory.NotedOf(s.item.ref(), s.item.row()) }

// Delivery returns the delivery that was settled.
func (s *Settlement) Delivery() *notification.Delivery { return &s.item.Delivery }

// FromLog reports whether it was read from the log rather than from the parked table.
func (s *Settlement) FromLog() bool { return s.item.fromLog() }

// MarkRow marks the row as settled in the window.
func (s *Settlement) MarkRow() { s.item.rows.page.Settle(s.item.index) }

// UnmarkRow undoes MarkRow.
func (s *Settlement) UnmarkRow() { s.item.rows.page.Unsettle(s.item.index) }
