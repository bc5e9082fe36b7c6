package program

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/observe"
	"github.com/waybill-go/waybill/framework/program/internal/otlp"
)

// observed loads the configuration, and makes the monitor, which counts where it is served or
// its metrics are sent.
func (f *forward) observed() (*config.Config, error) {
	f.monitor = observe.New(observe.Config{Version: readBuild(f.name).Version, Logger: f.logger})
	var err error
	if f.push, err = otlp.Wanted(f.environ, f.logger); err != nil {
		return nil, &usageError{err}
	}
	// Mistakes are those that loading all finds too.
	if o, _ := config.LoadObserve(f.source); o.Address != "" || f.push {
		f.options.Observer = observe.Join(f.options.Observer, f.monitor)
	}
	return loadForwarding(f.source, f.options)
}

// serve begins to serve metrics and probes, if the configuration says where, and to send metrics, if
// the environment says so. After ctx the program is not ready, and still answers until end is called.
func (f *forward) serve(ctx context.Context, c *config.Config) (end func(), err error) {
	var ends []func()
	end = func() {
		for _, each := range slices.Backward(ends) {
			each()
		}
	}
	stopping := context.AfterFunc(ctx, func() {
		f.monitor.Stop()
		notify(daemon.SdNotifyStopping)
	})
	ends = append(ends, func() { stopping() })
	if c.Observe.Address == "" && !f.push {
		return end, nil
	}
	f.monitor.Expect(slices.Collect(maps.Keys(c.Sinks))...)
	var work sync.WaitGroup
	ends = append(ends, work.Wait)
	if c.Observe.Address != "" {
		listener, err := net.Listen("tcp", c.Observe.Address)
		if err != nil {
			end()
			return nil, fmt.Errorf("observe.address: %w", err)
		}
		f.logger.Info("serving metrics and probes", "address", listener.Addr().String())
		server := &http.Server{Handler: f.monitor, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
		work.Go(func() { _ = server.Serve(listener) }) // until it is closed
		ends = append(ends, func() { _ = server.Close() })
	}
	sampling, stop := context.WithCancel(context.WithoutCancel(ctx))
	work.Go(func() { f.monitor.Run(sampling) })
	ends = append(ends, stop)
	if f.push {
		finish, err := otlp.Push(ctx, f.monitor.Gatherer(), otlp.Service{Name: f.name, Version: readBuild(f.name).Version}, f.logger)
		if err != nil {
			end()
			return nil, err
		}
		f.logger.Info("sending metrics by OTLP")
		ends = append(ends, finish)
	}
	return end, nil
}

// watchdog tells systemd twice in each of its intervals that the program is alive, while it is.
func (f *forward) watchdog(ctx context.Context) (end func()) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil || interval <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // also while deliveries in flight end
	var work sync.WaitGroup
	work.Go(func() {
		ticks := time.NewTicker(interval / 2)
		defer ticks.Stop()
		for {
			if err := f.monitor.Live(); err == nil {
				notify(daemon.SdNotifyWatchdog)
			} else {
				f.logger.Error("the program is stuck, and systemd is not told that it is alive", "error", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
		}
	})
	return func() { cancel(); work.Wait() }
}

// notify tells systemd, if it started this program, how the program does. Nothing depends on
// whether it hears.
func notify(lines ...string) {
	_, _ = daemon.SdNotify(false, strings.Join(lines, "\n"))
}
