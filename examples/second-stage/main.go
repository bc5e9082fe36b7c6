// Second-stage delivers from Kafka. A shop publishes orders in its database, and a forwarder copies
// them to a topic: the shop's database has no more work with them. A second forwarder reads the
// topic, and keeps its cursors in a separate database. The warehouse receives each order, although
// the partner's server is down.
//
//	go run ./examples/second-stage
//	KAFKA_BROKERS=localhost:9092 go run ./examples/second-stage
//
// Without KAFKA_BROKERS the example starts a fake broker. With it, KAFKA_TOPIC names an empty topic;
// without KAFKA_TOPIC the name is new, and the brokers must create topics automatically. In
// production the two stages are separate programs, such as waybill forward with two files; see
// docs/second-stage.md.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/source/kafka"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
	kafkasink "github.com/waybill-go/waybill/sinks/kafka"
)

// OrderPlaced is the notification.
type OrderPlaced struct {
	Order    string `json:"order"`
	Customer string `json:"customer"`
}

// Key keeps the orders of a customer in sequence.
func (o OrderPlaced) Key() string { return o.Customer }

const orders = 3

func main() {
	slog.SetLogLoggerLevel(slog.LevelError + 1) // no logs: the program prints what happens
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout, os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, "second-stage:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, env func(string) string) error {
	brokers := strings.Split(env("KAFKA_BROKERS"), ",")
	topic := cmp.Or(env("KAFKA_TOPIC"), fmt.Sprintf("second-stage-%d", time.Now().UnixNano()))
	if env("KAFKA_BROKERS") == "" {
		broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, topic))
		if err != nil {
			return err
		}
		defer broker.Close()
		brokers = broker.ListenAddrs()
	}
	folder, err := os.MkdirTemp("", "second-stage")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	stages, ctx := errgroup.WithContext(ctx)
	created := make(chan struct{}) // closed once the topic exists
	stages.Go(func() error { return shop(ctx, filepath.Join(folder, "shop.db"), brokers, topic, created) })
	stages.Go(func() error {
		defer stop()
		select {
		case <-created:
			return deliver(ctx, out, filepath.Join(folder, "second.db"), brokers, topic)
		case <-ctx.Done():
			return nil
		}
	})
	return stages.Wait()
}

// shop is the first stage. It publishes orders and copies them to the topic until ctx is done. It
// closes created once the topic exists.
func shop(ctx context.Context, file string, brokers []string, topic string, created chan<- struct{}) error {
	db, err := sqlite.OpenDB(file)
	if err != nil {
		return err
	}
	defer db.Close()
	o := waybill.SQLite(db, waybill.SQLiteConfig{})
	waybill.Register[OrderPlaced](o, "order.placed", waybill.Key(OrderPlaced.Key))
	log, err := kafkasink.New(sinks.Instance{Name: "log"}, kafkasink.Config{Brokers: brokers, Topic: topic})
	if err != nil {
		return err
	}
	o.Deliver("log", log, "*")
	if err := o.Migrate(ctx); err != nil {
		return err
	}
	if err := log.CheckHealth(ctx); err != nil { // this makes the brokers create the topic
		return err
	}
	close(created)
	err = o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for n := range orders {
			if err := o.Publish(ctx, tx, OrderPlaced{fmt.Sprintf("o-%d", n+1), "ada"}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return o.Run(ctx)
}

// deliver is the second stage. It returns once the warehouse has all orders.
func deliver(ctx context.Context, out io.Writer, file string, brokers []string, topic string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	source, err := kafka.New(kafka.Config{Brokers: brokers, Topics: []string{topic}})
	if err != nil {
		return err
	}
	defer source.Close()
	db, err := sqlite.OpenDB(file)
	if err != nil {
		return err
	}
	defer db.Close()
	o := waybill.SQLite(db, waybill.SQLiteConfig{Source: source})
	waybill.Register[OrderPlaced](o, "order.placed")
	packed := 0
	waybill.Handle(o, "warehouse", func(_ context.Context, p OrderPlaced) error {
		fmt.Fprintln(out, "the warehouse packs", p.Order)
		if packed++; packed == orders {
			stop()
		}
		return nil
	}).Parallelism.Threshold = 1
	partner, err := httpsink.New(sinks.Instance{Name: "partner"}, httpsink.Config{URL: "http://127.0.0.1:1/hooks"}) // nothing listens there
	if err != nil {
		return err
	}
	o.Deliver("partner", partner, "order.*")
	if err := errors.Join(o.Migrate(ctx), source.Open(ctx), o.Run(ctx)); err != nil {
		return err
	}
	fmt.Fprintln(out, "the partner is down: its orders wait in Kafka")
	return nil
}
