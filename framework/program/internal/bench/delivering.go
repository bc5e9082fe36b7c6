package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/benchmarks/result"
	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/program/internal/connected"
	"github.com/waybill-go/waybill/framework/route"
)

// delivering is a forwarder that delivers one batch, with its destinations.
type delivering struct {
	*forwarding
	bench   *bench
	began   time.Time
	parts   []*part
	watches map[string]*watch // of the parts, by sink
}

// part is one destination of a delivering.
type part struct {
	destination
	*connected.Receiver
	watch    *watch
	arrivals tally // the watch's receipts if the receiver does not count
}

// errStalled means that there are no more deliveries.
var errStalled = errors.New("deliveries have stopped")

// deliver opens destinations and starts a forwarder that delivers what is in the log. look, if set,
// is called with the watch of each destination, to set what else it measures.
func (b *bench) deliver(ctx context.Context, named batch, to []destination, look func(*watch)) (*delivering, error) {
	d := &delivering{bench: b, watches: make(map[string]*watch, len(to))}
	outlets := make(map[string]forwarder.Sink, len(to))
	for _, one := range to {
		p, err := b.open(ctx, named, one)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("sink %s: %w", one.name, err), d.close())
		}
		if look != nil {
			look(p.watch)
		}
		d.parts, d.watches[one.name] = append(d.parts, p), p.watch
		outlet := one.settings
		outlet.Sink = p.Sink
		outlets[one.name] = outlet
	}
	d.began = time.Now()
	var err error
	if d.forwarding, err = b.forward(ctx, outlets, d, b.loggerFor(to)); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (b *bench) open(ctx context.Context, named batch, to destination) (*part, error) {
	p := &part{destination: to, watch: &watch{receipts: newTally(named)}}
	p.arrivals = p.watch.receipts
	if to.counted != countedReceipts {
		p.arrivals = newTally(named)
	}
	took := func(id string) { p.arrivals.take(id) }
	if b.tamper != nil {
		took = b.tamper(took)
	}
	var err error
	p.Receiver, err = to.open(ctx, opening{folder: b.folder, delay: to.delay, threshold: to.settings.Parallelism.Most(), took: took})
	return p, err
}

// await waits until each sink has returned receipts for n notifications, and returns the time since
// the start. It returns errStalled if there are no more deliveries, and no error if the forwarder has
// ended: end returns why.
func (d *delivering) await(n int) (took time.Duration, err error) {
	for _, p := range d.due() {
		d.bench.progress.Watch(func() string {
			return fmt.Sprintf("%s of %s delivered to %s", result.Count(p.watch.receipts.Count()), result.Count(int64(n)), p.name)
		})
		if !p.watch.receipts.await(d.ctx, n, d.bench.stalled) && d.ctx.Err() == nil {
			err := fmt.Errorf("%w: %s accepted %s of %s notifications, and then none for %s", errStalled,
				p.name, result.Count(p.watch.receipts.Count()), result.Count(int64(n)), d.bench.stalled)
			if problem := p.watch.problem.Load(); problem != nil {
				err = fmt.Errorf("%w; one failed: %w", err, *problem)
			}
			return 0, err
		}
	}
	return time.Since(d.began), nil
}

// due returns the destinations that should get everything.
func (d *delivering) due() []*part {
	var list []*part
	for _, p := range d.parts {
		if !p.fails() {
			list = append(list, p)
		}
	}
	return list
}

// end stops the forwarder, compares what the receivers got with the first n notifications of the
// batch, and closes the receivers.
func (d *delivering) end(ctx context.Context, n int) (checks []result.Check, err error) {
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.stop(); err != nil {
		return nil, err
	}
	for _, p := range d.due() {
		if err := d.catchUp(ctx, p, n); err != nil {
			return nil, err
		}
		check := p.arrivals.Check(n)
		check.Sink, check.Counted = p.name, p.counted
		checks = append(checks, check)
	}
	return checks, nil
}

// catchUp waits until a receiver has counted everything; it counts at least 10,000 per second.
func (d *delivering) catchUp(ctx context.Context, p *part, n int) error {
	if p.CatchUp == nil {
		return nil
	}
	d.bench.progress.Now("counting what arrived at " + p.name)
	ctx, cancel := context.WithTimeout(ctx, d.bench.stalled+time.Duration(n)*time.Second/10_000)
	defer cancel()
	return p.CatchUp(ctx)
}

func (d *delivering) close() error {
	var errs []error
	for _, p := range d.parts {
		if p.Close != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(errs...)
}

// forwarding is a running forwarder.
type forwarding struct {
	*forwarder.Forwarder
	// ctx is done when the forwarder has ended, on its own or by stop.
	ctx   context.Context
	halt  context.CancelFunc
	ended chan error
}

// forward starts a forwarder that delivers what the bench publishes to each of these sinks, with the settings of
// the user's configuration, if any.
func (b *bench) forward(ctx context.Context, to map[string]forwarder.Sink, observer event.Observer, logger *slog.Logger) (*forwarding, error) {
	var c forwarder.Config
	if b.config.Configured != nil {
		c = b.config.Configured.ForwarderConfig(b.database.Store)
	}
	c.Store, c.Sinks, c.Observer, c.Logger = b.database.Store, to, observer, logger
	c.Routes = route.Routes{b.config.sample().Type: route.To(slices.Collect(maps.Keys(to))...)}
	c.Unrouted = forwarder.UnroutedIgnore // nothing else is published, and looking for it takes time
	f, err := forwarder.New(c)
	if err != nil {
		return nil, err
	}
	running, halt := context.WithCancel(ctx)
	alive, died := context.WithCancel(running)
	ended := make(chan error, 1)
	go func() {
		ended <- f.Run(running)
		died()
	}()
	return &forwarding{Forwarder: f, ctx: alive, halt: halt, ended: ended}, nil
}

// loggerFor returns a logger for errors only, and for nothing if a destination fails on purpose: the
// final checks find other problems.
func (b *bench) loggerFor(to []destination) *slog.Logger {
	if slices.ContainsFunc(to, destination.fails) {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(b.progress, &slog.HandlerOptions{Level: slog.LevelError}))
}

// stop stops the forwarder and waits for it. Call it once.
func (f *forwarding) stop() error {
	f.halt()
	return <-f.ended
}
