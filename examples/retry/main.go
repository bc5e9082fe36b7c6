// Retry shows what becomes of deliveries that fail. A partner's endpoint is down at
// first, then answers 503 for a while, and refuses one payment for good:
//
//   - while it cannot be reached the whole sink waits, and no attempt is spent
//   - what failed for the moment is tried again after growing pauses, as often as the
//     policy of its type allows
//   - what is refused for good, or has no attempts left, is dead: kept, with its error
//
// Hooks write what happened into a table, in the transactions that settle the
// deliveries.
//
//	go run ./examples/retry
//
// It ends with code 1 if something ends in another way.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
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
	"github.com/waybill-go/waybill/sinks/httpsink"
)

// The notifications.
type (
	PaymentReceived struct{ ID string }
	ReminderDue     struct{ ID string }
)

func main() {
	slog.SetLogLoggerLevel(slog.LevelError + 1) // the output tells all
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "retry:", err)
		os.Exit(1)
	}
}

// run plays the story. Its error is what ended otherwise than it should.
func run(ctx context.Context, out io.Writer) error {
	folder, err := os.MkdirTemp("", "retry")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	db, err := sqlite.OpenDB(filepath.Join(folder, "retry.db"))
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
	types := registry.New()
	partner := &partner{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := listener.Addr().String()
	_ = listener.Close() // at first the partner is down
	sink, errSink := httpsink.New(sinks.Instance{Name: "partner"}, httpsink.Config{URL: "http://" + address})
	err = errors.Join(errSink,
		registry.Register[PaymentReceived](types, "payment.received"),
		registry.Register[ReminderDue](types, "reminder.due"))
	if err != nil {
		return err
	}
	engine, err := forwarder.New(forwarder.Config{
		Store: store, Types: types,
		Routes: route.Routes{"*": route.To("partner")},
		Sinks: map[string]forwarder.Sink{"partner": {
			Sink: sink,
			Retry: forwarder.Retry{
				MaxAttempts: 8, Initial: 50 * time.Millisecond, Max: time.Second,
				Types: map[string]forwarder.Retry{"reminder.*": {MaxAttempts: 2}}, // not worth more
			},
			Hooks: forwarder.Hooks{Delivered: journalDelivered, Parked: journalParked, Dead: journalDead},
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
		return publisher.Publish(ctx, tx,
			outbox.With(PaymentReceived{"p-1"}, outbox.ID("payment-1")),
			outbox.With(PaymentReceived{"p-2"}, outbox.ID("payment-2-bad")),
			outbox.With(ReminderDue{"r-1"}, outbox.ID("reminder-1")),
		)
	})
	if err != nil {
		return err
	}

	forwarding, stop := context.WithCancel(ctx)
	forwarded := make(chan error, 1)
	go func() { forwarded <- engine.Run(forwarding) }()
	fmt.Fprintln(out, "the partner is down")
	sleep(ctx, 300*time.Millisecond)
	fmt.Fprintln(out, "the partner is up")
	if listener, err = net.Listen("tcp", address); err != nil {
		stop()
		return errors.Join(err, <-forwarded)
	}
	web := &http.Server{Handler: partner, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = web.Serve(listener) }() // until Close
	defer web.Close()
	err = waitUntilAllEnded(ctx, db)
	stop()
	return errors.Join(err, <-forwarded, report(context.WithoutCancel(ctx), db, out))
}

// partner answers 503 to the first three attempts of everything, and never takes
// what is bad.
type partner struct{ asked attempts }

func (p *partner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(httpsink.HeaderIdempotencyKey)
	switch n := p.asked.next(id); {
	case strings.HasSuffix(id, "-bad"):
		http.Error(w, "no such account", http.StatusUnprocessableEntity)
	case n <= 3:
		http.Error(w, "closed for stocktaking", http.StatusServiceUnavailable)
	}
}

// The hooks run in the transaction that settles the deliveries: the journal says
// neither more nor less than the outbox knows.

func journalDelivered(ctx context.Context, tx *sql.Tx, delivered []forwarder.Delivered) error {
	for _, d := range delivered {
		if err := journal(ctx, tx, d.ID, fmt.Sprintf("delivered at attempt %d: %s", d.Attempt, d.Receipt)); err != nil {
			return err
		}
	}
	return nil
}

func journalParked(ctx context.Context, tx *sql.Tx, parked []forwarder.Parked) error {
	for _, p := range parked {
		if err := journal(ctx, tx, p.ID, fmt.Sprintf("%s after attempt %d: %s", p.State, p.Attempt, p.Error)); err != nil {
			return err
		}
	}
	return nil
}

func journalDead(ctx context.Context, tx *sql.Tx, dead []forwarder.Parked) error {
	return journalParked(ctx, tx, dead)
}

func journal(ctx context.Context, tx *sql.Tx, id, outcome string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO journal (id, outcome) VALUES (?, ?)`, id, outcome)
	return err
}

// waitUntilAllEnded returns once each of the three is delivered or dead.
func waitUntilAllEnded(ctx context.Context, db *sql.DB) error {
	for ended := 0; ended < 3; {
		err := db.QueryRowContext(ctx, `SELECT count(*) FROM journal WHERE outcome LIKE 'delivered%' OR outcome LIKE 'dead%'`).Scan(&ended)
		if err != nil {
			return fmt.Errorf("wait until all is delivered or dead: %w", err)
		}
		sleep(ctx, 10*time.Millisecond)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// report prints the journal and says what should have ended otherwise.
func report(ctx context.Context, db *sql.DB, out io.Writer) error {
	rows, err := db.QueryContext(ctx, `SELECT id, outcome FROM journal ORDER BY id, rowid`)
	if err != nil {
		return err
	}
	defer rows.Close()
	last := make(map[string]string)
	for rows.Next() {
		var id, outcome string
		if err := rows.Scan(&id, &outcome); err != nil {
			return err
		}
		last[id] = outcome
		outcome, _, _ = strings.Cut(outcome, "\n")
		fmt.Fprintf(out, "%s: %s\n", id, outcome)
	}
	wrong := []error{rows.Err()}
	for id, beginning := range map[string]string{
		"payment-1":     "delivered at attempt 4",
		"payment-2-bad": "dead after attempt 1",
		"reminder-1":    "dead after attempt 2",
	} {
		if !strings.HasPrefix(last[id], beginning) {
			wrong = append(wrong, fmt.Errorf("%s ended as %q, not as %q", id, last[id], beginning))
		}
	}
	return errors.Join(slices.DeleteFunc(wrong, func(err error) bool { return err == nil })...)
}
