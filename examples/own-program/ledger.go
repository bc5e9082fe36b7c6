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

// ledgerConfig is the part of the configuration below "with:".
type ledgerConfig struct {
	Path string `yaml:"path" doc:"CSV file that gets a line for each order. Required"`
}

func (c *ledgerConfig) Validate() error {
	if c.Path == "" {
		return errors.New("path: required")
	}
	return nil
}

// ledgerKind returns the sink kind ledger.
func ledgerKind() sinks.Kind {
	return sinks.NewKind("ledger", "a line of CSV for each order",
		func(in sinks.Instance, c ledgerConfig) (sinks.Sink, error) {
			if in.Types == nil {
				return nil, errors.New("this kind needs the types of the program")
			}
			return &ledger{path: c.Path, types: in.Types}, nil
		},
		sinks.Answer{Says: "the line is written", Means: "delivered"},
		sinks.Answer{Says: "the file cannot be written", Means: "unavailable"},
		sinks.Answer{Says: "the payload is not an order", Means: "permanent"},
	)
}

// ledger decodes orders into the newest version of their Go type, and adds them to a file.
type ledger struct {
	path  string
	types *registry.Registry
	mu    sync.Mutex // held while a line is written
}

func (l *ledger) Deliver(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
	o, err := registry.Decode[OrderPlaced](l.types, d.Envelope)
	if err != nil {
		return "", sinks.Permanent(err)
	}
	// A notification can be delivered twice. Its id in the line shows the repeat.
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
