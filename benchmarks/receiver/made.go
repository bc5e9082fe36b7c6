package receiver

import (
	"sync/atomic"
	"time"
)

// Made records when the transaction of each order began and ended. Two orders whose transactions
// overlapped may arrive in either order. It is safe for concurrent use.
type Made struct {
	start        time.Time
	began, ended []atomic.Int64 // nanoseconds since start; 0: not yet
}

// NewMade returns a Made for the orders from 0 to capacity-1.
func NewMade(capacity int) *Made {
	return &Made{start: time.Now(), began: make([]atomic.Int64, capacity), ended: make([]atomic.Int64, capacity)}
}

// Begin records that the transaction of an order begins.
func (m *Made) Begin(number int) { m.began[number].Store(max(1, int64(time.Since(m.start)))) }

// End records that the transaction of an order has ended.
func (m *Made) End(number int) { m.ended[number].Store(max(1, int64(time.Since(m.start)))) }

// overlapped reports whether the transaction of the earlier order was still open when that of the later
// one began. Both orders have arrived.
func (m *Made) overlapped(earlier, later int) bool {
	ended := m.ended[earlier].Load()
	return ended == 0 || ended > m.began[later].Load()
}
