package bench

import (
	"context"
	"embed"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/program/internal/connected"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/mailserver"
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
	open     func(context.Context, opening) (*connected.Receiver, error)
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
// sinks, or else all receivers inside the process.
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
	for _, name := range c.Sinks {
		d := builtIn[name]
		if c.Configured != nil {
			d = destination{name: name, kind: c.Configured.Sinks[name].Kind, counted: countedReceipts, settings: c.configured(name)}
			d.open = func(context.Context, opening) (*connected.Receiver, error) { return openReal(c, name) }
		}
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
	if len(c.Thresholds) > 0 {
		d.settings.Parallelism = forwarder.Parallelism{Threshold: c.Thresholds[0], Above: d.settings.Parallelism.Above}
	}
	return d
}

// openReal builds a configured sink.
func openReal(c Config, name string) (*connected.Receiver, error) {
	built, err := c.Build()
	if err != nil {
		return nil, err
	}
	return &connected.Receiver{Sink: built.Sinks[name].Sink.Sink}, nil
}

func openNoOp(_ context.Context, o opening) (*connected.Receiver, error) {
	return &connected.Receiver{Sink: sinks.Func(func(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
		if o.delay > 0 {
			time.Sleep(o.delay)
		}
		o.took(d.ID)
		return "", nil
	})}, nil
}

func openKafka(ctx context.Context, o opening) (*connected.Receiver, error) {
	return connected.OpenKafka(ctx, o.folder, "waybill-bench", o.delay, false, o.took)
}

func openHTTP(_ context.Context, o opening) (*connected.Receiver, error) {
	return connected.OpenHTTP(func(id, _ string) bool {
		time.Sleep(o.delay)
		o.took(id)
		return true
	})
}

//go:embed mail
var mailTemplates embed.FS

func openSMTP(_ context.Context, o opening) (*connected.Receiver, error) {
	settings := email.Config{From: "Waybill <bench@example.com>", FS: mailTemplates, Templates: "mail", Connections: min(o.threshold, mailserver.MaxConnections)}
	return connected.OpenMail(settings, func(id string) {
		time.Sleep(o.delay)
		o.took(id)
	})
}
