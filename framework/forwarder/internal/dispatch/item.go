package dispatch

import (
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/fairqueue"
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

	// chained says that the next one of its key is in the same batch.
	chained bool
}

func (it *item) fromLog() bool { return it.rows != nil }

// rows are those of one page, as far as they take room.
type rows struct {
	page  *window.Page
	items []item
	left  int // not settled, or settled and not written yet
	bytes int
	log   int // in which log of the lane: one that was read again is another
}

// Settlement is the end of a delivery's turn.
type Settlement struct {
	// Delivery is nil for a row that was settled before the lease began.
	Delivery *notification.Delivery
	// Receipt is the sink's, of one that was delivered.
	Receipt notification.Receipt
	// Delivered says that the sink has taken it. What is neither delivered nor parked
	// passes the sink by.
	Delivered bool
	// Parked is the row to write, for one that could not be delivered.
	Parked *store.Parked
	// Ask says that the next one of its key is to be asked of the parked table.
	Ask bool

	rows  *rows
	index int
	// state and firstParked are those of the row in the parked table.
	state       store.State
	firstParked time.Time
}

// FromLog says that it was read from the log, and not from the parked table.
func (s *Settlement) FromLog() bool { return s.rows != nil }

// SettleRow settles the row in the window.
func (s *Settlement) SettleRow() { s.rows.page.Settle(s.index) }

// UnsettleRow takes SettleRow back.
func (s *Settlement) UnsettleRow() { s.rows.page.Unsettle(s.index) }
