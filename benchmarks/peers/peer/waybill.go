package peer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/waybill-go/waybill/benchmarks/peers/receiver"
	"github.com/waybill-go/waybill/benchmarks/peers/workload"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/waybillpgx/pgxbatch"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
	"github.com/waybill-go/waybill/sinks/kafka"
)

// Waybill is the outbox of this project. The zero value announces commits with NOTIFY, which is the
// default.
type Waybill struct {
	// Silent announces no commits, so forwarders must poll.
	Silent bool
	// Raw writes orders with a plain INSERT instead of the publisher; with Pgx, it is the publisher's INSERT,
	// sent with the COMMIT.
	Raw bool
	// Pgx uses pgx instead of lib/pq.
	Pgx bool
	// Batch sends the INSERT and the COMMIT of pgx in one batch, with pgxbatch.
	Batch bool
	// Prepare prepares the INSERT on each connection of lib/pq.
	Prepare bool
}

const waybillPage = 10_000 // rows

// waybillSink is the name of the only sink.
const waybillSink = "destination"

// Name is the same for all values, since they share their tables.
func (Waybill) Name() string { return "waybill" }

// Migrate creates the tables.
func (Waybill) Migrate(ctx context.Context, dsn string) error {
	return withDB(dsn, func(db *sql.DB) error {
		if _, err := postgres.Migrate(ctx, db, postgres.Config{}); err != nil {
			return err
		}
		_, err := db.ExecContext(ctx, createBusiness)
		return err
	})
}

// Fill appends orders, with COPY.
func (Waybill) Fill(ctx context.Context, dsn string, n int) error {
	return copyIn(ctx, dsn, "outbox", []string{"type", "key", "id", "metadata", "payload"}, n, func(number int) []any {
		return []any{workload.Type, workload.Key(number), workload.ID(number), `{"content-type":"application/json"}`, string(workload.New(number).JSON())}
	})
}

// Pending counts the rows after the forwarder's cursors and the parked deliveries.
func (Waybill) Pending(ctx context.Context, dsn string) (pending int, err error) {
	err = withDB(dsn, func(db *sql.DB) error {
		s, err := postgres.Open(ctx, db, postgres.Config{})
		if err != nil {
			return err
		}
		if err := db.QueryRowContext(ctx, `SELECT count(*) FROM outbox_parked`).Scan(&pending); err != nil {
			return err
		}
		behind, err := countBehind(ctx, s, store.Lanes(waybillSink, 1)[0])
		if errors.Is(err, store.ErrLanes) { // no forwarder has run
			return db.QueryRowContext(ctx, `SELECT count(*) FROM outbox`).Scan(&pending)
		}
		pending += behind
		return err
	})
	return pending, err
}

// countBehind returns the number of rows that a lane has not settled.
func countBehind(ctx context.Context, s *postgres.Store, lane store.Lane) (n int, err error) {
	lease, err := s.Acquire(ctx, lane, "count", time.Minute)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Release(ctx, lease)) }()
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
		for _, e := range page.Envelopes {
			if !slices.ContainsFunc(lease.Settled, func(r store.OffsetRange) bool { return r.First <= e.Offset && e.Offset <= r.Last }) {
				n++
			}
		}
		if err != nil || page.CaughtUp {
			return n, err
		}
	}
}

// Open returns the publisher of package outbox.
func (w Waybill) Open(ctx context.Context, dsn string, clients int) (Publisher, error) {
	if w.Pgx {
		return w.openPgx(ctx, dsn, clients)
	}
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

// insertNotification is the INSERT of package outbox.
const insertNotification = `INSERT INTO outbox (id, type, version, key, occurred_on, deliver_at, metadata, payload) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`

// openPgx returns a publisher that uses transactions of pgx. The store uses the same pool.
func (w Waybill) openPgx(ctx context.Context, dsn string, clients int) (Publisher, error) {
	if w.Raw {
		pool, err := openPool(ctx, dsn, int32(clients))
		return batched{pool, insertNotification, func(number int, o workload.Order) []any {
			return []any{workload.ID(number), workload.Type, 1, o.Customer, time.Now(), nil, `{"content-type":"application/json"}`, string(o.JSON())}
		}}, err
	}
	t, err := openPgxTransactions(ctx, dsn, clients)
	if err != nil {
		return nil, err
	}
	t.db = stdlib.OpenDBFromPool(t.pool)
	publisher, err := w.publisher(ctx, t.db)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	if w.Batch {
		t.begin = func(ctx context.Context) (pgx.Tx, error) { return pgxbatch.Pool(t.pool).BeginTx(ctx, pgx.TxOptions{}) }
	}
	t.append = func(ctx context.Context, tx pgx.Tx, o workload.Order) error {
		return publisher.Publish(ctx, outbox.Pgx(tx), o)
	}
	t.committed = publisher.Announce
	return t, nil
}

func (w Waybill) publisher(ctx context.Context, db *sql.DB) (*outbox.Publisher, error) {
	s, err := postgres.Open(ctx, db, postgres.Config{Prepare: w.Prepare})
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

// WaybillForwarder has the settings of a Waybill forwarder.
type WaybillForwarder struct {
	// Threshold is the threshold of the sink; 0 means the default. For HTTP the Destination's InFlight is
	// the threshold instead.
	Threshold int
	// Batches delivers to nowhere in batches.
	Batches bool
	// Listen makes the forwarder listen for announcements.
	Listen bool
}

// Relay returns the forwarder as a contender.
func (w WaybillForwarder) Relay(how, configuration string) Relay {
	return Relay{
		Name: "Waybill (" + how + ")", Configuration: configuration,
		Outbox: Waybill{Silent: !w.Listen}, Deliver: w.deliver,
	}
}

func (w WaybillForwarder) deliver(ctx context.Context, dsn string, to receiver.Destination) error {
	return withDB(dsn, func(db *sql.DB) error {
		listen := ""
		if w.Listen {
			listen = dsn
		}
		s, err := postgres.Open(ctx, db, postgres.Config{Listen: listen})
		if err != nil {
			return orderly(ctx, err)
		}
		threshold := w.Threshold
		if to.Kind == receiver.HTTP {
			threshold = to.InFlight
		}
		sink, err := w.sink(to)
		if err != nil {
			return err
		}
		config := forwarder.Config{
			Store: s, Logger: slog.New(slog.DiscardHandler), Routes: route.Routes{"*": route.To(waybillSink)},
			Sinks: map[string]forwarder.Sink{waybillSink: {Sink: sink, Parallelism: forwarder.Parallelism{Threshold: threshold}}},
		}
		f, err := forwarder.New(config)
		if err != nil {
			return err
		}
		return f.Run(ctx)
	})
}

func (w WaybillForwarder) sink(to receiver.Destination) (sinks.Sink, error) {
	in := sinks.Instance{Name: waybillSink}
	switch to.Kind {
	case receiver.Kafka:
		return kafka.New(in, kafka.Config{Brokers: to.Brokers, Topic: to.Topic})
	case receiver.HTTP:
		return httpsink.New(in, httpsink.Config{URL: to.URL})
	case receiver.Nowhere:
		single := nowhereSink(to.Take)
		if w.Batches {
			return nowhereBatches{single}, nil
		}
		return single, nil
	}
	return nil, fmt.Errorf("no sink for %q", to.Kind)
}

// nowhereSink calls a function with each payload.
type nowhereSink func(payload []byte)

func (take nowhereSink) Deliver(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
	take(d.Payload)
	return "", nil
}

// nowhereBatches calls a function with each payload of a batch, in order.
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
