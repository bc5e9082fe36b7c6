// Package connected has sinks that are connected to receivers inside the process, for the bench and the demo.
package connected

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/waybill-go/waybill/benchmarks/receiver"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/httpsink"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
	"github.com/waybill-go/waybill/sinks/kafka"
)

// Receiver is a receiver inside the process, and a sink that delivers to it.
type Receiver struct {
	Sink sinks.Sink
	// CatchUp returns once all deliveries of the sink are counted; nil if they are counted at once. It is
	// called when the sink is closed, so there are no deliveries in flight.
	CatchUp func(context.Context) error
	// Close stops the receiver; nil if there is nothing to stop.
	Close func() error
}

// OpenKafka starts a broker, which stores its data below folder and answers after a delay, and a kafka sink to
// a topic of it whose name begins with prefix. took is called with the id of each record: at once, or, so that
// this does not disturb a measurement, only in CatchUp.
func OpenKafka(ctx context.Context, folder, prefix string, delay time.Duration, atOnce bool, took func(id string)) (_ *Receiver, err error) {
	closes := []func() error{}
	closeAll := func() error {
		var errs []error
		for i := len(closes) - 1; i >= 0; i-- {
			errs = append(errs, closes[i]())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll())
		}
	}()
	folder, err = os.MkdirTemp(folder, "kafka-")
	if err != nil {
		return nil, err
	}
	closes = append(closes, func() error { return os.RemoveAll(folder) })
	broker, err := receiver.StartBroker(folder, delay)
	if err != nil {
		return nil, err
	}
	closes = append(closes, func() error { broker.Close(); return nil })
	topic, err := receiver.OpenTopic(ctx, broker.Addresses, prefix)
	if err != nil {
		return nil, err
	}
	closes = append(closes, topic.Close)
	sink, err := kafka.New(sinks.Instance{Name: "kafka"}, kafka.Config{Brokers: broker.Addresses, Topic: topic.Name})
	if err != nil {
		return nil, err
	}
	consume := func() { topic.Consume(func(id string, _ []byte) { took(id) }) }
	if atOnce {
		consume()
		return &Receiver{Sink: sink, CatchUp: topic.CatchUp, Close: closeAll}, nil
	}
	catchUp := func(ctx context.Context) error {
		consume()
		return topic.CatchUp(ctx)
	}
	return &Receiver{Sink: sink, CatchUp: catchUp, Close: closeAll}, nil
}

// OpenHTTP starts an endpoint and an http sink to it. accept is called concurrently with the id and the number
// of the attempt of each request; what it refuses is answered with 503.
func OpenHTTP(accept func(id, attempt string) bool) (*Receiver, error) {
	endpoint, err := receiver.OpenWebhook(func(answer http.ResponseWriter, request *http.Request) {
		if _, err := io.Copy(io.Discard, request.Body); err != nil {
			return // cut off: the sink did not get an answer and comes again
		}
		if accept(request.Header.Get(webhook.HeaderID), request.Header.Get(webhook.HeaderAttempt)) {
			answer.WriteHeader(http.StatusAccepted)
		} else {
			answer.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	if err != nil {
		return nil, err
	}
	sink, err := httpsink.New(sinks.Instance{Name: "http"}, httpsink.Config{URL: endpoint.URL})
	if err != nil {
		return nil, errors.Join(err, endpoint.Close())
	}
	return &Receiver{Sink: sink, Close: endpoint.Close}, nil
}

// OpenMail starts a mail server and an email sink to it, with these templates and settings. took is called
// concurrently with the id of each mail, before it is accepted.
func OpenMail(c email.Config, took func(id string)) (*Receiver, error) {
	mailbox, err := receiver.OpenMailbox(took)
	if err != nil {
		return nil, err
	}
	c.SMTP = mailbox.URL
	sink, err := email.New(sinks.Instance{Name: "email"}, c)
	if err != nil {
		return nil, errors.Join(err, mailbox.Close())
	}
	return &Receiver{Sink: sink, Close: mailbox.Close}, nil
}
