package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/config/database"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/forwarder/fleet"
	"github.com/waybill-go/waybill/framework/observe"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/store"
)

// newFleet makes the engine of several databases. It waits for none of them, nor for the control database.
func newFleet(ctx context.Context, c *config.Config, options config.Options) (*engine, func(), error) {
	f, err := forwarder.New(c.ForwarderConfig(nil))
	if err != nil {
		return nil, nil, err
	}
	judges := &judges{open: make(map[string]*judged), log: options.Logger}
	its := c.Fleet.WithDefaults()
	pools := database.NewPools(its.Connections - its.Listeners())
	settings := fleet.Config{
		Forwarder: f, Databases: config.FleetOf(c.Databases), Lease: c.Forwarder.Lease, Sleep: its.SleepAfter(), Connections: c.Forwarder.Connections,
		Listeners: its.Listeners(), Awake: its.Awake(), Looks: its.Connections - its.Listeners(), Logger: options.Logger,
		Identity: fmt.Sprintf("prefix %s, sinks %s", cmp.Or(c.Outbox.Prefix, store.DefaultPrefix), strings.Join(slices.Sorted(maps.Keys(c.Sinks)), ", ")),
		Open: func(ctx context.Context, d fleet.Database) (fleet.Outbox, error) {
			address, err := config.ParseDatabase(d.Address)
			if err != nil {
				return fleet.Outbox{}, err
			}
			s, release, err := pools.Store(ctx, c.TablesIn(address))
			if err == nil && c.Alerts.On() {
				judge, err := newJudge(c, f, d.Name, s, options)
				if err != nil {
					release()
					return fleet.Outbox{}, err
				}
				release = judges.add(d.Name, judge, release)
			}
			return fleet.Outbox{Store: s, Close: release, Connects: address.Dialect() != config.SQLite}, err
		},
	}
	cleanup := func() {}
	if c.Fleet.Control.Dialect() != "" {
		d, end, err := database.Open(c.Fleet.ControlTables())
		if err != nil {
			return nil, nil, fmt.Errorf("fleet.control: %w", err)
		}
		cleanup = end
		if settings.Control, err = controlOpener(ctx, d); err != nil {
			cleanup()
			return nil, nil, fmt.Errorf("fleet.control: %w", err)
		}
		if c.Fleet.Query != "" {
			settings.Databases = command.Listing{DB: d.DB(), Text: c.Fleet.Query}
		}
	}
	all, err := fleet.New(settings)
	if err != nil {
		cleanup()
		return nil, nil, err
	}
	e := &engine{Forwarder: f, fleet: all, config: c}
	if c.Alerts.On() {
		e.judge = func(ctx context.Context) error { return judges.run(ctx, all.Databases) }
	}
	e.target = observe.Target{Forwarder: f, Databases: e.sampled}
	return e, cleanup, nil
}

// controlOpener tries to open the control database, since a wrong address or missing tables are better reported
// at the start. One that is away is opened later.
func controlOpener(ctx context.Context, d *database.Database) (func(context.Context) (fleet.ControlStore, error), error) {
	open := func(ctx context.Context) (fleet.ControlStore, error) {
		s, err := d.Store(ctx)
		if errors.Is(err, store.ErrNotMigrated) {
			err = fmt.Errorf("%w (waybill migrate --in %s)", err, config.ControlName)
		}
		return s, err
	}
	bounded, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if _, err := open(bounded); err != nil && (ctx.Err() != nil || !d.IsTemporary(err)) {
		return nil, err
	}
	return open, nil
}

// sampled returns the databases of a fleet for the monitor.
func (e *engine) sampled() []observe.Database {
	var all []observe.Database
	for _, d := range e.fleet.Databases() {
		sampler, _ := d.Store.(store.Sampler)
		all = append(all, observe.Database{Name: d.Database, State: string(d.State), Rests: d.State == fleet.StateAsleep, Since: d.Since, Store: sampler})
	}
	return all
}
