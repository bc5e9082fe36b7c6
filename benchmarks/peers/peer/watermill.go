package peer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
	watermillhttp "github.com/ThreeDotsLabs/watermill-http/v2/pkg/http"
	watermillkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/benchmarks/peers/receiver"
	"github.com/waybill-go/waybill/benchmarks/peers/workload"
)

// Watermill is the outbox of Watermill's forwarder component. Its publisher wraps each message in an
// envelope with its topic, and appends it with the SQL publisher.
type Watermill struct{}

const (
	watermillTopic = "outbox"
	watermillFill  = 1000 // rows of an INSERT
)

// Name returns the name of the outbox.
func (Watermill) Name() string { return "watermill" }

// Migrate creates Watermill's tables.
func (Watermill) Migrate(ctx context.Context, dsn string) error {
	var statements []string
	schema, offsets := watermillAdapters(0)
	for _, q := range slices.Concat(schema.SchemaInitializingQueries(watermillTopic), offsets.SchemaInitializingQueries(watermillTopic)) {
		statements = append(statements, q.Query)
	}
	return execute(ctx, dsn, append(statements, createBusiness)...)
}

// Fill publishes many orders in each transaction.
func (Watermill) Fill(ctx context.Context, dsn string, n int) error {
	return withDB(dsn, func(db *sql.DB) error {
		for first := 0; first < n; first += watermillFill {
			var messages []*message.Message
			for number := first; number < min(first+watermillFill, n); number++ {
				messages = append(messages, watermillMessage(workload.New(number)))
			}
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if err := publishWatermill(tx, messages...); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			if err := tx.Commit(); err != nil {
				return err
			}
		}
		return nil
	})
}

func watermillAdapters(batch int) (watermillsql.SchemaAdapter, watermillsql.OffsetsAdapter) {
	return watermillsql.DefaultPostgreSQLSchema{SubscribeBatchSize: batch}, watermillsql.DefaultPostgreSQLOffsetsAdapter{}
}

// keyMetadata is the metadata with a message's key, as in Watermill's examples.
const keyMetadata = "partition_key"

func watermillMessage(o workload.Order) *message.Message {
	m := message.NewMessage(o.ID, o.JSON())
	m.Metadata.Set(keyMetadata, o.Customer)
	return m
}

func publishWatermill(tx *sql.Tx, messages ...*message.Message) error {
	schema, _ := watermillAdapters(0)
	publisher, err := watermillsql.NewPublisher(tx, watermillsql.PublisherConfig{SchemaAdapter: schema}, nil)
	if err != nil {
		return err
	}
	return forwarder.NewPublisher(publisher, forwarder.PublisherConfig{ForwarderTopic: watermillTopic}).Publish("orders", messages...)
}

// Pending counts the messages after the acknowledged offset.
func (Watermill) Pending(ctx context.Context, dsn string) (int, error) {
	return count(ctx, dsn, `SELECT count(*) FROM watermill_outbox m WHERE NOT EXISTS (SELECT FROM watermill_offsets_outbox o
		WHERE (m.transaction_id, m."offset") <= (o.last_processed_transaction_id, o.offset_acked))`)
}

// Open returns a publisher that creates the forwarder component's publisher in each transaction.
func (Watermill) Open(_ context.Context, dsn string, clients int) (Publisher, error) {
	t, err := openTransactions(dsn, clients)
	if err != nil {
		return nil, err
	}
	t.append = func(_ context.Context, tx *sql.Tx, o workload.Order) error {
		return publishWatermill(tx, watermillMessage(o))
	}
	return t, nil
}

// WatermillForwarder has the settings of Watermill's forwarder component. Zero fields mean
// Watermill's defaults.
type WatermillForwarder struct {
	BatchSize    int
	PollInterval time.Duration
}

// Relay returns the forwarder as a contender.
func (w WatermillForwarder) Relay(how, configuration string) Relay {
	return Relay{Name: "Watermill forwarder (" + how + ")", Configuration: configuration, Outbox: Watermill{}, Deliver: w.deliver}
}

func (w WatermillForwarder) deliver(ctx context.Context, dsn string, to receiver.Destination) error {
	return withDB(dsn, func(db *sql.DB) error {
		publisher, err := watermillPublisher(to)
		if err != nil {
			return err
		}
		schema, offsets := watermillAdapters(w.BatchSize)
		receiving, err := watermillsql.NewSubscriber(db, watermillsql.SubscriberConfig{
			SchemaAdapter: schema, OffsetsAdapter: offsets, PollInterval: w.PollInterval,
		}, nil)
		if err != nil {
			return err
		}
		subscriber := &closedOnce{Subscriber: receiving, close: sync.OnceValue(receiving.Close)}
		f, err := forwarder.NewForwarder(subscriber, publisher, nil, forwarder.Config{ForwarderTopic: watermillTopic})
		if err != nil {
			return err
		}
		// Close lets the subscriber settle acknowledged messages; the end of Run's context would roll
		// them back.
		stopped := context.AfterFunc(ctx, func() { _ = f.Close() }) // Run returns the same error
		defer stopped()
		return errors.Join(f.Run(context.WithoutCancel(ctx)), subscriber.Close(), publisher.Close())
	})
}

// closedOnce is a subscriber that may be closed several times at once. Watermill's panics then, and its
// router closes the subscriber too.
type closedOnce struct {
	message.Subscriber
	close func() error
}

func (s *closedOnce) Close() error { return s.close() }

func watermillPublisher(to receiver.Destination) (message.Publisher, error) {
	switch to.Kind {
	case receiver.Kafka:
		config := watermillkafka.DefaultSaramaSyncPublisherConfig()
		config.Producer.RequiredAcks = sarama.WaitForAll
		return watermillkafka.NewPublisher(watermillkafka.PublisherConfig{
			Brokers: to.Brokers, OverwriteSaramaConfig: config,
			Marshaler: watermillkafka.NewWithPartitioningMarshaler(func(_ string, m *message.Message) (string, error) {
				return m.Metadata.Get(keyMetadata), nil
			}),
		}, nil)
	case receiver.HTTP:
		return watermillhttp.NewPublisher(watermillhttp.PublisherConfig{
			MarshalMessageFunc: func(_ string, m *message.Message) (*http.Request, error) {
				return watermillhttp.DefaultMarshalMessageFunc(to.URL, m)
			},
			Client: newClient(to.InFlight),
		}, nil)
	case receiver.Nowhere:
		return nowherePublisher(to.Take), nil
	}
	return nil, fmt.Errorf("no publisher for %q", to.Kind)
}

// nowherePublisher calls a function with each payload.
type nowherePublisher func(payload []byte)

func (take nowherePublisher) Publish(_ string, messages ...*message.Message) error {
	for _, m := range messages {
		take(m.Payload)
	}
	return nil
}
func (nowherePublisher) Close() error { return nil }
