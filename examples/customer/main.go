// Customer publishes domain events. An aggregate records events, and does not import Waybill. A
// unit of work stores the aggregate and publishes the notifications that a mapping makes from the
// events. Each type of notification has functions that receive it.
//
//	go run ./examples/customer
//
// It exits with code 1 if a notification is published twice or not at all.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/examples/customer/customer"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

func main() {
	slog.SetLogLoggerLevel(slog.LevelError + 1) // no logs: the program prints what happens
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "customer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	folder, err := os.MkdirTemp("", "customer")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	db, err := sqlite.OpenDB(filepath.Join(folder, "shop.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, tables); err != nil {
		return err
	}
	delivering, stop := context.WithCancel(ctx)
	defer stop()
	var open atomic.Int32
	open.Store(4 + 2 + 1) // four mails, two changes of an address, one erasure
	s := &shop{db: db, outbox: waybill.SQLite(db, waybill.SQLiteConfig{}), out: out, handled: func() {
		if open.Add(-1) == 0 {
			stop() // Run returns once the deliveries in flight are settled
		}
	}}
	s.configure()
	if err := s.outbox.Migrate(ctx); err != nil {
		return err
	}
	if err := s.changeAda(ctx); err != nil {
		return err
	}
	if err := s.outbox.Run(delivering); err != nil {
		return err
	}
	return s.check(ctx)
}

// changeAda makes Ada a customer, moves her twice and lets her leave.
func (s *shop) changeAda(ctx context.Context) error {
	ada, err := customer.Join("c-1", "Ada", "London")
	if err != nil {
		return err
	}
	if err := s.store(ctx, ada); err != nil {
		return err
	}
	attempts := 0
	err = s.change(ctx, "c-1", func(c *customer.Customer) error {
		if attempts++; attempts == 1 { // another transaction changes the customer first
			first := func(c *customer.Customer) error { return errors.Join(c.Rename("Ada King"), c.Move("Paris")) }
			if err := s.change(ctx, "c-1", first); err != nil {
				return err
			}
		}
		return c.Move("Rome")
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "Ada moved to Rome at attempt %d\n", attempts)
	if err := s.change(ctx, "c-1", func(c *customer.Customer) error { c.Leave(); return nil }); err != nil {
		return err
	}
	err = s.change(ctx, "c-1", func(c *customer.Customer) error { return c.Move("Turin") })
	fmt.Fprintf(s.out, "Ada cannot move to Turin: %v\n", err)
	return nil
}

// check returns an error unless billing has the last address and one notification is dead.
func (s *shop) check(ctx context.Context) error {
	var city string
	var changes, dead int
	err := s.db.QueryRowContext(ctx, `
		SELECT city, changes, (SELECT count(*) FROM outbox_parked WHERE state = 'dead') FROM invoice_addresses`).Scan(&city, &changes, &dead)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "invoices go to %s after %d changes; dead letters: %d\n", city, changes, dead)
	if city != "Rome" || changes != 2 || dead != 1 {
		return errors.New("want Rome, 2 changes and 1 dead letter")
	}
	return nil
}
