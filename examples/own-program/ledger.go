package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// ledgerConfig is what stands below "with:" for a ledger.
type ledgerConfig struct {
	Path string `yaml:"path" doc:"CSV file to which a line is added for each order. Required"`
}

func (c *ledgerConfig) Validate() error {
	if c.Path == "" {
		return errors.New("path: is missing")
	}
	return nil
}

// ledgerKind is the sink kind ledger.
func ledgerKind() sinks.Kind {
	return sinks.NewKind("ledger", "a line of CSV for each order",
		func(in sinks.Instance, c ledgerConfig) (sinks.Sink, error) {
			if in.Types == nil {
				return nil, errors.New("the program has no types")
			}
			return &ledger{path: c.Path, types: in.Types}, nil
		},
		sinks.Answer{Says: "the line is written", Means: "delivered"},
		sinks.Answer{Says: "the file cannot be written", Means: "unavailable"},
		sinks.Answer{Says: "the payload is no order", Means: "permanent"},
	)
}

// ledger decodes orders into Go values, in their newest version.
type ledger struct {
	path  string
	types *registry.Registry
	mu    sync.Mutex // one line at a time
}

func (l *ledger) Deliver(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
	o, err := registry.Decode[OrderPlaced](l.types, d.Envelope)
	if err != nil {
		return "", sinks.Permanent(err)
	}
	// The id is in the line: a delivery can come twice.
	if err := l.add(d.ID, o.Order, strconv.FormatInt(o.Cents, 10), o.Currency); err != nil {
		return "", sinks.Unavailable(err)
	}
	return notification.Receipt("ledger " + l.path), nil
}

func (l *ledger) add(fields ...string) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	file, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := csv.NewWriter(file)
	if err := w.Write(fields); err != nil {
		return fmt.Errorf("write a line: %w", err)
	}
	w.Flush()
	return w.Error()
}
