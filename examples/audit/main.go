// Audit keeps a line of JSON of each notification in a file, without what no one is
// to read there: the route picks what the file gets of a payment, and the large ones
// also go to an inspector. The log keeps the whole.
//
//	go run ./examples/audit
//
// It ends with code 1 if a card's number stands in the file.
package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/jsonlines"
)

// The notifications.
type (
	PaymentMade struct {
		PaymentID string  `json:"payment_id"`
		Amount    float64 `json:"amount"`
		Card      string  `json:"card"`
	}
	ShopOpened struct {
		City string `json:"city"`
	}
)

// routes say who hears of what.
var routes = route.Routes{
	"payment.made": {
		{Sink: "audit", Payload: map[string]string{"payment": "payload.payment_id", "amount": "payload.amount"}},
		{Sink: "inspector", When: `payload.amount >= 1000`},
	},
	"*": route.To("audit"), // everything else as it is
}

func main() {
	slog.SetLogLoggerLevel(slog.LevelError + 1) // the output tells all
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "audit:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	folder, err := os.MkdirTemp("", "audit")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	db, err := sqlite.OpenDB(filepath.Join(folder, "shop.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := sqlite.Migrate(ctx, db, sqlite.Config{}); err != nil {
		return err
	}
	store, err := sqlite.Open(ctx, db, sqlite.Config{})
	if err != nil {
		return err
	}
	types := registry.New()
	err = errors.Join(
		registry.Register[PaymentMade](types, "payment.made"),
		registry.Register[ShopOpened](types, "shop.opened"),
	)
	if err != nil {
		return err
	}

	file := filepath.Join(folder, "audit.jsonl")
	delivered := make(chan struct{}, 100) // to either sink
	audit, err := jsonlines.New(jsonlines.Config{Path: file, MaxSizeMB: 10, MaxFiles: 5, Compress: true})
	if err != nil {
		return err
	}
	inspector := sinks.Func(func(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
		fmt.Fprintf(out, "inspector: %s\n", d.Payload)
		return "seen", nil
	})
	report := forwarder.Hooks{Delivered: func(_ context.Context, _ *sql.Tx, all []forwarder.Delivered) error {
		for range all {
			delivered <- struct{}{}
		}
		return nil
	}}
	engine, err := forwarder.New(forwarder.Config{
		Store: store, Types: types, Routes: routes,
		Sinks: map[string]forwarder.Sink{"audit": {Sink: audit, Hooks: report}, "inspector": {Sink: inspector, Hooks: report}},
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
			ShopOpened{"Vienna"},
			PaymentMade{"p-1", 12.5, "4111111111111111"},
			PaymentMade{"p-2", 2400, "4111111111111111"},
		)
	})
	if err != nil {
		return err
	}
	if err := runUntil(ctx, engine, delivered, 4); err != nil {
		return err
	}
	return show(file, out)
}

// runUntil runs the engine until so many deliveries are made.
func runUntil(ctx context.Context, engine *forwarder.Forwarder, delivered <-chan struct{}, n int) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(ctx) }()
	for range n {
		select {
		case <-delivered:
		case err := <-ended:
			return err
		}
	}
	stop()
	return <-ended
}

// show prints what an auditor reads.
func show(file string, out io.Writer) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if bytes.Contains(text, []byte("4111")) {
		return errors.New("a card's number stands in the file")
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		var line jsonlines.Line
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return err
		}
		fmt.Fprintf(out, "audit: %s %s\n", line.Type, line.Payload)
	}
	return lines.Err()
}
