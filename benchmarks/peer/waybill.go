package peer

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/waybill-go/waybill/benchmarks/receiver"
	"github.com/waybill-go/waybill/benchmarks/workload"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/outbox/pgxbatch"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/mailserver"
	"github.com/waybill-go/waybill/sinks/httpsink"
	"github.com/waybill-go/waybill/sinks/kafka"
)

// Waybill is the outbox of this project. The zero value announces commits with NOTIFY, which is the
// default.
type Waybill struct {
	// Silent announces no commits, so forwarders must poll.
	Silent bool
	// Raw writes orders with a plain INSERT instead of the publisher.
	Raw bool
	// Pgx uses pgx instead of lib/pq, with the INSERT and the COMMIT in one batch.
	Pgx bool
	// Sinks and Lanes are those of the WaybillForwarder; 0 means 1.
	Sinks, Lanes int
}

const waybillPage = 10_000 // rows

// WaybillSink returns the name of a sink. The first has the number 0.
func WaybillSink(number int) string { return fmt.Sprintf("destination-%d", number) }

// Name is the same for all values, since they share their tables.
func (Waybill) Name() string { return "waybill" }

// Migrate creates the tables.
func (Waybill) Migrate(ctx context.Context, dsn string) error {
	return withDB(dsn, func(db *sql.DB) (err error) {
		switch {
		case inFile(dsn):
			_, err = sqlite.Migrate(ctx, db, sqlite.Config{})
		case inMySQL(dsn):
			_, err = mysql.Migrate(ctx, db, mysql.Config{})
		default:
			_, err = postgres.Migrate(ctx, db, postgres.Config{})
		}
		if err != nil {
			return err
		}
		_, err = db.ExecContext(ctx, createBusinessIn(dsn))
		return err
	})
}

// waybillStore is a store of any database.
type waybillStore interface {
	forwarder.Store
	outbox.Log
}

// openWaybill opens the store of a database. listen is the address for LISTEN; "": it does not listen.
func openWaybill(ctx context.Context, db *sql.DB, dsn, listen string) (waybillStore, error) {
	switch {
	case inFile(dsn):
		return sqlite.Open(ctx, db, sqlite.Config{})
	case inMySQL(dsn):
		return mysql.Open(ctx, db, mysql.Config{})
	}
	return postgres.Open(ctx, db, postgres.Config{Listen: listen})
}

// Fill appends orders, on PostgreSQL with COPY.
func (Waybill) Fill(ctx context.Context, dsn string, n int) error {
	return copyIn(ctx, dsn, "outbox", waybillColumns, n, waybillRow)
}

var waybillColumns = []string{"type", "key", "id", "metadata", "payload"}

func waybillRow(number int) []any {
	return []any{workload.Type, workload.Key(number), workload.ID(number), `{"content-type":"application/json"}`, string(workload.New(number).JSON())}
}

// Pending counts the rows after the forwarder's cursors and the parked deliveries.
func (w Waybill) Pending(ctx context.Context, dsn string) (pending int, err error) {
	err = withDB(dsn, func(db *sql.DB) error {
		s, err := openWaybill(ctx, db, dsn, "")
		if err != nil {
			return err
		}
		if err := db.QueryRowContext(ctx, rebind(dsn, `SELECT count(*) FROM outbox_parked WHERE sink <> $1 AND id NOT LIKE 'parked-%'`), deadSink).Scan(&pending); err != nil {
			return err
		}
		for number := range max(1, w.Sinks) {
			for _, lane := range store.Lanes(WaybillSink(number), max(1, w.Lanes)) {
				behind, err := countBehind(ctx, s, lane)
				if errors.Is(err, store.ErrLanes) { // no forwarder has run
					return db.QueryRowContext(ctx, `SELECT count(*) FROM outbox`).Scan(&pending)
				}
				if err != nil {
					return err
				}
				pending += behind
			}
		}
		return nil
	})
	return pending, err
}

// countBehind returns the number of rows that a lane has not settled.
func countBehind(ctx context.Context, s waybillStore, lane store.Lane) (n int, err error) {
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
	publisher, err := w.publisher(ctx, t.db, dsn)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	t.append = func(ctx context.Context, tx *sql.Tx, o workload.Order) error { return publisher.Publish(ctx, tx, o) }
	t.committed = publisher.Announce
	return t, nil
}

