package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/examples/customer/customer"
)

// The notifications are the shop's contract with other programs. They change less often than the
// domain events, and say less.
type (
	CustomerJoined struct{ Customer, Name, City string }
	AddressChanged struct{ Customer, From, To string }
	CustomerLeft   struct{ Customer string }
	ErasureDue     struct{ Customer string }
)

// shop is the application.
type shop struct {
	db      *sql.DB
	outbox  *waybill.Outbox
	out     io.Writer
	handled func() // called after each successful call of a handler, and after the dead delivery
}

// configure registers the types, the mapping of domain events, and the handlers.
func (s *shop) configure() {
	o := s.outbox
	waybill.Register[CustomerJoined](o, "customer.joined", waybill.Key(func(n CustomerJoined) string { return n.Customer }))
	waybill.Register[AddressChanged](o, "customer.address-changed", waybill.Key(func(n AddressChanged) string { return n.Customer }))
	waybill.Register[CustomerLeft](o, "customer.left", waybill.Key(func(n CustomerLeft) string { return n.Customer }))
	waybill.Register[ErasureDue](o, "customer.erasure-due", waybill.Key(func(n ErasureDue) string { return n.Customer }))

	waybill.Map(o, func(_ context.Context, e customer.Joined) ([]any, error) {
		return []any{CustomerJoined{e.ID, e.Name, e.City}}, nil
	})
	waybill.Map(o, func(_ context.Context, e customer.Moved) ([]any, error) {
		return []any{AddressChanged{e.ID, e.From, e.To}}, nil
	})
	waybill.Map(o, func(_ context.Context, e customer.Left) ([]any, error) {
		return []any{CustomerLeft{e.ID}, ErasureDue{e.ID}}, nil
	})
	waybill.Ignore[customer.Renamed](o) // no other program needs it

	// One sink has three types, so the mails of a customer keep their order. The first attempt
	// fails, and the later mails wait for it.
	busy := true
	waybill.Handle(o, "mail", func(_ context.Context, n CustomerJoined) error {
		if busy {
			busy = false
			return errors.New("the mail server is busy") // a transient error: the delivery is tried again
		}
		return s.mail("welcome from %s, %s", n.City, n.Name)
	}).Retry.Initial = 100 * time.Millisecond
	waybill.Handle(o, "mail", func(_ context.Context, n AddressChanged) error { return s.mail("%s is far from %s", n.To, n.From) })
	waybill.Handle(o, "mail", func(context.Context, CustomerLeft) error { return s.mail("goodbye") })

	// The effect of HandleTx happens once, however often the notification is delivered.
	waybill.HandleTx(o, "billing", func(ctx context.Context, tx *sql.Tx, n AddressChanged) error {
		defer s.handled()
		_, err := tx.ExecContext(ctx, `INSERT INTO invoice_addresses VALUES (?, ?, 1)
			ON CONFLICT (customer) DO UPDATE SET city = excluded.city, changes = changes + 1`, n.Customer, n.To)
		return err
	})
	waybill.Handle(o, "erasure", func(context.Context, ErasureDue) error {
		defer s.handled()
		return waybill.Permanent(errors.New("an invoice is unpaid")) // dead at once, without a retry
	})
}

func (s *shop) mail(format string, a ...any) error {
	defer s.handled()
	_, err := fmt.Fprintf(s.out, "mail: "+format+"\n", a...)
	return err
}

// store stores the customer and publishes its events in one transaction: both or neither.
func (s *shop) store(ctx context.Context, c *customer.Customer) error {
	return s.outbox.InUnit(ctx, func(ctx context.Context, tx *sql.Tx, u *waybill.Unit) error {
		u.Track(c)
		return save(ctx, tx, c)
	})
}

// change loads a customer, changes it and stores it. It does all of this again if another
// transaction stored the customer meanwhile.
func (s *shop) change(ctx context.Context, id string, change func(*customer.Customer) error) error {
	for {
		c, err := load(ctx, s.db, id)
		if err != nil {
			return err
		}
		if err := change(c); err != nil {
			return err
		}
		if err := s.store(ctx, c); !errors.Is(err, errConflict) {
			return err
		}
	}
}
