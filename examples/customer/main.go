// Customer takes domain events to those who are concerned. A customer, who knows nothing
// of outboxes, records what happened; a unit of work stores the customer and publishes
// what a mapping makes of it; functions get the notifications by type.
//
//	go run ./examples/customer
//
// It ends with code 1 if something is published twice or not at all.
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
	slog.SetLogLoggerLevel(slog.LevelError + 1) // the output shows all
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
	open.Store(4 + 2 + 1) // four mails, two changes of an address, an erasure
	s := &shop{db: db, outbox: waybill.SQLite(db, waybill.SQLiteConfig{}), out: out, handled: func() {
		if open.Add(-1) == 0 {
			stop() // Run ends when what is in flight is settled
		}
	}}
	s.declare()
	if err := s.outbox.Migrate(ctx); err != nil {
		return err
	}
	if err := s.live(ctx); err != nil {
		return err
	}
	if err := s.outbox.Run(delivering); err != nil {
		return err
	}
	return s.check(ctx)
}

// live is what happens to Ada.
func (s *shop) live(ctx context.Context) error {
	ada, err := customer.Join("c-1", "Ada", "London")
	if err != nil {
		return err
	}
	if err := s.store(ctx, ada); err != nil {
		return err
	}
	tries := 0
	err = s.change(ctx, "c-1", func(c *customer.Customer) error {
		if tries++; tries == 1 { // someone else is faster
			faster := func(c *customer.Customer) error { return errors.Join(c.Rename("Ada King"), c.Move("Paris")) }
			if err := s.change(ctx, "c-1", faster); err != nil {
				return err
			}
		}
		return c.Move("Rome")
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "Ada moved to Rome with try %d\n", tries)
	if err := s.change(ctx, "c-1", func(c *customer.Customer) error { c.Leave(); return nil }); err != nil {
		return err
	}
	err = s.change(ctx, "c-1", func(c *customer.Customer) error { return c.Move("Turin") })
	fmt.Fprintf(s.out, "Ada wants to move to Turin: %v\n", err)
	return nil
}

// check looks at what billing knows, and at what is dead.
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
		return errors.New("there were to be Rome, 2 changes and 1 dead letter")
	}
	return nil
}
