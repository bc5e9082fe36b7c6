package bench

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/program/internal/receiver"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/mailserver"
	"github.com/waybill-go/waybill/sinks/httpsink"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
	"github.com/waybill-go/waybill/sinks/kafka"
)

// destination is a sink, and how it is opened and counted.
type destination struct {
	name string
	// kind is the kind of a configured sink that gets real deliveries.
	kind string
	// counted is where arrivals are counted: see Check. It is empty for a destination that fails on
	// purpose.
	counted  string
	settings forwarder.Sink // without the sink
	delay    time.Duration  // of a built-in receiver
	open     func(context.Context, opening) (*opened, error)
}

// title returns the name, with the kind if the name does not contain it.
func (d destination) title() string {
	if d.kind == "" {
		return d.name
	}
	return fmt.Sprintf("%s (%s)", d.name, d.kind)
}

func (d destination) fails() bool { return d.counted == "" }

// opening has the arguments for opening a destination, for one run.
type opening struct {
	folder    string
	delay     time.Duration
	threshold int
	// took is called, concurrently, with the id of each notification that a receiver has accepted.
	took func(id string)
}

// opened is a destination for one run.
type opened struct {
	sink sinks.Sink
	// catchUp returns once all deliveries of the sink are counted; nil if they are counted at once.
	// It is called when the sink is closed.
	catchUp func(context.Context) error
	close   func() error // nil where there is nothing to close
}

// The names of the built-in receivers.
const (
	noOp      = "noop"
	kafkaName = "kafka"
	httpName  = "http"
	smtpName  = "smtp"
	unlimited = 256 // the threshold where a receiver has no limit of its own
)

// The values of Check.Counted.
const (
	countedReceived = "received"
	countedConsumed = "consumed"
	countedReceipts = "receipts"
	countedRows     = "rows"
)

// builtIn has the receivers inside the process.
var builtIn = map[string]destination{
	noOp:      {name: noOp, counted: countedReceived, settings: threshold(unlimited), open: openNoOp},
	kafkaName: {name: kafkaName, counted: countedConsumed, settings: threshold(forwarder.DefaultThreshold), open: openKafka},
	httpName:  {name: httpName, counted: countedReceived, settings: threshold(forwarder.DefaultThreshold), open: openHTTP},
	smtpName:  {name: smtpName, counted: countedReceived, settings: threshold(mailserver.DefaultConnections), open: openSMTP},
}

// standIns has the receivers that replace configured sinks, by kind; noOp replaces all others.
var standIns = map[string]string{"kafka": kafkaName, "http": httpName, "email": smtpName}

func threshold(n int) forwarder.Sink {
	return forwarder.Sink{Parallelism: forwarder.Parallelism{Threshold: n}}
}

func receiverNames() []string { return slices.Sorted(maps.Keys(builtIn)) }

// destinations returns the destinations that the user wants, or else replacements of the configured
// sinks, or else all built-in receivers.
func (c Config) destinations() []destination {
	if chosen := c.chosen(); len(chosen) > 0 {
		return chosen
	}
	var list []destination
	if c.Configured != nil {
		for _, name := range slices.Sorted(maps.Keys(c.Configured.Sinks)) {
			list = append(list, c.standIn(name))
		}
		return list
	}
	for _, name := range []string{noOp, kafkaName, httpName, smtpName} {
		list = append(list, c.tuned(builtIn[name]))
	}
	return list
}

// chosenOrNoOp returns the destinations of scenarios that do not compare sinks.
func (c Config) chosenOrNoOp() []destination {
	if chosen := c.chosen(); len(chosen) > 0 {
		return chosen
	}
	return []destination{c.tuned(builtIn[noOp])}
}

// chosen returns the destinations that the user names.
func (c Config) chosen() []destination {
	var list []destination
	for _, name := range c.Receivers {
		list = append(list, c.tuned(builtIn[name]))
	}
	for _, name := range c.Sinks {
		d := destination{name: name, kind: c.Configured.Sinks[name].Kind, counted: countedReceipts, settings: c.configured(name)}
		d.open = func(context.Context, opening) (*opened, error) { return openReal(c, name) }
		list = append(list, c.tuned(d))
	}
	return list
}

