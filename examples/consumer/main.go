// Consumer is two processes. A shop publishes orders, and sends them as signed webhooks; a
// second process takes them and pays for each, in a database of its own. Behind the commit
// of the third payment, and before its answer, the consumer is killed. The shop sends the
// order again, and the consumer, started once more, knows it by its id: it notes the id in
// the transaction in which it pays.
//
//	go run ./examples/consumer
//	KAFKA_BROKERS=localhost:9092 KAFKA_TOPIC=orders go run ./examples/consumer
//
// With KAFKA_BROKERS the orders travel through a topic, which must exist. The consumer keeps no
// offsets: it reads the topic from the beginning each time, and pays for what is new. A
// real one has a consumer group, and reads again what it had not acknowledged.
//
// It ends with code 1 if an order is not paid exactly once.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
	"github.com/waybill-go/waybill/sinks/kafka"
)

// OrderPlaced is the notification.
type OrderPlaced struct {
	Order    string `json:"order"`
	Customer string `json:"customer"`
}

// Key keeps a customer's orders in their order.
func (o OrderPlaced) Key() string { return o.Customer }

const (
	orders = 5
	secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // of an example, which everyone may know
)

// Variables that make this program the consumer, and say where it works.
const (
	variableDatabase = "CONSUMER_DATABASE"
	variableAddress  = "CONSUMER_ADDRESS"
)

func main() {
	slog.SetLogLoggerLevel(slog.LevelError + 1) // the output tells all
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	program := run
	if os.Getenv(variableDatabase) != "" {
		program = consume
	}
	if err := program(ctx, os.Stdout, os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, "consumer:", err)
		os.Exit(1)
	}
}

// run is the shop, and the supervisor of the consumer.
func run(ctx context.Context, out io.Writer, env func(string) string) error {
	folder, err := os.MkdirTemp("", "consumer")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	payments, err := openPayments(ctx, filepath.Join(folder, "payments.db"))
	if err != nil {
		return err
	}
	defer payments.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := listener.Addr().String()
	_ = listener.Close() // it is the consumer's

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	supervised, shopped := make(chan error, 1), make(chan error, 1)
	go func() {
		supervised <- supervise(ctx, out, variableDatabase+"="+filepath.Join(folder, "payments.db"), variableAddress+"="+address)
	}()
	go func() { shopped <- shop(ctx, filepath.Join(folder, "shop.db"), "http://"+address, env) }()
	err = awaitPayments(ctx, payments)
	stop()
	err = errors.Join(err, <-supervised, <-shopped)
	return errors.Join(err, check(payments))
}

// supervise starts the consumer again whenever it dies.
func supervise(ctx context.Context, out io.Writer, env ...string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		consumer := exec.CommandContext(ctx, program) // killed when ctx ends
		consumer.Env = append(os.Environ(), env...)
		consumer.Stdout, consumer.Stderr = out, out
		if err := consumer.Run(); ctx.Err() == nil {
			fmt.Fprintln(out, "the consumer died:", err)
		}
	}
	return nil
}

// shop publishes the orders, and sends them until ctx ends.
func shop(ctx context.Context, file, url string, env func(string) string) error {
	db, err := sqlite.OpenDB(file)
	if err != nil {
		return err
	}
	defer db.Close()
	to, err := newSink(url, env)
	if err != nil {
		return err
	}
	o := waybill.SQLite(db, waybill.SQLiteConfig{})
	waybill.Register[OrderPlaced](o, "order.placed", waybill.Key(OrderPlaced.Key))
	sink := o.Deliver("consumer", to, "order.*")
	sink.Parallelism.Threshold = 1
	sink.Retry.Initial = 50 * time.Millisecond
	sink.Breaker = forwarder.Breaker{Off: true} // the consumer is back in a moment
	if err := o.Migrate(ctx); err != nil {
		return err
	}
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

func newSink(url string, env func(string) string) (sinks.Sink, error) {
	if brokers := env("KAFKA_BROKERS"); brokers != "" {
		return kafka.New(sinks.Instance{Name: "consumer"}, kafka.Config{Brokers: strings.Split(brokers, ","), Topic: topic(env)})
	}
	return httpsink.New(sinks.Instance{Name: "consumer"}, httpsink.Config{URL: url, Secret: secret, Timeout: 5 * time.Second})
}

func topic(env func(string) string) string { return cmp.Or(env("KAFKA_TOPIC"), "orders") }

// openPayments opens the consumer's database, which has the tables of an outbox too: the inbox
// is one of them.
func openPayments(ctx context.Context, file string) (*sql.DB, error) {
	db, err := sqlite.OpenDB(file)
	if err != nil {
		return nil, err
	}
	_, errOutbox := sqlite.Migrate(ctx, db, sqlite.Config{})
	_, errTable := db.ExecContext(ctx, `CREATE TABLE payments (customer_order TEXT)`)
	return db, errors.Join(errOutbox, errTable)
}

// awaitPayments returns once all orders are paid.
func awaitPayments(ctx context.Context, db *sql.DB) error {
	for paid := 0; paid < orders; time.Sleep(10 * time.Millisecond) {
		if err := db.QueryRowContext(ctx, `SELECT count(DISTINCT customer_order) FROM payments`).Scan(&paid); err != nil {
			return fmt.Errorf("wait until all orders are paid: %w", err)
		}
	}
	return nil
}

// check counts what was paid.
func check(db *sql.DB) error {
	var paid, all int
	err := db.QueryRow(`SELECT count(DISTINCT customer_order), count(*) FROM payments`).Scan(&paid, &all)
	if err == nil && (paid != orders || all != orders) {
		err = fmt.Errorf("%d orders of %d are paid, with %d payments", paid, orders, all)
	}
	return err
}
