package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// warehouse is the sink. It notes the deliveries of each order.
type warehouse struct {
	mu       sync.Mutex
	repaired bool
	notes    map[string][]string // by order
}

var _ sinks.Sink = (*warehouse)(nil)

func newWarehouse() *warehouse { return &warehouse{notes: make(map[string][]string)} }

// Deliver refuses o-3 until the warehouse is repaired. The payment of o-2 fails twice, and until
// o-1 is shipped. All other deliveries succeed.
func (w *warehouse) Deliver(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	step := strings.TrimPrefix(d.Type, "order.")
	switch {
	case d.Key == "o-3" && !w.repaired:
		w.notes[d.Key] = append(w.notes[d.Key], step+" refused")
		return "", sinks.Permanent(errors.New("the order is too heavy"))
	case d.ID == "o-2-paid" && (d.Attempt < 3 || !slices.Contains(w.notes["o-1"], "shipped")):
		if d.Attempt == 1 {
			w.notes[d.Key] = append(w.notes[d.Key], step+" fails")
		}
		return "", errors.New("the scanner is jammed") // a transient error: the delivery is tried again
	}
	w.notes[d.Key] = append(w.notes[d.Key], step)
	return "accepted", nil
}

func (w *warehouse) repair() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.repaired = true
}

// shipped reports whether an order is shipped.
func (w *warehouse) shipped(order string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.notes[order], "shipped")
}

// print prints the notes of orders.
func (w *warehouse) print(out io.Writer, orders ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, order := range orders {
		fmt.Fprintf(out, "%s: %s\n", order, strings.Join(w.notes[order], ", "))
	}
}

// check returns an error for each order whose notifications did not arrive once and in order.
func (w *warehouse) check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var wrong []error
	for order, want := range map[string][]string{
		"o-1": {"placed", "paid", "shipped"},
		"o-2": {"placed", "paid fails", "paid", "shipped"},
		"o-3": {"placed refused", "placed", "paid", "shipped"},
	} {
		if got := w.notes[order]; !slices.Equal(got, want) {
			wrong = append(wrong, fmt.Errorf("%s: got %q, want %q", order, got, want))
		}
	}
	return errors.Join(wrong...)
}
