package crashtest_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/inbox"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
	"github.com/waybill-go/waybill/sinks/kafka"
)

// variableStory makes the test binary run one of the programs below until it is killed.
const variableStory = "WAYBILL_CRASH_STORY"

// story configures such a program.
type story struct {
	Program string `json:"program"`
	Address string `json:"address"` // of its database
	Drain   bool   `json:"drain"`   // begin nothing new

	URL     string   `json:"url"` // of the consumer's webhooks
	Brokers []string `json:"brokers"`
	Topic   string   `json:"topic"`
	Folder  string   `json:"folder"` // of what it writes
}

// The tables of the programs. They have no unique columns, so that repeated effects are visible.
var businessTables = []string{
	`CREATE TABLE orders (id VARCHAR(100) PRIMARY KEY)`,
	`CREATE TABLE payments (order_id VARCHAR(100))`,
	`CREATE TABLE shipments (order_id VARCHAR(100))`,
	`CREATE TABLE mails (mail VARCHAR(100), attempt INTEGER)`,
}

// The notifications of the programs.
type (
	orderPlaced   struct{ Order string }
	paymentMade   struct{ Order string }
	commentPosted struct{ Comment string }
	mailDue       struct{ Mail string }
)

func (n orderPlaced) Key() string { return n.Order }
func (n mailDue) Key() string     { return n.Mail }

const (
	storyLease = time.Second // the minimum
	backlog    = 100         // limit of unfinished work
	followers  = 7
	shopOrders = 400 // orders of one process
	webhookKey = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

// play runs such a program.
func play(text string) {
	var s story
	err := json.Unmarshal([]byte(text), &s)
	if err == nil {
		slog.SetLogLoggerLevel(slog.LevelError)
		err = s.play(context.Background())
	}
	fmt.Fprintln(os.Stderr, s.Program, "ended:", err)
	os.Exit(1)
}

func (s *story) play(ctx context.Context) error {
	db, err := openStory(s.Address)
	if err != nil {
		return err
	}
	o := outboxOf(s.Address, db)
	o.Config.Lease = storyLease
	o.Config.Logger = slog.New(slog.DiscardHandler)
	waybill.Register[orderPlaced](o, "order.placed", waybill.Key(orderPlaced.Key))
	waybill.Register[paymentMade](o, "payment.made")
	waybill.Register[commentPosted](o, "comment.posted")
	waybill.Register[mailDue](o, "mail.due", waybill.Key(mailDue.Key))
	switch s.Program {
	case "chain":
		return s.chain(ctx, o, db)
	case "comments":
		return s.comments(ctx, o, db)
	case "shop":
		return s.shop(ctx, o, db)
	case "consumer":
		return s.consumer(ctx, o, db)
	case "customers":
		return s.customers(ctx, o)
	case "persons":
		return s.persons(ctx, o)
	case "eraser":
		return s.eraser(ctx, o, db)
	}
	return fmt.Errorf("unknown program %q", s.Program)
}

func openStory(address string) (db *sql.DB, err error) {
	if isPostgres(address) {
		db, err = postgres.OpenDB(address)
	} else {
		db, err = sqlite.OpenDB(address)
	}
	if err == nil {
		db.SetMaxOpenConns(20)
	}
	return db, err
}

func outboxOf(address string, db *sql.DB) *waybill.Outbox {
	if isPostgres(address) {
		return waybill.Postgres(db, waybill.PostgresConfig{})
	}
	return waybill.SQLite(db, waybill.SQLiteConfig{})
}

func isPostgres(address string) bool { return strings.HasPrefix(address, "postgres") }

// patient makes a sink retry soon, and for as long as a test runs.
func patient(sink *waybill.Sink) *waybill.Sink {
	sink.Parallelism.Threshold = 4
	sink.Retry = forwarder.Retry{MaxAttempts: 10_000, Initial: 5 * time.Millisecond, Max: 50 * time.Millisecond}
	sink.Breaker.Off = true
	return sink
}

// insert stores an effect.
func insert(ctx context.Context, tx *sql.Tx, table string, values ...any) error {
	places := []string{"$1", "$2"}[:len(values)]
	_, err := tx.ExecContext(ctx, `INSERT INTO `+table+` VALUES (`+strings.Join(places, ", ")+`)`, values...)
	return err
}

// begin runs the outbox, and starts new work whenever there is little unfinished work.
func (s *story) begin(ctx context.Context, o *waybill.Outbox, db *sql.DB, underWay string, business func(ctx context.Context, tx *sql.Tx, id string) error) error {
	if err := o.Open(ctx); err != nil {
		return err
	}
	go func() {
		for n := 0; !s.Drain; {
			var open int
			if err := db.QueryRowContext(ctx, underWay).Scan(&open); err != nil || open >= backlog {
				time.Sleep(time.Millisecond) // nothing depends on the length of this pause
				continue
			}
			n++
			id := fmt.Sprintf("%d-%d-%d", os.Getpid(), time.Now().UnixNano(), n)
			_ = o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { return business(ctx, tx, id) }) // a failed transaction has no effect
		}
	}()
	return o.Run(ctx)
}

