package forwarder

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/sinks"
)

// Resident is a sink that works with the outbox itself, as package webhooks does, whose endpoints
// stand beside the log, and which publishes its own notification for each of them. No other sink
// gets a database.
type Resident interface {
	sinks.Sink

	// OwnTypes returns the types that the sink publishes for itself, which begin with "_". The
	// forwarder routes them to the sink.
	OwnTypes() []string

	// Defaults fills settings that are unset, before those of all sinks.
	Defaults(s Sink) Sink

	// Reside gives the sink an outbox before the first delivery from it, and returns the hooks of
	// its deliveries, which are called after Sink.Hooks. database is the name of one of several
	// databases, which their envelopes have as metadata; "" is Config.Store. It queries nothing,
	// and may be called again. It fails if the store lacks what the sink needs.
	//
	// private are the keys of private values, for what the sink publishes with parts of a notification; nil: there is
	// no master key.
	Reside(database string, s Store, private *privacy.Keyring) (Hooks, error)
}

// Table returns the compiled routes, with those of the types that sinks publish for themselves.
func (c Config) Table() (*route.Table, error) {
	all := make(route.Routes, len(c.Routes))
	maps.Copy(all, c.Routes)
	for _, name := range slices.Sorted(maps.Keys(c.Sinks)) {
		if resident, ok := c.Sinks[name].Sink.(Resident); ok {
			for _, typ := range resident.OwnTypes() {
				all[typ] = append(slices.Clip(all[typ]), route.To(name)...)
			}
		}
	}
	return route.New(all, slices.Collect(maps.Keys(c.Sinks)), c.Types, c.Others...)
}

// checkOwnTypes reports types that two sinks publish for themselves: each would get those of the other.
func checkOwnTypes(p *settings.Problems, to map[string]Sink) {
	of := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(to)) {
		if resident, ok := to[name].Sink.(Resident); ok {
			for _, typ := range resident.OwnTypes() {
				p.Require(of[typ] == "", "sinks.%s: it does the same as sinks.%s, and an outbox can have only one sink that does: keep one", name, of[typ])
				of[typ] = name
			}
		}
	}
}

// checkResidents reports the sinks that cannot work with a store.
func checkResidents(p *settings.Problems, to map[string]Sink, database string, s Store) {
	for _, name := range slices.Sorted(maps.Keys(to)) {
		if resident, ok := to[name].Sink.(Resident); ok && s != nil {
			if _, err := resident.Reside(database, s, nil); err != nil {
				p.Add(fmt.Errorf("sinks.%s: %w", name, err))
			}
		}
	}
}

// hooks returns the hooks of a sink's deliveries from an outbox: those of its configuration, and those of a
// resident, which get deliveries as the sink did.
func (o *outbox) hooks(a *activeSink) Hooks {
	all := a.Hooks
	if resident, ok := a.Sink.Sink.(Resident); ok {
		var private *privacy.Keyring
		if o.forwarder.config.Privacy.Master != nil {
			private = o.forwarder.keyringOf(o.name)
		}
		if own, err := resident.Reside(o.name, o.given, private); err == nil { // checked before
			if own.Delivered != nil && !a.path.Plain() {
				own.Delivered = shaped(a.path, own.Delivered)
			}
			if keys := o.forwarder.keyringOf(o.name); own.Delivered != nil && len(o.forwarder.config.Privacy.Rules) > 0 && keys != nil {
				own.Delivered = sealed(keys, own.Delivered)
			}
			all = Hooks{Delivered: both(all.Delivered, own.Delivered), Parked: both(all.Parked, own.Parked), Dead: both(all.Dead, own.Dead)}
		}
	}
	return all
}

// both returns a hook that calls two, or the one that is set.
func both[T Delivered | event.Parked](first, second func(context.Context, *sql.Tx, []T) error) func(context.Context, *sql.Tx, []T) error {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(ctx context.Context, tx *sql.Tx, all []T) error {
		if err := first(ctx, tx, all); err != nil {
			return err
		}
		return second(ctx, tx, all)
	}
}

// shaped lets a hook see deliveries with the payload that the routes picked for the sink. One that the
// routes no longer lead to the sink is left out.
func shaped(path *route.Path, hook func(context.Context, *sql.Tx, []Delivered) error) func(context.Context, *sql.Tx, []Delivered) error {
	return func(ctx context.Context, tx *sql.Tx, delivered []Delivered) error {
		seen := make([]Delivered, 0, len(delivered))
		for _, d := range delivered {
			e, err := path.Shape(ctx, d.Envelope)
			if err != nil {
				return err
			}
			if e != nil {
				changed := *d.Delivery
				changed.Envelope = e
				seen = append(seen, Delivered{Delivery: &changed, Receipt: d.Receipt})
			}
		}
		if len(seen) == 0 {
			return nil
		}
		return hook(ctx, tx, seen)
	}
}
