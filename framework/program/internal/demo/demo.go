// Package demo is `waybill demo`: a shop with an outbox, a forwarder, and the receivers of its sinks,
// all in one process.
//
// The shop places orders in real transactions, and some of them roll back. The forwarder delivers the
// committed notifications to Kafka, to an HTTP endpoint and by email. At the end the demo compares
// what the receivers got with the ledger of the shop: nothing may be missing, nothing that was rolled
// back may have arrived, and each key must have kept its order.
//
// The files in the order in which to read them: notifications.go, shop.go, ledger.go, demo.go,
// receivers.go, arrivals.go, report.go, dashboard.go; then config.go and display.go for the command line.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/program/internal/connected"
	"github.com/waybill-go/waybill/framework/program/internal/scratch"
	"github.com/waybill-go/waybill/registry"
)

// ErrFailed means that the receivers did not get what the shop committed. The report has the details.
var ErrFailed = errors.New("the demo failed")

// retry is short, so that someone who watches need not wait.
var retry = forwarder.Retry{Initial: 50 * time.Millisecond}

const (
	// lookPause is the interval at which the progress is shown.
	lookPause = 100 * time.Millisecond
	// catchUpTime is how long the receivers may take to count what was delivered.
	catchUpTime = 30 * time.Second
	// stopTimeout is how long a sink may take for its last delivery after the drain has timed out.
	stopTimeout = 5 * time.Second
)

// demo is one run of the command.
type demo struct {
	config    Config
	folder    string // for all files; removed at the end
	outbox    *scratch.Outbox
	ledger    *ledger
	shop      *shop
	receivers map[string]*connected.Receiver // by sink
	got       map[string]*arrivals
	engine    *forwarder.Forwarder
	display   display
	patience  time.Duration // how long deliveries may take after the last order
	closed    atomic.Bool   // whether the shop is closed
	hide      func()        // closes the dashboard; nil if there is none
}

// Run runs the demo and prints its report on stdout. When ctx is done, the shop closes early; what it
// has committed is still delivered and checked. Run returns ErrFailed if the check fails.
func Run(ctx context.Context, c Config, stdout, stderr io.Writer) error {
	if err := c.Validate(); err != nil {
		return err
	}
	d := newDemo(c, stdout, stderr)
	report, err := d.run(ctx)
	d.display.close()
	if err = errors.Join(err, d.close()); err != nil {
		return err
	}
	return report.conclude(c.JSON, stdout)
}

func newDemo(c Config, stdout, stderr io.Writer) *demo {
	return &demo{
		config: c, ledger: newLedger(), display: newDisplay(c, stdout, stderr), patience: 30 * time.Second,
		receivers: make(map[string]*connected.Receiver), got: make(map[string]*arrivals),
	}
}

func (d *demo) run(ctx context.Context) (Report, error) {
	if err := d.open(ctx); err != nil {
		return Report{}, err
	}
	return d.play(ctx)
}

// play runs the open parts, and compares what arrived with the ledger.
func (d *demo) play(ctx context.Context) (Report, error) {
	stopped := make(chan struct{})
	shown := d.showProgress(stopped)
	open, err := d.trade(ctx)
	close(stopped)
	<-shown
	if err != nil {
		return Report{}, err
	}
	return newReport(d.ledger, d.got, open), nil
}

// open opens all parts.
func (d *demo) open(ctx context.Context) (err error) {
	if d.folder, err = os.MkdirTemp("", "waybill-demo-"); err != nil {
		return err
	}
	if d.outbox, err = scratch.OpenSQLite(ctx, filepath.Join(d.folder, "shop.db"), config.Outbox{Prefix: prefix}); err != nil {
		return err
	}
	for name, to := range destinations {
		d.got[name] = newArrivals()
		if d.receivers[name], err = to.open(ctx, d.folder, d.got[name]); err != nil {
			delete(d.receivers, name)
			return fmt.Errorf("sink %s: %w", name, err)
		}
	}
	types, err := newTypes()
	if err != nil {
		return err
	}
	if d.engine, err = d.newForwarder(types); err != nil {
		return err
	}
	publisher, err := outbox.New(types, d.outbox.Store, outbox.Config{Wake: d.engine.Wake})
	if err != nil {
		return err
	}
	d.shop = &shop{db: d.outbox.DB, publisher: publisher, ledger: d.ledger}
	if err := d.shop.open(ctx); err != nil || d.config.Observe == "" {
		return err
	}
	d.hide, err = d.openDashboard(types)
	return err
}

