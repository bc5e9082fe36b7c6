package shop

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers/brokertest"
)

// Broker is what a program knows of its broker.
type Broker struct {
	Name     string // of the program, and of its broker
	Variable string // of the environment, that holds the broker's URL
	// Start starts a broker where no URL is given.
	Start func(ctx context.Context) (*brokertest.Broker, error)
	// Sink publishes to the broker at url, whether it runs or not.
	Sink func(url string) (sinks.Sink, error)
	// Subscriber consumes what Sink publishes; Topic is what it subscribes to.
	Subscriber func(url string) (message.Subscriber, error)
	Topic      string
}

// exitMissing is the program's code where there is no broker to start.
const exitMissing = 77

// Main plays the story and ends the program: with 0 if it ended as it should, with 77
// if there is no broker.
func Main(b Broker) {
	slog.SetLogLoggerLevel(slog.LevelError + 1) // the output tells all
	url := flag.String("url", os.Getenv(b.Variable),
		"URL of the broker; default: $"+b.Variable+", else a broker is started here")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	switch err := run(ctx, os.Stdout, b, *url); {
	case errors.Is(err, brokertest.ErrMissing):
		fmt.Fprintf(os.Stderr, "%s: %v, or give the URL of a broker: -url or %s\n", b.Name, err, b.Variable)
		os.Exit(exitMissing)
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", b.Name, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, b Broker, url string) (err error) {
	if url != "" {
		return Tell(ctx, out, b, url, nil)
	}
	fmt.Fprintf(out, "starting a %s of our own\n", b.Name)
	server, err := b.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	return Tell(ctx, out, b, server.URL, server)
}

// Tell plays the story: orders are placed, and paid. A broker of our own is stopped
// between the two, and started again when the payments are in the outbox; nil leaves
// that out. Its error is what ended otherwise than it should.
func Tell(ctx context.Context, out io.Writer, b Broker, url string, own *brokertest.Broker) (err error) {
	subscriber, err := b.Subscriber(url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, subscriber.Close()) }()
	messages, err := subscriber.Subscribe(ctx, b.Topic)
	if err != nil {
		return err
	}
	sink, err := b.Sink(url)
	if err != nil {
		return err
	}
	shop, err := Open(ctx, sink)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shop.Close()) }()
	forwarding, stop := context.WithCancel(ctx)
	forwarded := make(chan error, 1)
	go func() { forwarded <- shop.Forward(forwarding) }()
	defer func() {
		stop()
		err = errors.Join(err, <-forwarded)
	}()

	series := notification.NewID()
	series = series[len(series)-4:]
	orders := []string{series + "-1", series + "-2", series + "-3"}
	reader := &Reader{Out: out, Messages: messages, Orders: series}

	fmt.Fprintln(out, "three orders are placed")
	if err := each(ctx, orders, shop.Place); err != nil {
		return err
	}
	if err := reader.ReadUntil(ctx, 3); err != nil {
		return err
	}
	if own != nil {
		fmt.Fprintln(out, "the broker is stopped")
		if err := own.Stop(); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "the orders are paid")
	if err := each(ctx, orders, shop.Pay); err != nil {
		return err
	}
	if own != nil {
		fmt.Fprintln(out, "the broker is started again")
		if err := own.Start(ctx); err != nil {
			return err
		}
	}
	if err := reader.ReadUntil(ctx, 6); err != nil {
		return err
	}
	return reader.Check(orders)
}

func each(ctx context.Context, orders []string, do func(context.Context, string) error) error {
	for _, order := range orders {
		if err := do(ctx, order); err != nil {
			return err
		}
	}
	return nil
}
