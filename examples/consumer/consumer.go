package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/framework/inbox"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
)

// consume is the second process: it pays for orders until it is killed.
func consume(ctx context.Context, out io.Writer, env func(string) string) error {
	db, err := sqlite.OpenDB(env(variableDatabase))
	if err != nil {
		return err
	}
	defer db.Close()
	store, err := sqlite.Open(ctx, db, sqlite.Config{})
	if err != nil {
		return err
	}
	config := inbox.Config{Inbox: inbox.New(store), DB: db, Consumer: "payments"}
	if brokers := env("KAFKA_BROKERS"); brokers != "" {
		return consumeTopic(ctx, out, config, strings.Split(brokers, ","), topic(env))
	}
	return serveWebhooks(out, config, env(variableAddress), env(variableSecret))
}

// pay stores a payment, in the transaction in which the inbox stores the notification's id.
func pay(ctx context.Context, tx *sql.Tx, out io.Writer, order string) error {
	if _, err := tx.ExecContext(ctx, `INSERT INTO payments VALUES (?)`, order); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, "paid", order)
	return err
}

// dieAfterThird kills this process after the commit of the third payment. A file marks that it has
// done so, so the process that is started again survives.
func dieAfterThird(ctx context.Context, db *sql.DB, out io.Writer) {
	var paid int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM payments`).Scan(&paid); err != nil || paid != 3 {
		return
	}
	marker := os.Getenv(variableDatabase) + ".died"
	if file, err := os.OpenFile(marker, os.O_CREATE|os.O_EXCL, 0o600); err == nil {
		_ = file.Close()
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Kill()
			select {} // until the process is dead
		}
	}
	fmt.Fprintln(out, "delivered again: o-3 is already paid")
}

// serveWebhooks verifies the signature of each request, and handles each notification once.
func serveWebhooks(out io.Writer, config inbox.Config, address, secret string) error {
	receiver := webhook.Receiver{Secrets: []string{secret}}
	once, err := inbox.Handler(config, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n struct {
			Payload OrderPlaced `json:"payload"`
		}
		err := json.NewDecoder(r.Body).Decode(&n)
		if err == nil {
			err = pay(r.Context(), inbox.Tx[*sql.Tx](r.Context()), out, n.Payload.Order)
		}
		if err != nil {
			http.Error(w, "not now", http.StatusInternalServerError)
		}
	}))
	if err != nil {
		return err
	}
	dying := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		once.ServeHTTP(w, r)
		dieAfterThird(r.Context(), config.DB, out)
	})
	handler, err := receiver.Verify(dying)
	if err != nil {
		return err
	}
	return (&http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: 5 * time.Second}).ListenAndServe()
}

// consumeTopic handles each Kafka record once, in a Watermill router.
func consumeTopic(ctx context.Context, out io.Writer, config inbox.Config, brokers []string, topic string) error {
	c := wmkafka.DefaultSaramaSubscriberConfig()
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	subscriber, errSubscriber := wmkafka.NewSubscriber(wmkafka.SubscriberConfig{
		Brokers: brokers, Unmarshaler: wmkafka.DefaultMarshaler{}, OverwriteSaramaConfig: c,
	}, watermill.NopLogger{})
	router, errRouter := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	once, errInbox := inbox.Middleware(config)
	if err := errors.Join(errSubscriber, errRouter, errInbox); err != nil {
		return err
	}
	dying := func(next message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			defer dieAfterThird(m.Context(), config.DB, out)
			return next(m)
		}
	}
	router.AddMiddleware(dying, once)
	router.AddConsumerHandler("payments", topic, subscriber, func(m *message.Message) error {
		var n OrderPlaced
		if err := json.Unmarshal(m.Payload, &n); err != nil {
			return err
		}
		return pay(m.Context(), inbox.Tx[*sql.Tx](m.Context()), out, n.Order)
	})
	return router.Run(ctx)
}