// standIn returns the built-in receiver that replaces a configured sink, with the engine's settings
// of that sink.
func (c Config) standIn(name string) destination {
	kind, known := standIns[c.Configured.Sinks[name].Kind]
	if !known {
		kind = noOp
	}
	d := builtIn[kind]
	d.name = fmt.Sprintf("%s (built-in %s)", name, kind)
	d.settings = c.configured(name)
	return c.tuned(d)
}

// configured returns the forwarder's settings of a configured sink.
func (c Config) configured(name string) forwarder.Sink {
	s := c.Configured.ForwarderConfig(nil).Sinks[name].WithDefaults()
	s.Sink = nil
	return s
}

// tuned returns a destination with the user's threshold and delay.
func (c Config) tuned(d destination) destination {
	d.delay = c.Delay
	if c.Threshold > 0 {
		d.settings.Parallelism = forwarder.Parallelism{Threshold: c.Threshold, Above: d.settings.Parallelism.Above}
	}
	return d
}

// openReal builds a configured sink.
func openReal(c Config, name string) (*opened, error) {
	built, err := c.Build()
	if err != nil {
		return nil, err
	}
	return &opened{sink: built.Sinks[name].Sink.Sink}, nil
}

func openNoOp(_ context.Context, o opening) (*opened, error) {
	return &opened{sink: sinks.Func(func(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
		if o.delay > 0 {
			time.Sleep(o.delay)
		}
		o.took(d.ID)
		return "", nil
	})}, nil
}

func openKafka(ctx context.Context, o opening) (*opened, error) {
	folder, err := os.MkdirTemp(o.folder, "kafka-")
	if err != nil {
		return nil, err
	}
	remove := func() error { return os.RemoveAll(folder) }
	broker, err := receiver.StartBroker(folder, o.delay)
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	topic, err := receiver.OpenTopic(ctx, broker.Addresses, "waybill-bench")
	if err != nil {
		broker.Close()
		return nil, errors.Join(err, remove())
	}
	closeAll := func() error {
		err := topic.Close()
		broker.Close()
		return errors.Join(err, remove())
	}
	sink, err := kafka.New(sinks.Instance{Name: kafkaName}, kafka.Config{Brokers: broker.Addresses, Topic: topic.Name})
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	// The topic is consumed after everything is produced, so that this does not disturb the
	// measurement.
	catchUp := func(ctx context.Context) error {
		topic.Consume(o.took)
		return topic.CatchUp(ctx)
	}
	return &opened{sink: sink, catchUp: catchUp, close: closeAll}, nil
}

func openHTTP(_ context.Context, o opening) (*opened, error) {
	webhook, err := receiver.OpenWebhook(func(answer http.ResponseWriter, request *http.Request) {
		if _, err := io.Copy(io.Discard, request.Body); err != nil {
			return // cut off: the sink did not get an answer and comes again
		}
		time.Sleep(o.delay)
		o.took(request.Header.Get(webhook.HeaderID))
		answer.WriteHeader(http.StatusAccepted)
	})
	if err != nil {
		return nil, err
	}
	sink, err := httpsink.New(sinks.Instance{Name: httpName}, httpsink.Config{URL: webhook.URL})
	if err != nil {
		return nil, errors.Join(err, webhook.Close())
	}
	return &opened{sink: sink, close: webhook.Close}, nil
}

//go:embed mail
var mailTemplates embed.FS

func openSMTP(_ context.Context, o opening) (*opened, error) {
	mailbox, err := receiver.OpenMailbox(func(id string) {
		time.Sleep(o.delay)
		o.took(id)
	})
	if err != nil {
		return nil, err
	}
	sink, err := email.New(sinks.Instance{Name: smtpName}, email.Config{
		SMTP: mailbox.URL, From: "Waybill <bench@example.com>", FS: mailTemplates, Templates: "mail",
		Connections: min(o.threshold, mailserver.MaxConnections),
	})
	if err != nil {
		return nil, errors.Join(err, mailbox.Close())
	}
	return &opened{sink: sink, close: mailbox.Close}, nil
}
