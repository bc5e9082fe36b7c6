package main

import (
	"errors"
	"net/http"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/publisher"
)

const (
	stream  = "SHOP"
	subject = "shop.>"
)

// duplicates is how long the stream remembers ids. It should be longer than a
// forwarder is ever away between a delivery and the checkpoint that records it; the
// ids are in the server's memory.
const duplicates = 10 * time.Minute

// newSink publishes to the stream, to a subject made of the notification's type.
func newSink(url string) (sinks.Sink, error) {
	return publisher.New(
		publisher.Lazy(func() (message.Publisher, error) { return connect(url) }),
		publisher.Config{Topic: "shop.{{.Type}}"},
	)
}

// connect makes the publisher, and the stream if it is missing.
func connect(url string) (message.Publisher, error) {
	connection, err := nats.Connect(url, options...)
	if err != nil {
		return nil, err
	}
	if err := declare(connection); err != nil {
		connection.Close()
		return nil, err
	}
	p, err := wmnats.NewPublisherWithNatsConn(connection, wmnats.PublisherPublishConfig{
		Marshaler:         headers{},
		SubjectCalculator: wmnats.DefaultSubjectCalculator,
		JetStream: wmnats.JetStreamConfig{
			TrackMsgId: true, // Nats-Msg-Id is the notification's id
			// Publish returns when the stream has stored the message, or after this time.
			PublishOptions: []nats.PubOpt{nats.AckWait(5 * time.Second)},
		},
	}, watermill.NopLogger{})
	if err != nil {
		connection.Close()
		return nil, err
	}
	return classed{p}, nil
}

var options = []nats.Option{
	nats.Name("waybill example"),
	nats.MaxReconnects(-1), // default: gives up after 60, and stays closed
	nats.ReconnectWait(250 * time.Millisecond),
	// What is published without a connection fails at once. By default it is kept and
	// sent after the next one is made, when it has long been reported as failed.
	nats.ReconnectBufSize(-1),
	nats.PingInterval(10 * time.Second), // a silent broker is gone after three of these
}

// declare makes the stream. One that is there with these settings is no error.
func declare(connection *nats.Conn) error {
	js, err := connection.JetStream()
	if err != nil {
		return err
	}
	_, err = js.AddStream(&nats.StreamConfig{
		Name:       stream,
		Subjects:   []string{subject},
		Storage:    nats.FileStorage,
		Duplicates: duplicates,
		Discard:    nats.DiscardNew, // a full stream refuses new messages and keeps old ones
		Replicas:   1,               // 3 in a cluster
	})
	return err
}

// classed gives errors the classes that the engine acts on.
type classed struct{ message.Publisher }

func (p classed) Publish(topic string, messages ...*message.Message) error {
	err := p.Publisher.Publish(topic, messages...)
	if err == nil {
		return nil
	}
	var refused *nats.APIError
	switch {
	case is(err, nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrBadHeaderMsg):
		return sinks.Permanent(err)
	case is(err, nats.ErrReconnectBufExceeded, nats.ErrConnectionClosed, nats.ErrConnectionReconnecting,
		nats.ErrDisconnected, nats.ErrNoServers, nats.ErrTimeout, nats.ErrNoStreamResponse):
		return sinks.Unavailable(err) // no answer: no server, or no stream
	case errors.As(err, &refused) && refused.Code == http.StatusServiceUnavailable:
		return sinks.Unavailable(err) // the stream cannot store anything now
	}
	return err
}

func is(err error, any ...error) bool {
	for _, one := range any {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}
