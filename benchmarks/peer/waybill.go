package peer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/waybill-go/waybill/benchmarks/receiver"
	"github.com/waybill-go/waybill/benchmarks/workload"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
	"github.com/waybill-go/waybill/sinks/kafka"
)

// Waybill is the outbox of this project. The zero value announces commits with
// NOTIFY, as it does where nothing is set.
type Waybill struct {
	// Silent announces nothing: forwarders poll.
	Silent bool
	// Raw writes orders with a plain INSERT instead of the publisher.
	Raw bool
}

const (
	waybillSink = "destination"
	waybillPage = 10_000 // rows
)

// Name is the same for all: they share their tables.
func (Waybill) Name() string { return "waybill" }

// Migrate makes the tables.
func (Waybill) Migrate(ctx context.Context, dsn string) error {
	return withDB(dsn, func(db *sql.DB) error {
		if _, err := postgres.Migrate(ctx, db, postgres.Config{}); err != nil {
			return err
		}
		_, err := db.ExecContext(ctx, createBusiness)
		return err
	})
}

// Fill appends orders with COPY.
func (Waybill) Fill(ctx context.Context, dsn string, n int) error {
	return copyIn(ctx, dsn, "outbox", []string{"type", "key", "id", "metadata", "payload"}, n, func(number int) []any {
		return []any{workload.Type, workload.Key(number), workload.ID(number), `{"content-type":"application/json"}`, string(workload.New(number).JSON())}
	})
}

// Pending reads on from where the forwarder's cursor stands.
func (Waybill) Pending(ctx context.Context, dsn string) (pending int, err error) {
	err = withDB(dsn, func(db *sql.DB) error {
		s, err := postgres.Open(ctx, db, postgres.Config{})
		if err != nil {
			return err
		}
		lease, err := s.Acquire(ctx, store.NewLane(waybillSink, 0, 1), "count", time.Minute)
		if errors.Is(err, store.ErrLanes) { // no forwarder ran
			return db.QueryRowContext(ctx, `SELECT count(*) FROM outbox`).Scan(&pending)
		}
		if err != nil {
			return err
		}
		if err := db.QueryRowContext(ctx, `SELECT count(*) FROM outbox_parked`).Scan(&pending); err != nil {
			return err
		}
		behind, err := countBehind(ctx, s, lease)
		pending += behind - len(lease.Settled)
		return errors.Join(err, s.Release(ctx, lease))
	})
	return pending, err
}

// countBehind counts the rows behind a cursor's position.
func countBehind(ctx context.Context, s *postgres.Store, lease store.Lease) (n int, err error) {
	target, err := s.Probe(ctx)
	if err != nil {
		return 0, err
	}
	reader, err := s.NewReader(lease.Position, store.Filter{Slots: lease.Lane.Slots, Types: notification.AllTypes, Server: lease.Server})
	if err != nil {
		return 0, err
	}
	for {
		page, err := reader.Next(ctx, target, waybillPage)
		n += len(page.Envelopes)
		if err != nil || page.CaughtUp {
			return n, err
		}
	}
}

// Open returns the publisher of package outbox.
func (w Waybill) Open(ctx context.Context, dsn string, clients int) (Publisher, error) {
	t, err := openTransactions(dsn, clients)
	if err != nil {
		return nil, err
	}
	if w.Raw {
		t.append = func(ctx context.Context, tx *sql.Tx, o workload.Order) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO outbox (type, key, payload) VALUES ($1, $2, $3)`, workload.Type, o.Customer, o.JSON())
			return err
		}
		return t, nil
	}
	publisher, err := w.publisher(ctx, t.db)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	t.append = func(ctx context.Context, tx *sql.Tx, o workload.Order) error { return publisher.Publish(ctx, tx, o) }
	t.committed = publisher.Announce
	return t, nil
}

func (w Waybill) publisher(ctx context.Context, db *sql.DB) (*outbox.Publisher, error) {
	s, err := postgres.Open(ctx, db, postgres.Config{})
	if err != nil {
		return nil, err
	}
	types := registry.New()
	key := registry.Key(func(o workload.Order) string { return o.Customer })
	if err := registry.Register[workload.Order](types, workload.Type, registry.Version(1), key); err != nil {
		return nil, err
	}
	config := outbox.Config{}
	if w.Silent {
		config.Announcer = outbox.Silent
	}
	return outbox.New(types, s, config)
}

// WaybillForwarder says how a Waybill forwarder is set up.
type WaybillForwarder struct {
	// Threshold of the sink; 0 is the default. A Destination's InFlight bounds it for
	// HTTP.
	Threshold int
	// Batches hands many to a sink that takes many. It counts for nowhere and Kafka.
	Batches bool
	// Listen lets the forwarder wait for announcements.
	Listen bool
}

// Relay makes it a contender.
func (w WaybillForwarder) Relay(how, configuration string) Relay {
	return Relay{
		Name: "Waybill (" + how + ")", Configuration: configuration,
		Outbox: Waybill{Silent: !w.Listen}, Deliver: w.deliver,
	}
}

func (w WaybillForwarder) deliver(ctx context.Context, dsn string, to receiver.Destination) error {
	return withDB(dsn, func(db *sql.DB) error {
		config := postgres.Config{}
		if w.Listen {
			config.Listen = dsn
		}
		s, err := postgres.Open(ctx, db, config)
		if err != nil {
			return orderly(ctx, err)
		}
		sink, err := w.sink(to)
		if err != nil {
			return err
		}
		threshold := w.Threshold
		if to.Kind == receiver.HTTP {
			threshold = to.InFlight
		}
		f, err := forwarder.New(forwarder.Config{
			Store: s, Logger: slog.New(slog.DiscardHandler),
			Routes: route.Routes{"*": route.To(waybillSink)},
			Sinks:  map[string]forwarder.Sink{waybillSink: {Sink: sink, Parallelism: forwarder.Parallelism{Threshold: threshold}}},
		})
		if err != nil {
			return err
		}
		return f.Run(ctx)
	})
}

func (w WaybillForwarder) sink(to receiver.Destination) (sinks.Sink, error) {
	switch to.Kind {
	case receiver.Kafka:
		return kafka.New(sinks.Instance{Name: waybillSink}, kafka.Config{Brokers: to.Brokers, Topic: to.Topic})
	case receiver.HTTP:
		return httpsink.New(sinks.Instance{Name: waybillSink}, httpsink.Config{URL: to.URL})
	case receiver.Nowhere:
		single := nowhereSink(to.Take)
		if w.Batches {
			return nowhereBatches{single}, nil
		}
		return single, nil
	}
	return nil, fmt.Errorf("no sink for %q", to.Kind)
}

// nowhereSink hands payloads to a function.
type nowhereSink func(payload []byte)

func (take nowhereSink) Deliver(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
	take(d.Payload)
	return "", nil
}

// nowhereBatches takes what there is, in its order.
type nowhereBatches struct{ nowhereSink }

const nowhereBatch = 500

func (nowhereBatches) BatchLimits() sinks.BatchLimits {
	return sinks.BatchLimits{Size: nowhereBatch, Ordered: true}
}

func (take nowhereBatches) DeliverBatch(_ context.Context, batch []*notification.Delivery) []sinks.Result {
	for _, d := range batch {
		take.nowhereSink(d.Payload)
	}
	return make([]sinks.Result, len(batch))
}