func (s *story) placeOrders(ctx context.Context, o *waybill.Outbox, db *sql.DB, underWay string) error {
	return s.begin(ctx, o, db, underWay, func(ctx context.Context, tx *sql.Tx, id string) error {
		return errors.Join(insert(ctx, tx, "orders", id), o.Publish(ctx, tx, orderPlaced{id}))
	})
}

// chain accepts orders, also from the clock, charges for them, and ships them. Each step publishes the next one in its
// transaction.
func (s *story) chain(ctx context.Context, o *waybill.Outbox, db *sql.DB) error {
	patient(waybill.HandleTx(o, "payments", func(ctx context.Context, tx *sql.Tx, n orderPlaced) error {
		return errors.Join(insert(ctx, tx, "payments", n.Order), o.Publish(ctx, tx, paymentMade(n)))
	}))
	patient(waybill.HandleTx(o, "shipments", func(ctx context.Context, tx *sql.Tx, n paymentMade) error {
		return insert(ctx, tx, "shipments", n.Order)
	}))
	if !s.Drain {
		o.Schedule("ticks", waybill.Every(time.Second), func(_ context.Context, tick time.Time) (any, error) {
			return orderPlaced{"tick " + tick.Format(time.TimeOnly)}, nil
		})
	}
	return s.placeOrders(ctx, o, db, `SELECT (SELECT count(*) FROM orders) - (SELECT count(*) FROM shipments WHERE order_id NOT LIKE 'tick %')`)
}

// comments sends a mail to each follower of each comment. Mails to the first follower fail twice.
func (s *story) comments(ctx context.Context, o *waybill.Outbox, db *sql.DB) error {
	patient(waybill.HandleTx(o, "followers", func(ctx context.Context, tx *sql.Tx, n commentPosted) error {
		mails := make([]any, followers)
		for i := range mails {
			mails[i] = mailDue{fmt.Sprintf("%s to %d", n.Comment, i)}
		}
		return o.Publish(ctx, tx, mails...)
	}))
	patient(o.Deliver("mail", &mailer{o: o, db: db}, "mail.due"))
	// Each row of orders stands for a comment.
	return s.begin(ctx, o, db, fmt.Sprintf(`SELECT (SELECT count(*) FROM orders) - (SELECT count(*) FROM mails) / %d`, followers),
		func(ctx context.Context, tx *sql.Tx, id string) error {
			return errors.Join(insert(ctx, tx, "orders", id), o.Publish(ctx, tx, commentPosted{id}))
		})
}

// mailer records each mail with its attempt.
type mailer struct {
	o  *waybill.Outbox
	db *sql.DB
}