// openPgx returns a publisher that uses transactions of pgx. The store uses the same pool.
func (w Waybill) openPgx(ctx context.Context, dsn string, clients int) (Publisher, error) {
	t, err := openPgxTransactions(ctx, dsn, clients)
	if err != nil {
		return nil, err
	}
	t.db = stdlib.OpenDBFromPool(t.pool)
	publisher, err := w.publisher(ctx, t.db, dsn)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	t.begin = func(ctx context.Context) (pgx.Tx, error) { return pgxbatch.Pool(t.pool).BeginTx(ctx, pgx.TxOptions{}) }
	t.append = func(ctx context.Context, tx pgx.Tx, o workload.Order) error {
		return publisher.Publish(ctx, outbox.Pgx(tx), o)
	}
	t.committed = publisher.Announce
	return t, nil
}

func (w Waybill) publisher(ctx context.Context, db *sql.DB, dsn string) (*outbox.Publisher, error) {
	s, err := openWaybill(ctx, db, dsn, "")
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
	// Threshold is the threshold of each sink; 0 means the default. For HTTP and mail the
	// Destination's InFlight is the threshold instead.
	Threshold int
	// Batches delivers to nowhere in batches.
	Batches bool
	// Listen makes the forwarder listen for announcements.
	Listen bool
	// Sinks is the number of sinks, which all get every order. Lanes is the number of lanes of each
	// sink. 0 means 1. Only deliveries to nowhere can have more than one sink.
	Sinks, Lanes int
	// Dead adds a sink that gets every order too, and whose destination is unreachable.
	Dead bool
}

// deadSink is the name of the sink that Dead adds.
const deadSink = "dead"

// Relay returns the forwarder as a contender.
func (w WaybillForwarder) Relay(how, configuration string) Relay {
	return Relay{
		Name: "Waybill (" + how + ")", Configuration: configuration,
		Outbox: Waybill{Silent: !w.Listen, Sinks: w.Sinks, Lanes: w.Lanes}, Deliver: w.deliver,
	}
}

func (w WaybillForwarder) deliver(ctx context.Context, dsn string, to receiver.Destination) error {
	return withDB(dsn, func(db *sql.DB) error {
		listen := ""
		if w.Listen {
			listen = dsn
		}
		s, err := openWaybill(ctx, db, dsn, listen)
		if err != nil {
			return orderly(ctx, err)
		}
		config := forwarder.Config{
			Store: s, Logger: slog.New(slog.DiscardHandler), Lanes: w.Lanes,
			Sinks: make(map[string]forwarder.Sink),
		}
		threshold := w.Threshold
		if to.Kind == receiver.HTTP || to.Kind == receiver.Mail {
			threshold = to.InFlight
		}
		var names []string
		for number := range max(1, w.Sinks) {
			sink, err := w.sink(number, to)
			if err != nil {
				return err
			}
			names = append(names, WaybillSink(number))
			config.Sinks[names[number]] = forwarder.Sink{Sink: sink, Parallelism: forwarder.Parallelism{Threshold: threshold}}
		}
		if w.Dead {
			names = append(names, deadSink)
			config.Sinks[deadSink] = forwarder.Sink{Sink: sinks.Func(unreachable)}
		}
		config.Routes = route.Routes{"*": route.To(names...)}
		f, err := forwarder.New(config)
		if err != nil {
			return err
		}
		return f.Run(ctx)
	})
}

// unreachable is a sink whose destination is down.
func unreachable(context.Context, *notification.Delivery) (notification.Receipt, error) {
	return "", sinks.Unavailable(errors.New("connection refused"))
}

//go:embed mail
var mailTemplates embed.FS

func (w WaybillForwarder) sink(number int, to receiver.Destination) (sinks.Sink, error) {
	in := sinks.Instance{Name: WaybillSink(number)}
	switch to.Kind {
	case receiver.Kafka:
		return kafka.New(in, kafka.Config{Brokers: to.Brokers, Topic: to.Topic})
	case receiver.HTTP:
		return httpsink.New(in, httpsink.Config{URL: to.URL})
	case receiver.Mail:
		return email.New(in, email.Config{
			SMTP: "smtp://" + to.SMTP, TLS: mailserver.TLSNone, From: MailFrom, FS: mailTemplates, Templates: "mail", Connections: to.InFlight,
		})
	case receiver.Nowhere:
		single := nowhereSink(to.Takes[number])
		if w.Batches {
			return nowhereBatches{single}, nil
		}
		return single, nil
	}
	return nil, fmt.Errorf("no sink for %q", to.Kind)
}

// MailFrom is the sender of all mails.
const MailFrom = "Shop <shop@example.com>"

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
