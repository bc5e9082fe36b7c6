package peer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"

	"github.com/waybill-go/waybill/benchmarks/workload"
	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/source/kafka"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
	kafkasink "github.com/waybill-go/waybill/sinks/kafka"
)

// Stage is a Waybill forwarder that reads a Kafka topic and delivers each record to every partner by
// HTTP. Its cursors are in a PostgreSQL database, which several processes share.
type Stage struct {
	DSN     string
	Brokers []string
	Topic   string
	// Partners are the URLs of the partners. Each has a sink.
	Partners []string
	// Threshold is the most requests to one partner that the process has in flight.
	Threshold int
}

const stagePrefix = "stage"

// Migrate creates the tables, and cursors for all partners at the beginning of the topic. It pauses
// the sinks, so that no process delivers before Resume.
func (s Stage) Migrate(ctx context.Context) error {
	return s.with(ctx, func(tables *postgres.Store) error {
		for number := range s.Partners {
			if _, err := tables.Cut(ctx, WaybillSink(number), 1, store.StartOldest); err != nil {
				return err
			}
		}
		_, err := admin.New(tables, "benchmark").Pause(ctx, s.sinks()...)
		return err
	})
}

// Forwarders returns the number of processes that have joined.
func (s Stage) Forwarders(ctx context.Context) (n int, err error) {
	err = s.with(ctx, func(tables *postgres.Store) error {
		membership, err := tables.Membership(ctx)
		n = len(membership.Members)
		return err
	})
	return n, err
}

// Resume resumes the sinks, so that the processes begin to deliver.
func (s Stage) Resume(ctx context.Context) error {
	return s.with(ctx, func(tables *postgres.Store) error {
		_, err := admin.New(tables, "benchmark").Resume(ctx, s.sinks()...)
		return err
	})
}

// Pending returns the number of deliveries to the first partners that are not settled. Call it while
// no process runs.
func (s Stage) Pending(ctx context.Context, partners int) (pending int, err error) {
	err = s.with(ctx, func(tables *postgres.Store) error {
		status, err := tables.Status(ctx, store.StatusQuery{})
		if err != nil {
			return err
		}
		counts := make(map[string]int)
		for _, c := range status.Cursors {
			counts[c.Sink] += c.Pending
		}
		for _, p := range status.Parked {
			counts[p.Sink] += int(p.Count)
		}
		for number := range partners {
			pending += counts[WaybillSink(number)]
		}
		return nil
	})
	return pending, err
}

// Deliver runs a forwarder until ctx is done, and then returns nil.
func (s Stage) Deliver(ctx context.Context) error {
	return s.with(ctx, func(tables *postgres.Store) error {
		config := forwarder.Config{Store: tables, Logger: slog.New(slog.DiscardHandler), Sinks: make(map[string]forwarder.Sink), Routes: route.Routes{"*": route.To(s.sinks()...)}}
		for number, url := range s.Partners {
			sink, err := httpsink.New(sinks.Instance{Name: WaybillSink(number)}, httpsink.Config{URL: url})
			if err != nil {
				return err
			}
			config.Sinks[WaybillSink(number)] = forwarder.Sink{Sink: sink, Parallelism: forwarder.Parallelism{Threshold: s.Threshold}}
		}
		f, err := forwarder.New(config)
		if err != nil {
			return err
		}
		return f.Run(ctx)
	})
}

func (s Stage) sinks() (names []string) {
	for number := range s.Partners {
		names = append(names, WaybillSink(number))
	}
	return names
}

// with calls use with the tables, whose log is the topic. The first call creates them.
func (s Stage) with(ctx context.Context, use func(tables *postgres.Store) error) error {
	source, err := kafka.New(kafka.Config{Brokers: s.Brokers, Topics: []string{s.Topic}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer source.Close()
	return withDB(s.DSN, func(db *sql.DB) error {
		config := postgres.Config{Prefix: stagePrefix, Payload: postgres.PayloadBytes, Source: source, Listen: s.DSN}
		if _, err := postgres.Migrate(ctx, db, config); err != nil {
			return orderly(ctx, err)
		}
		if err := source.Open(ctx); err != nil {
			return err
		}
		tables, err := postgres.Open(ctx, db, config)
		if err != nil {
			return orderly(ctx, err)
		}
		return use(tables)
	})
}

// WriteStage writes n orders to a topic, with the kafka sink.
func WriteStage(ctx context.Context, brokers []string, topic string, n int) (err error) {
	sink, err := kafkasink.New(sinks.Instance{Name: "log"}, kafkasink.Config{Brokers: brokers, Topic: topic})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sink.Close(ctx)) }()
	for first, size := 0, sink.BatchLimits().Size; first < n; first += size {
		var batch []*notification.Delivery
		for number := first; number < min(n, first+size); number++ {
			o := workload.New(number)
			batch = append(batch, &notification.Delivery{Sink: "log", Attempt: 1, Envelope: &notification.Envelope{
				Offset: int64(number) + 1, ID: o.ID, Type: workload.Type, Version: 1, Key: o.Customer, OccurredOn: o.PlacedOn,
				Metadata: notification.Metadata{"content-type": "application/json"}, Payload: o.JSON(),
			}})
		}
		for i, result := range sink.DeliverBatch(ctx, batch) {
			if result.Err != nil {
				return fmt.Errorf("write order %d to %s: %w", first+i, topic, result.Err)
			}
		}
	}
	return nil
}
