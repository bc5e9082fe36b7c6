package program

import (
	"context"

	"github.com/waybill-go/waybill/framework/alerts"
	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/config/database"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/observe"
	outboxes "github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/schedule"
	"github.com/waybill-go/waybill/registry"
)

// The providers of wire.go: each makes one thing of others.

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

func provideTables(c *config.Config) config.Tables { return c.Tables() }

func provideStore(ctx context.Context, d *database.Database) (database.Store, error) {
	return d.Store(ctx)
}

// provideAwaitedStore waits until the database can be reached.
func provideAwaitedStore(ctx context.Context, d *database.Database, options config.Options) (database.Store, error) {
	return d.Await(ctx, options.Logger)
}

func provideEngine(c *config.Config, d *database.Database, s database.Store, options config.Options) (*engine, error) {
	f, err := forwarder.New(c.ForwarderConfig(s))
	if err != nil {
		return nil, err
	}
	// The configuration has the whole notification of a schedule, so no types are registered.
	publisher, err := outboxes.New(registry.New(), s, outboxes.Config{Wake: f.Wake, Published: options.Published})
	if err != nil {
		return nil, err
	}
	scheduler, err := schedule.New(schedule.Config{Store: s, DB: d.DB(), Publisher: publisher, Logger: options.Logger}, c.Timetable()...)
	if err != nil {
		return nil, err
	}
	e := &engine{Forwarder: f, scheduler: scheduler, config: c, store: s, target: observe.Target{Forwarder: f, Store: s, DB: d.DB()}}
	if c.Alerts.On() {
		judge, err := newJudge(c, f, "", s, options)
		if err != nil {
			return nil, err
		}
		e.judge = judge.Run
	}
	return e, nil
}

// newJudge makes the judge of a database; its name is "" outside of a fleet.
func newJudge(c *config.Config, f *forwarder.Forwarder, name string, s database.Store, options config.Options) (*alerts.Judge, error) {
	publisher, err := outboxes.New(registry.New(), s, outboxes.Config{Wake: f.Wake, Published: options.Published})
	if err != nil {
		return nil, err
	}
	log := options.Logger
	if name != "" {
		log = log.With("database", name)
	}
	return alerts.New(alerts.Config{
		Settings: c.Alerts, Store: s, DB: s.Handle(), Publisher: publisher, Forwarder: f, Database: name, Webhooks: c.Webhooks(), Logger: log,
	})
}