// newForwarder returns the forwarder with the three sinks. It logs only errors, since refused attempts
// and retries are part of the demo.
func (d *demo) newForwarder(types *registry.Registry) (*forwarder.Forwarder, error) {
	c := forwarder.Config{
		Store:           d.outbox.Store,
		Routes:          routes,
		Types:           types,
		Sinks:           make(map[string]forwarder.Sink, len(d.receivers)),
		ShutdownTimeout: stopTimeout,
		Logger:          slog.New(slog.NewTextHandler(d.display, &slog.HandlerOptions{Level: slog.LevelError})),
	}
	for name, r := range d.receivers {
		c.Sinks[name] = forwarder.Sink{Sink: r.Sink, Parallelism: forwarder.Parallelism{Threshold: destinations[name].threshold}, Retry: retry}
	}
	return forwarder.New(c)
}

// trade runs the shop and the forwarder, and stops when everything that the shop committed is
// delivered, or the time for that is over. It returns how long the shop was open.
func (d *demo) trade(ctx context.Context) (open time.Duration, err error) {
	forwarding, stopForwarding := context.WithCancel(context.WithoutCancel(ctx))
	defer stopForwarding()
	forwarded := make(chan error, 1)
	shopping, closeShop := context.WithCancel(ctx)
	defer closeShop()
	if d.config.For > 0 {
		defer time.AfterFunc(d.config.For, closeShop).Stop()
	}
	go func() {
		err := d.engine.Run(forwarding)
		stopForwarding() // after an error there is nothing to wait for
		closeShop()
		forwarded <- err
	}()

	began := time.Now()
	err = d.shop.trade(shopping, d.config.Rate)
	open = time.Since(began)
	d.closed.Store(true)
	if err == nil {
		d.drain(forwarding)
	}
	stopForwarding()
	if err := errors.Join(err, <-forwarded); err != nil {
		return open, err
	}
	return open, d.catchUp(context.WithoutCancel(ctx))
}

// drain waits until the receivers have got everything that the shop committed, for at most d.patience.
func (d *demo) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	for !d.drained() && sleepUntil(ctx, time.Now().Add(lookPause/10)) {
	}
}

func (d *demo) drained() bool {
	for name, got := range d.got {
		if got.distinct() < d.ledger.owed(name) {
			return false
		}
	}
	return true
}

// catchUp waits until all receivers have counted what was delivered.
func (d *demo) catchUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, catchUpTime)
	defer cancel()
	var errs []error
	for _, r := range d.receivers {
		if r.CatchUp != nil {
			errs = append(errs, r.CatchUp(ctx))
		}
	}
	return errors.Join(errs...)
}

// showProgress updates the display until stopped is closed. It closes shown after the last update.
func (d *demo) showProgress(stopped <-chan struct{}) (shown <-chan struct{}) {
	done := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(done)
		ticker := time.NewTicker(lookPause)
		defer ticker.Stop()
		for {
			d.display.show(d.progress(time.Since(began)))
			select {
			case <-stopped:
				d.display.show(d.progress(time.Since(began)))
				return
			case <-ticker.C:
			}
		}
	}()
	return done
}

func (d *demo) progress(elapsed time.Duration) progress {
	p := progress{elapsed: elapsed}
	if !d.closed.Load() {
		p.left = max(d.config.For-elapsed, 0)
		p.endless = d.config.For == 0
	}
	p.committed, p.rolledBack = d.ledger.count()
	for _, name := range slices.Sorted(maps.Keys(d.got)) {
		p.sinks = append(p.sinks, sinkProgress{name: name, delivered: d.got[name].distinct(), owed: d.ledger.owed(name)})
	}
	return p
}

// close stops and removes all parts.
func (d *demo) close() error {
	var errs []error
	if d.hide != nil {
		d.hide()
	}
	for _, r := range d.receivers {
		errs = append(errs, r.Close())
	}
	if d.outbox != nil {
		errs = append(errs, d.outbox.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(d.folder))...)
}
