// Process-sink has a program in Python handle notifications: handler.py reads
// deliveries from its stdin and answers on its stdout, several at once. It books
// payments into a file.
//
//   - one payment makes no sense: the program refuses it, and it is dead
//   - one fails for the moment: it is tried again
//   - at one the program dies, after booking and before answering: it is started
//     again, gets the payment again, and knows it by its id
//
// The same sink stands in a configuration as
//
//	ledger:
//	  kind: process
//	  with: {command: [python3, handler.py], env: {LEDGER: ledger.txt}}
//
// Run it with
//
//	go run ./examples/process-sink
//
// It ends with code 1 if a payment is not booked exactly once. Without python3 it
// says so and ends well.
package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/process"
)

//go:embed handler.py
var handler []byte

// PaymentReceived is what the program in Python gets as JSON.
type PaymentReceived struct {
	Account string
	Cents   int
}

// payments by the ids of their notifications.
var payments = map[string]PaymentReceived{
	"payment-1": {Account: "ada", Cents: 1200},
	"payment-2": {Account: "grace", Cents: 350},
	"payment-3": {Account: "busy", Cents: 80},
	"payment-4": {Account: "unlucky", Cents: 99},
	"payment-5": {Account: "mallory", Cents: -1},
}

func main() {
	slog.SetLogLoggerLevel(slog.LevelError + 1) // the output tells all
	if _, err := exec.LookPath("python3"); err != nil {
		fmt.Println("skipped: this example needs python3, which is not in PATH")
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "process-sink:", err)
		os.Exit(1)
	}
}

// run plays the story. Its error is what ended otherwise than it should.
func run(ctx context.Context, out io.Writer) error {
	folder, err := os.MkdirTemp("", "process-sink")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if err := os.WriteFile(filepath.Join(folder, "handler.py"), handler, 0o600); err != nil {
		return err
	}
	db, err := sqlite.OpenDB(filepath.Join(folder, "shop.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := sqlite.Migrate(ctx, db, sqlite.Config{}); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE journal (id TEXT, outcome TEXT)`); err != nil {
		return err
	}
	store, err := sqlite.Open(ctx, db, sqlite.Config{})
	if err != nil {
		return err
	}
	sink, err := process.New(sinks.Instance{Name: "ledger", Logger: slog.Default()}, process.Config{
		Command: []string{"python3", "handler.py"},
		Dir:     folder,
		Env:     map[string]string{"LEDGER": "ledger.txt"},
	})
	if err != nil {
		return err
	}
	types := registry.New()
	if err := registry.Register[PaymentReceived](types, "payment.received"); err != nil {
		return err
	}
	engine, err := forwarder.New(forwarder.Config{
		Store: store, Types: types,
		Routes: route.Routes{"payment.*": route.To("ledger")},
		Sinks: map[string]forwarder.Sink{"ledger": {
			Sink:  sink,
			Retry: forwarder.Retry{Initial: 50 * time.Millisecond},
			Hooks: forwarder.Hooks{Delivered: journalDelivered, Dead: journalDead},
		}},
	})
	if err != nil {
		return err
	}
	publisher, err := outbox.New(types, store, outbox.Config{Wake: engine.Wake})
	if err != nil {
		return err
	}
	err = publisher.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		for id, payment := range payments {
			if err := publisher.Publish(ctx, tx, outbox.With(payment, outbox.ID(id))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}

	forwarding, stop := context.WithCancel(ctx)
	forwarded := make(chan error, 1)
	go func() { forwarded <- engine.Run(forwarding) }()
	err = waitUntilAllEnded(ctx, db)
	stop()
	return errors.Join(err, <-forwarded, report(context.WithoutCancel(ctx), db, filepath.Join(folder, "ledger.txt"), out))
}

// The hooks run in the transactions that settle the deliveries.

func journalDelivered(ctx context.Context, tx *sql.Tx, delivered []forwarder.Delivered) error {
	for _, d := range delivered {
		if err := journal(ctx, tx, d.ID, fmt.Sprintf("delivered at attempt %d: %s", d.Attempt, d.Receipt)); err != nil {
			return err
		}
	}
	return nil
}

func journalDead(ctx context.Context, tx *sql.Tx, dead []forwarder.Parked) error {
	for _, p := range dead {
		if err := journal(ctx, tx, p.ID, fmt.Sprintf("dead after attempt %d: %s", p.Attempt, p.Error)); err != nil {
			return err
		}
	}
	return nil
}

func journal(ctx context.Context, tx *sql.Tx, id, outcome string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO journal (id, outcome) VALUES (?, ?)`, id, outcome)
	return err
}

// waitUntilAllEnded returns once every payment is delivered or dead.
func waitUntilAllEnded(ctx context.Context, db *sql.DB) error {
	for ended := 0; ended < len(payments); {
		if err := db.QueryRowContext(ctx, `SELECT count(*) FROM journal`).Scan(&ended); err != nil {
			return fmt.Errorf("wait until all is delivered or dead: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// report prints journal and ledger and says what should be otherwise in them.
func report(ctx context.Context, db *sql.DB, ledger string, out io.Writer) error {
	rows, err := db.QueryContext(ctx, `SELECT id, outcome FROM journal ORDER BY id`)
	if err != nil {
		return err
	}
	defer rows.Close()
	outcomes := make(map[string]string)
	for rows.Next() {
		var id, outcome string
		if err := rows.Scan(&id, &outcome); err != nil {
			return err
		}
		outcomes[id] = outcome
		fmt.Fprintf(out, "%s: %s\n", id, outcome)
	}
	wrong := []error{rows.Err()}
	for id, beginning := range map[string]string{
		"payment-1": "delivered at attempt ",
		"payment-2": "delivered at attempt ",
		"payment-3": "delivered at attempt ",
		"payment-4": "delivered at attempt 1: was booked before", // the program's death cost no attempt
		"payment-5": "dead after attempt 1: ",
	} {
		if !strings.HasPrefix(outcomes[id], beginning) {
			wrong = append(wrong, fmt.Errorf("%s ended as %q, not as %q", id, outcomes[id], beginning))
		}
	}
	text, err := os.ReadFile(ledger)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "ledger:\n%s", text)
	booked := strings.Split(strings.TrimSpace(string(text)), "\n")
	slices.Sort(booked)
	if want := []string{"payment-1 ada 1200", "payment-2 grace 350", "payment-3 busy 80", "payment-4 unlucky 99"}; !slices.Equal(booked, want) {
		wrong = append(wrong, fmt.Errorf("the ledger has %q, not %q", booked, want))
	}
	return errors.Join(wrong...)
}
