// Consumer is two processes, each with its own database. The first is a shop, which publishes
// orders and sends them as signed webhooks. The second is the consumer, which pays for each order.
// The consumer is killed after the commit of the third payment and before its response. The shop
// sends the order again. The consumer, started again, recognizes the notification by its id, which
// it stored in the transaction of the payment.
//
// The consumer that is started again has a new secret. The shop need not know when the secret
// changes, since it signs with both. The consumer refuses a forged order.
//
//	go run ./examples/consumer
//	KAFKA_BROKERS=localhost:9092 KAFKA_TOPIC=orders go run ./examples/consumer
//
// With KAFKA_BROKERS the orders go through a topic, which must exist. To stay short, the consumer
// has no consumer group: it reads the topic from the beginning each time, and pays for the orders
// that are new.
//
// It exits with code 1 if an order is not paid exactly once, or the forged order is accepted.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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

// Key keeps the orders of a customer in sequence.
func (o OrderPlaced) Key() string { return o.Customer }

const orders = 5

// Environment variables of the consumer. A process that has the first of them is the consumer.
const (
	variableDatabase = "CONSUMER_DATABASE"
	variableAddress  = "CONSUMER_ADDRESS"
	variableSecret   = "CONSUMER_SECRET"
)

func main() {
	slog.SetLogLoggerLevel(slog.LevelError + 1) // no logs: the program prints what happens
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

// run runs the shop, and supervises the consumer.
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
	address := freeAddress()

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	secrets := []string{newSecret(), newSecret()} // of the consumer, before and after it is killed
	to, err := newSink("http://"+address, secrets, env)
	if err != nil {
		return err
	}
	supervised, shopped := make(chan error, 1), make(chan error, 1)
	go func() {
		supervised <- supervise(ctx, out, secrets, variableDatabase+"="+filepath.Join(folder, "payments.db"), variableAddress+"="+address)
	}()
	go func() { shopped <- shop(ctx, filepath.Join(folder, "shop.db"), to) }()
	err = awaitPayments(ctx, payments)
	response := ""
	if err == nil && env("KAFKA_BROKERS") == "" {
		response, err = forge(ctx, "http://"+address)
	}
	stop()
	if err := errors.Join(err, <-supervised, <-shopped); err != nil {
		return err
	}
	if response != "" {
		fmt.Fprintln(out, "forged order:", response)
	}
	return check(payments)
}

// freeAddress returns an address for the consumer. Its port is below those that systems assign to
// connections, so that none takes it while the consumer is dead.
func freeAddress() string {
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 20000+mathrand.IntN(12000))
		if listener, err := net.Listen("tcp", address); err == nil && listener.Close() == nil {
			return address
		}
	}
}

// newSecret returns a random secret for signatures, which the shop and the consumer share.
func newSecret() string {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	return "whsec_" + base64.StdEncoding.EncodeToString(secret)
}

// supervise starts the consumer again whenever it dies, with the next secret while there is one.
func supervise(ctx context.Context, out io.Writer, secrets []string, env ...string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	for n := 0; ctx.Err() == nil; n++ {
		consumer := exec.CommandContext(ctx, program) // killed when ctx ends
		consumer.Env = append(append(os.Environ(), env...), variableSecret+"="+secrets[min(n, len(secrets)-1)])
		consumer.Stdout, consumer.Stderr = out, out
		if err := consumer.Run(); ctx.Err() == nil {
			fmt.Fprintln(out, "the consumer died:", err)
		}
	}
	return nil
}

// shop publishes the orders, and runs a forwarder until ctx is done.
func shop(ctx context.Context, file string, to sinks.Sink) error {
	db, err := sqlite.OpenDB(file)
	if err != nil {
		return err
	}
	defer db.Close()
	o := waybill.SQLite(db, waybill.SQLiteConfig{})
	waybill.Register[OrderPlaced](o, "order.placed", waybill.Key(OrderPlaced.Key))
	sink := o.Deliver("consumer", to, "order.*")
	sink.Parallelism.Threshold = 1
	sink.Retry.Initial, sink.Retry.Max = 50*time.Millisecond, time.Second
	sink.Breaker = forwarder.Breaker{Off: true} // the consumer is back soon, so keep trying
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

// newSink returns a sink for the Kafka topic, if KAFKA_BROKERS is set, or for the consumer's URL. A
// webhook is signed with each secret, and one valid signature is enough for the consumer.
func newSink(url string, secrets []string, env func(string) string) (sinks.Sink, error) {
	if brokers := env("KAFKA_BROKERS"); brokers != "" {
		return kafka.New(sinks.Instance{Name: "consumer"}, kafka.Config{Brokers: strings.Split(brokers, ","), Topic: topic(env)})
	}
	return httpsink.New(sinks.Instance{Name: "consumer"}, httpsink.Config{URL: url, Secrets: secrets, Timeout: 5 * time.Second})
}

func topic(env func(string) string) string { return cmp.Or(env("KAFKA_TOPIC"), "orders") }

// openPayments opens the consumer's database and creates its tables: the payments, and the
// outbox's, which include the inbox.
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

// forge sends the consumer an order with an invalid signature, and returns the status of the response.
func forge(ctx context.Context, url string) (string, error) {
	order := `{"id": "forged", "type": "order.placed", "version": 1, "payload": {"order": "o-666", "customer": "mallory"}}`
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(order))
	if err != nil {
		return "", err
	}
	request.Header.Set("webhook-id", "forged")
	request.Header.Set("webhook-timestamp", strconv.FormatInt(time.Now().Unix(), 10))
	request.Header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(make([]byte, 32)))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusUnauthorized {
		err = errors.New("the consumer accepted a forged order")
	}
	return response.Status, errors.Join(err, response.Body.Close())
}

// check returns an error unless each order is paid exactly once.
func check(db *sql.DB) error {
	var paid, payments int
	err := db.QueryRow(`SELECT count(DISTINCT customer_order), count(*) FROM payments`).Scan(&paid, &payments)
	if err == nil && (paid != orders || payments != orders) {
		err = fmt.Errorf("%d of %d orders are paid, with %d payments", paid, orders, payments)
	}
	return err
}
