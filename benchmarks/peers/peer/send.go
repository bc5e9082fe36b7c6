package peer

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/IBM/sarama"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/benchmarks/peers/receiver"
	"github.com/waybill-go/waybill/benchmarks/peers/workload"
)

// item is an order to deliver.
type item struct {
	id      int64 // in the contender's table
	key     string
	payload []byte
}

// sender delivers for contenders that have no publisher for a destination. It is safe for concurrent
// use.
type sender interface {
	// send delivers all items before it returns.
	send(ctx context.Context, items ...item) error
	close() error
}

func newSender(to receiver.Destination) (sender, error) {
	switch to.Kind {
	case receiver.Kafka:
		producer, err := sarama.NewSyncProducer(to.Brokers, saramaConfig())
		return &kafkaSender{producer, to.Topic}, err
	case receiver.HTTP:
		return &httpSender{newClient(to.InFlight), to}, nil
	}
	return nowhereSender(to), nil
}

// relayRows calls a home-made relay with the database and a sender.
func relayRows(dsn string, to receiver.Destination, relay func(db *sql.DB, out sender) error) error {
	return withDB(dsn, func(db *sql.DB) error {
		out, err := newSender(to)
		if err != nil {
			return err
		}
		return errors.Join(relay(db, out), out.close())
	})
}

// saramaConfig returns the configuration of all contenders that use sarama directly: acks=all,
// partitions by key, five requests in flight.
func saramaConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V2_8_0_0
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	return c
}

// SaramaText describes saramaConfig in a Relay's Configuration.
const SaramaText = "sarama SyncProducer, acks=all, five requests in flight"

// newClient returns an HTTP client that opens at most that many connections and keeps them alive.
func newClient(connections int) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy, transport.DisableCompression = nil, true // as in Waybill's sink
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost, transport.MaxConnsPerHost = connections, connections, connections
	return &http.Client{Transport: transport}
}

type nowhereSender receiver.Destination

func (s nowhereSender) send(_ context.Context, items ...item) error {
	for _, i := range items {
		s.Take(i.payload)
	}
	return nil
}
func (s nowhereSender) close() error { return nil }

type kafkaSender struct {
	producer sarama.SyncProducer
	topic    string
}

func (s *kafkaSender) send(_ context.Context, items ...item) error {
	messages := make([]*sarama.ProducerMessage, len(items))
	for i, item := range items {
		messages[i] = &sarama.ProducerMessage{Topic: s.topic, Key: sarama.StringEncoder(item.key), Value: sarama.ByteEncoder(item.payload)}
	}
	if len(messages) == 1 {
		_, _, err := s.producer.SendMessage(messages[0])
		return err
	}
	return s.producer.SendMessages(messages)
}
func (s *kafkaSender) close() error { return s.producer.Close() }

type httpSender struct {
	client *http.Client
	to     receiver.Destination
}

func (s *httpSender) send(ctx context.Context, items ...item) error {
	if len(items) == 1 {
		return post(ctx, s.client, s.to.URL, items[0])
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(s.to.InFlight)
	for _, i := range items {
		group.Go(func() error { return post(ctx, s.client, s.to.URL, i) })
	}
	return group.Wait()
}
func (s *httpSender) close() error { s.client.CloseIdleConnections(); return nil }

// HTTPText describes the headers of post in a Relay's Configuration.
const HTTPText = "HTTP with as many and as long headers as Waybill's sink sends"

// headers returns headers like those of Waybill's sink for the same order, with names and values of the same
// lengths, so that contenders are compared and not what they tell the receiver.
func headers(i item) http.Header {
	id := fmt.Sprintf("%0*d", workload.IDDigits, i.id)
	return http.Header{
		"Content-Type":        {"application/json"},
		"User-Agent":          {"outbox/v0.0.0"},
		"Idempotency-Key":     {id},
		"Message-Id":          {id},
		"Message-Type":        {workload.Type},
		"Message-Version":     {"1"},
		"Message-Attempt":     {"1"},
		"Message-Key":         {i.key},
		"Message-Occurred-On": {time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")},
	}
}

// post sends one request, and returns an error if the status is not 200.
func post(ctx context.Context, client *http.Client, url string, i item) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(i.payload))
	if err != nil {
		return err
	}
	request.Header = headers(i)
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("POST %s: %s", url, response.Status)
	}
	return nil
}
