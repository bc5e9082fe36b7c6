package shop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/sinks/publisher"
)

// ErrOrder is what a [Reader] returns when what happened to an order came in
// another order, or in part.
var ErrOrder = errors.New("not placed and then paid")

// Reader consumes what happened to orders, and prints it. Deliveries can come twice,
// so it remembers the ids that it has handled; a consumer with a database keeps them
// there, in the transaction of their effects.
type Reader struct {
	Out      io.Writer
	Messages <-chan *message.Message
	// Orders begins the ids of the orders that count. A broker that others use too
	// may have older ones.
	Orders string

	handled  map[string]bool
	happened map[string][]string // types by order
}

// ReadUntil handles messages until n different notifications have come in all.
func (r *Reader) ReadUntil(ctx context.Context, n int) error {
	for len(r.handled) < n {
		select {
		case m, open := <-r.Messages:
			if !open {
				return errors.New("the subscription ended")
			}
			r.handle(m)
			m.Ack()
		case <-ctx.Done():
			return fmt.Errorf("%d of %d notifications came: %w", len(r.handled), n, ctx.Err())
		}
	}
	return nil
}

func (r *Reader) handle(m *message.Message) {
	order := m.Metadata.Get(publisher.MetadataKey)
	if r.handled[m.UUID] || !strings.HasPrefix(order, r.Orders) {
		return
	}
	if r.handled == nil {
		r.handled, r.happened = make(map[string]bool), make(map[string][]string)
	}
	typ := m.Metadata.Get(publisher.MetadataType)
	r.handled[m.UUID] = true
	r.happened[order] = append(r.happened[order], typ)
	fmt.Fprintf(r.Out, "  %s %s %s\n", order, typ, m.Payload)
}

// Check says which of the orders were not placed and then paid.
func (r *Reader) Check(orders []string) error {
	var wrong []error
	for _, order := range orders {
		if got := r.happened[order]; !slices.Equal(got, []string{TypePlaced, TypePaid}) {
			wrong = append(wrong, fmt.Errorf("order %s: %w, but %v", order, ErrOrder, got))
		}
	}
	return errors.Join(wrong...)
}
