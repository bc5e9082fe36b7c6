// Kafka: what happens to three orders travels to a topic, each order's records in
// their order, and the program prints where each one is stored.
//
//	go run ./examples/kafka
//	KAFKA_BROKERS=localhost:9092 KAFKA_TOPIC=orders go run ./examples/kafka
//	KAFKA_BROKERS=kafka-1:9094 KAFKA_USER=shop KAFKA_PASSWORD=… go run ./examples/kafka
//
// Without KAFKA_BROKERS it brings a broker of its own, inside the process. The topic
// of a real one must exist. With KAFKA_USER it connects over TLS and proves
// who it is with SCRAM-SHA-512.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/kafka"
)

// OrderChanged is published whenever something happens to an order. Its key, the
// order, becomes the record's key.
type OrderChanged struct{ Order, Status string }

func (o OrderChanged) Key() string { return o.Order }

var history = []OrderChanged{
	{"order-1", "placed"}, {"order-2", "placed"}, {"order-1", "paid"},
	{"order-3", "placed"}, {"order-2", "cancelled"}, {"order-1", "shipped"},
}

func main() {
	slog.SetLogLoggerLevel(slog.LevelWarn) // the output says the rest
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	config, done, err := settings(os.Getenv)
	if err == nil {
		defer done()
		err = run(ctx, config, os.Stdout)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// settings are the sink's, from the environment; done ends the broker that the
// program brings.
func settings(env func(string) string) (c kafka.Config, done func(), err error) {
	c.Topic = cmp.Or(env("KAFKA_TOPIC"), "orders")
	c.Compression = "zstd"
	if brokers := env("KAFKA_BROKERS"); brokers != "" {
		c.Brokers = strings.Split(brokers, ",")
		if user := env("KAFKA_USER"); user != "" {
			c.SASL = kafka.SASL{Mechanism: "SCRAM-SHA-512", User: user, Password: env("KAFKA_PASSWORD")}
			c.TLS.Enabled = true
		}
		return c, func() {}, nil
	}
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, c.Topic))
	if err != nil {
		return c, nil, err
	}
	c.Brokers = broker.ListenAddrs()
	return c, broker.Close, nil
}

// run publishes the history and returns once all of it is in Kafka.
func run(ctx context.Context, config kafka.Config, out io.Writer) error {
	folder, err := os.MkdirTemp("", "kafka")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	db, err := sqlite.OpenDB(filepath.Join(folder, "orders.db"))
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
	if err := registry.Register[OrderChanged](types, "order.changed", registry.Key(OrderChanged.Key)); err != nil {
		return err
	}

	events, err := kafka.New(sinks.Instance{Name: "events"}, config)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	stored := make(map[string]bool) // by id
	report := func(_ context.Context, _ *sql.Tx, delivered []forwarder.Delivered) error {
		for _, d := range delivered {
			change, err := registry.Decode[OrderChanged](types, d.Envelope)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "%s %-9s  %s\n", change.Order, change.Status, d.Receipt)
			stored[d.ID] = true
		}
		if len(stored) == len(history) {
			stop() // Run ends when this is settled
		}
		return nil
	}
	engine, err := forwarder.New(forwarder.Config{
		Store: store, Types: types,
		Sinks:  map[string]forwarder.Sink{"events": {Sink: events, Hooks: forwarder.Hooks{Delivered: report}}},
		Routes: route.Routes{"order.*": route.To("events")},
	})
	if err != nil {
		return err
	}
	publisher, err := outbox.New(types, store, outbox.Config{Wake: engine.Wake})
	if err != nil {
		return err
	}
	err = publisher.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		for _, change := range history {
			if err := publisher.Publish(ctx, tx, change); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := engine.Run(ctx); err != nil {
		return err
	}
	if len(stored) < len(history) {
		return fmt.Errorf("%d of %d notifications are in Kafka", len(stored), len(history))
	}
	return nil
}
