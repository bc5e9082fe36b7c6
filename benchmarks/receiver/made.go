package receiver

import (
	"sync/atomic"
	"time"
)

// Made notes when the transaction of each order began and ended. Two orders whose transactions
// overlapped may arrive in either order. Its methods may be called in parallel.
type Made struct {
	start        time.Time
	began, ended []atomic.Int64 // nanoseconds since start; 0: not yet
}

// NewMade is for orders 0 up to capacity.
func NewMade(capacity int) *Made {
	return &Made{start: time.Now(), began: make([]atomic.Int64, capacity), ended: make([]atomic.Int64, capacity)}
}

// Begin notes that the transaction of an order begins.
func (m *Made) Begin(number int) { m.began[number].Store(max(1, int64(time.Since(m.start)))) }

// End notes that the transaction of an order has ended.
func (m *Made) End(number int) { m.ended[number].Store(max(1, int64(time.Since(m.start)))) }

// overlapped reports whether the earlier one of two orders that have arrived was still being made when
// the later one began.
func (m *Made) overlapped(earlier, later int) bool {
	ended := m.ended[earlier].Load()
	return ended == 0 || ended > m.began[later].Load()
}
