package bench

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
)

// forwarding is a running forwarder.
type forwarding struct {
	*forwarder.Forwarder
	// ctx is done when the forwarder has ended, on its own or by stop.
	ctx   context.Context
	halt  context.CancelFunc
	ended chan error
}

// forward starts a forwarder that delivers everything to each of these sinks, with the settings of
// the user's configuration, if any.
func (b *bench) forward(ctx context.Context, to map[string]forwarder.Sink, logger *slog.Logger) (*forwarding, error) {
	var c forwarder.Config
	if b.config.Configured != nil {
		c = b.config.Configured.ForwarderConfig(b.database.Store)
	}
	c.Store, c.Sinks, c.Logger = b.database.Store, to, logger
	c.Routes = route.Routes{"*": route.To(slices.Collect(maps.Keys(to))...)}
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
