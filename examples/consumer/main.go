// Consumer is two processes. A shop publishes orders, and sends them as signed webhooks; a
// second process takes them and pays for each, in a database of its own. Behind the commit
// of the third payment, and before its answer, the consumer is killed. The shop sends the
// order again, and the consumer, started once more, knows it by its id: it notes the id in
// the transaction in which it pays.
//
// From then on the consumer has another secret, without a word to the shop, which signs with
// both. A forged order is refused.
//
//	go run ./examples/consumer
//	KAFKA_BROKERS=localhost:9092 KAFKA_TOPIC=orders go run ./examples/consumer
//
// With KAFKA_BROKERS the orders travel through a topic, which must exist. The consumer keeps no
// offsets: it reads the topic from the beginning each time, and pays for what is new. A
// real one has a consumer group, and reads again what it had not acknowledged.
//
// It ends with code 1 if an order is not paid exactly once, or the forged one is taken.
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

// Key keeps a customer's orders in their order.
func (o OrderPlaced) Key() string { return o.Customer }

const orders = 5

// Variables that make this program the consumer, and say where it works, and with which secret.
const (
	variableDatabase = "CONSUMER_DATABASE"
	variableAddress  = "CONSUMER_ADDRESS"
	variableSecret   = "CONSUMER_SECRET"
)

func main() {
	slog.SetLogLoggerLevel(slog.LevelError + 1) // the output shows all
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
	secrets := []string{newSecret(), newSecret()} // the consumer's, before and after its death
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
	answer := ""
	if err == nil && env("KAFKA_BROKERS") == "" {
		answer, err = forge(ctx, "http://"+address)
	}
	stop()
	if err := errors.Join(err, <-supervised, <-shopped); err != nil {
		return err
	}
	if answer != "" {
		fmt.Fprintln(out, "a forged order:", answer)
	}
	return check(payments)
}

// newSecret makes what the shop and the consumer share. No one else may know it.
func newSecret() string {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	return "whsec_" + base64.StdEncoding.EncodeToString(secret)
}

// supervise starts the consumer again whenever it dies, with the next secret if there is one.
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

// shop publishes the orders, and sends them until ctx ends.
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

// newSink sends to the topic, or to the consumer's URL, signed with each secret: any of them is
// enough for who verifies.
func newSink(url string, secrets []string, env func(string) string) (sinks.Sink, error) {
	if brokers := env("KAFKA_BROKERS"); brokers != "" {
		return kafka.New(sinks.Instance{Name: "consumer"}, kafka.Config{Brokers: strings.Split(brokers, ","), Topic: topic(env)})
	}
	return httpsink.New(sinks.Instance{Name: "consumer"}, httpsink.Config{URL: url, Secrets: secrets, Timeout: 5 * time.Second})
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

// forge sends the consumer an order that the shop knows nothing of, and returns the answer.
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
		err = errors.New("a forged order is taken")
	}
	return response.Status, errors.Join(err, response.Body.Close())
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
