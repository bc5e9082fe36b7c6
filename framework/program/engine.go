package program

import (
	"context"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/config/database"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/observe"
	outboxes "github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/schedule"
	"github.com/waybill-go/waybill/registry"
)

// loadForwarding is config.Load for forwarding, which needs the code of every sink of kind go
// and function.
func loadForwarding(source config.Source, options config.Options) (*config.Config, error) {
	c, err := config.Load(source, options)
	if err != nil {
		return nil, err
	}
	if err := c.Supplied(); err != nil {
		return nil, &command.UsageError{Err: err}
	}
	return c, nil
}

// newEngine makes an engine from a configuration. It waits for the database until ctx
// is done. The returned function closes the database.
func newEngine(ctx context.Context, c *config.Config, options config.Options) (*engine, func(), error) {
	return engineOf(c, options, func(d *database.Database) (database.Store, error) { return d.Await(ctx, options.Logger) })
}

// newReplacement is newEngine without waiting for the database, since the previous engine
// still runs.
func newReplacement(ctx context.Context, c *config.Config, options config.Options) (*engine, func(), error) {
	return engineOf(c, options, func(d *database.Database) (database.Store, error) { return d.Store(ctx) })
}

func engineOf(c *config.Config, options config.Options, open func(*database.Database) (database.Store, error)) (_ *engine, cleanup func(), err error) {
	d, closeAll, err := database.Open(c.Tables())
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	s, err := open(d)
	if err != nil {
		return nil, nil, err
	}
	f, err := forwarder.New(c.ForwarderConfig(s))
	if err != nil {
		return nil, nil, err
	}
	// The configuration has the whole notification of a schedule, so no types are registered.
	publisher, err := outboxes.New(registry.New(), s, outboxes.Config{Wake: f.Wake, Published: options.Published})
	if err != nil {
		return nil, nil, err
	}
	scheduler, err := schedule.New(schedule.Config{Store: s, DB: d.DB(), Publisher: publisher, Logger: options.Logger}, c.Timetable()...)
	if err != nil {
		return nil, nil, err
	}
	return &engine{Forwarder: f, scheduler: scheduler, config: c, store: s, target: observe.Target{Forwarder: f, Store: s, DB: d.DB()}}, closeAll, nil
}