func (m *mailer) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	if strings.HasSuffix(d.Key, " to 0") && d.Attempt < 3 {
		return "", errors.New("450 try again later")
	}
	config := inbox.Config{Inbox: m.o.Inbox(), DB: m.db, Publisher: m.o.Publisher()}
	return inbox.HandleTx(config, m.o.Types(), func(ctx context.Context, tx *sql.Tx, n mailDue) error {
		return insert(ctx, tx, "mails", n.Mail, d.Attempt)
	}).Deliver(ctx, d)
}

// shop sends its orders to a consumer.
func (s *story) shop(ctx context.Context, o *waybill.Outbox, db *sql.DB) error {
	var to sinks.Sink
	var err error
	if s.Topic != "" {
		to, err = kafka.New(sinks.Instance{Name: "orders"}, kafka.Config{Brokers: s.Brokers, Topic: s.Topic})
	} else {
		to, err = httpsink.New(sinks.Instance{Name: "orders"}, httpsink.Config{URL: s.URL, Secret: webhookKey, Timeout: 5 * time.Second})
	}
	if err != nil {
		return err
	}
	patient(o.Deliver("orders", to, "order.*"))
	// The unfinished work is at the consumer, so a process begins a fixed number of orders and then waits to
	// be killed.
	return s.placeOrders(ctx, o, db, fmt.Sprintf(`SELECT count(*) / %d FROM orders WHERE id LIKE '%d-%%'`, shopOrders/backlog, os.Getpid()))
}

// consumer pays for each order once. Every tenth answer is a failure after the effect.
func (s *story) consumer(ctx context.Context, o *waybill.Outbox, db *sql.DB) error {
	if err := o.Open(ctx); err != nil {
		return err
	}
	types := registry.New()
	if err := registry.Register[orderPlaced](types, "order.placed"); err != nil {
		return err
	}
	config := inbox.Config{Inbox: o.Inbox(), DB: db, Consumer: "payments"}
	var calls atomic.Int64
	pay := func(ctx context.Context, e *notification.Envelope) error {
		n, err := registry.Decode[orderPlaced](types, e)
		if err == nil {
			err = insert(ctx, inbox.Tx[*sql.Tx](ctx), "payments", n.Order)
		}
		if calls.Add(1)%10 == 0 && err == nil {
			err = errors.New("the bank is closed")
		}
		return err
	}
	if s.Topic != "" {
		return s.consumeTopic(ctx, config, pay)
	}
	return s.consumeWebhooks(config, pay)
}

// consumeWebhooks serves the listener that it inherits.
func (s *story) consumeWebhooks(config inbox.Config, pay func(context.Context, *notification.Envelope) error) error {
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	receiver := webhook.Receiver{Secrets: []string{webhookKey}}
	once, err := inbox.Handler(config, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e, err := receiver.Envelope(r)
		if err == nil {
			err = pay(r.Context(), e)
		}
		if err != nil {
			http.Error(w, "no", http.StatusInternalServerError)
		}
	}))
	if err != nil {
		return err
	}
	handler, err := receiver.Verify(once)
	if err != nil {
		return err
	}
	return (&http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}).Serve(listener)
}

// consumeTopic stores no offsets, so it always begins at the first record.
func (s *story) consumeTopic(ctx context.Context, config inbox.Config, pay func(context.Context, *notification.Envelope) error) error {
	c := wmkafka.DefaultSaramaSubscriberConfig()
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	subscriber, err := wmkafka.NewSubscriber(wmkafka.SubscriberConfig{
		Brokers: s.Brokers, Unmarshaler: wmkafka.DefaultMarshaler{}, OverwriteSaramaConfig: c, NackResendSleep: time.Millisecond,
	}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	once, err := inbox.Middleware(config)
	if err != nil {
		return err
	}
	router.AddMiddleware(once)
	router.AddConsumerHandler("payments", s.Topic, subscriber, func(m *message.Message) error {
		return pay(m.Context(), &notification.Envelope{Type: "order.placed", Version: 1, Payload: m.Payload})
	})
	return router.Run(ctx)
}
