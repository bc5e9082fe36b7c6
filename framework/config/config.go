// Package config loads waybill.yaml in a program of your own, and makes the configuration
// of a forwarder from it:
//
//	c, err := config.Load(config.Source{File: "waybill.yaml", Environ: os.Environ()}, config.Options{Kinds: kinds})
//	…
//	f, err := forwarder.New(c.ForwarderConfig(store))
//
// Environment variables override keys of the file, and flags override both. [Options] adds
// what only Go values can express, such as sink kinds and notification types. Package
// [database] opens the store. The error of [Load] has all mistakes, with file and line.
//
// The structs of this package, and those of [forwarder.Config] and [forwarder.Sink] in it, are
// the reference of the file. Field tags have the key ("yaml"), the allowed values ("enum") and
// what is secret ("secret"): see [sinks.NewKind]. The first paragraph of a field's comment is its
// description.
//
// [database]: https://pkg.go.dev/github.com/waybill-go/waybill/framework/config/database
package config

//go:generate go test -count 1 -run ^TestTheCommentsOfSettingsAreRecorded$ . -update

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/source/kafka"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/sinks"
)

// Config is the whole file. A key that the user left out is the zero value; the package that
// uses the value applies the default.
type Config struct {
	// Address of the outbox's database: postgres://user:password@host:port/name or the key=value
	// form of libpq, mysql://user:password@host:port/name, or sqlite:path. For failover, name
	// several hosts:
	// postgres://user:password@/name?host=db1,db2&port=5432,5432&target_session_attrs=read-write.
	// Required, unless databases or fleet.query is set.
	Database Database `yaml:"database" secret:"password"`
	// Instead of database, the addresses of several databases by name. One forwarder delivers from
	// all of them to the same sinks, and adds the name to each notification as the metadata
	// database. Select a schema of PostgreSQL with search_path, as in
	// postgres://app@db/shop?search_path=tenant1.
	Databases map[string]Database `yaml:"databases" secret:"password"`
	Fleet     Fleet               `yaml:"fleet"`
	Outbox    Outbox              `yaml:"outbox"`
	// The log to read instead of the outbox's table, for a second stage behind a forwarder that
	// writes an outbox to Kafka. The database then keeps only cursors, leases and parked deliveries,
	// in tables with a prefix that no outbox uses.
	Log       Log       `yaml:"source"`
	Forwarder Forwarder `yaml:"forwarder"`
	// Sinks by name. A name has up to 63 letters, digits, dots, dashes and underscores, and begins
	// with a letter or digit.
	Sinks map[string]Sink `yaml:"sinks"`
	// The sinks for each type (order.placed), for all types with a prefix (order.*), or for all
	// types (*): a list of sink names, or of mappings with the keys below for a condition or another
	// payload.
	Routes route.Routes `yaml:"routes"`

	// Contracts of notification types, by the type's name.
	Types map[string]Type `yaml:"types"`

	// Notifications that are published by the clock, by name. Of all forwarders with this schedule,
	// one publishes each tick, once.
	Schedules map[string]Schedule `yaml:"schedules"`

	// Alerts of the outbox's own troubles, which it publishes as notifications of the types
	// waybill.alert.raised and waybill.alert.cleared: of all forwarders with them, one publishes each.
	Alerts settings.Alerts `yaml:"alerts"`

	// Encryption of private values.
	Privacy Privacy `yaml:"privacy"`

	// The dashboard, metrics and probes of waybill forward, over HTTP.
	Observe settings.Observe `yaml:"observe"`

	private   privacy.Config // made of Privacy
	only      []string       // the sinks of --sink; empty for all
	files     schemaFiles
	contracts func() (*contract.Set, error)
	source    Source
	options   Options
	loader    *loader // knows where each value came from
}

// Outbox has the names and the settings of the tables.
type Outbox struct {
	// Prefix of all table names. On PostgreSQL it may include their schema, as in billing.outbox.
	// Default outbox.
	Prefix string `yaml:"prefix"`
	// How many lanes each sink has, which is how many forwarders can share its work: 1 to 1024. On
	// SQLite one of them does all the work. A new number takes effect when a forwarder with it
	// starts. Default 1.
	Lanes int `yaml:"lanes" zero:"refused"`
	// Type of the payload column that migrate creates: json, or bytea (on MySQL a LONGBLOB) for
	// binary serializers. SQLite stores both. Default json.
	Payload Payload `yaml:"payload" enum:"json,bytea"`
	// Keep the receipt of each delivery in a table. Default false.
	Receipts bool `yaml:"receipts"`
	// What a forwarder on MySQL or MariaDB does about the missing rows of rolled-back transactions
	// if its user lacks the privilege PROCESS. void fills a gap of 5 minutes with an empty row, so
	// that a statement that would still insert there fails. Default: the privilege is required.
	WithoutProcess WithoutProcess `yaml:"without_process" enum:"void"`
	// How long rows stay in the log after they occurred, and receipts after their delivery. Rows
	// that a sink has not settled stay longer. 0 keeps everything forever. Default 72h.
	//
	// A pointer, as below, because 0 differs from a key that is left out.
	Retention *time.Duration `yaml:"retention"`
	// How long the inbox keeps the ids of handled notifications. It must be at least as long as a
	// sink that uses the inbox may retry a delivery. 0 keeps them forever. Default 720h, or 0 if
	// retention is 0.
	InboxRetention *time.Duration `yaml:"inbox_retention"`
}

// Log is a log outside of the database, which are topics of Apache Kafka. The zero value means the
// outbox's own table.
type Log struct {
	Kafka *kafka.Config `yaml:"kafka"`
}

// WithoutProcess is a substitute for the privilege PROCESS on MySQL and MariaDB.
type WithoutProcess string

// WithoutProcessVoid is the value of outbox.without_process; see package mysql.
const WithoutProcessVoid WithoutProcess = "void"

// Payload is the type of the payload column. SQLite ignores it.
type Payload string

// The values of outbox.payload.
const (
	PayloadJSON  Payload = "json"
	PayloadBytes Payload = "bytea"
)

// Forwarder has the forwarder's settings; see [forwarder.Config].
type Forwarder struct {
	forwarder.Config `yaml:",inline"`
	// Let PostgreSQL's NOTIFY wake the forwarder, on one more connection to the same address. Set it
	// to false behind a transaction pooler, where only polling works. Default true; PostgreSQL only.
	Listen *bool `yaml:"listen"`
}

// Sink is a sink with the settings of its deliveries. Load builds its Sink.Sink from Kind and
// With.
type Sink struct {
	// Kind of the sink. Required.
	Kind string `yaml:"kind"`
	// Settings of the kind.
	With           With `yaml:"with"`
	forwarder.Sink `yaml:",inline"`

	// settings is the kind's own struct, which Load decoded from With.
	settings any
	// contents are digests of the files that settings name, at the time of Load.
	contents map[string]string
}

// With has the settings of a kind, undecoded.
type With struct{ node *yaml.Node }

// Table returns the routes, checked and compiled; nil if there are none.
func (c *Config) Table() (*route.Table, error) {
	if len(c.Routes) == 0 {
		return nil, nil
	}
	routes := maps.Clone(c.routing())
	if sink := c.Webhooks(); sink != "" { // as the forwarder does; the sink may not be built
		routes[webhooks.Type] = route.To(sink)
	}
	return route.New(routes, slices.Collect(maps.Keys(c.Sinks)), c.options.Types, c.others()...)
}

// Webhooks returns the name of the sink of kind webhooks; "" if there is none.
func (c *Config) Webhooks() string {
	for name, sink := range c.Sinks {
		if sink.Kind == webhooks.KindName { // one at most
			return name
		}
	}
	return ""
}

// routing returns the routes with those of the alerts.
func (c *Config) routing() route.Routes { return c.Alerts.Routes(c.Routes) }

// others returns the types of routes that the program need not have registered.
func (c *Config) others() []string {
	others := slices.Sorted(maps.Keys(c.Types))
	if c.Alerts.On() {
		others = append(others, notification.AlertRaised, notification.AlertCleared)
	}
	return others
}

// ForwarderConfig returns the configuration for [forwarder.New]. Package database opens the
// store that the configuration names.
func (c *Config) ForwarderConfig(s forwarder.Store) forwarder.Config {
	its := c.Forwarder.Config
	its.Store, its.Fleet, its.Routes, its.Sinks = s, c.HasFleet(), c.routing(), c.destinations()
	its.Lanes, its.Only = c.Outbox.Lanes, c.only
	its.Retention, its.InboxRetention = retention(c.Outbox.Retention), retention(c.Outbox.InboxRetention)
	its.Check, its.Others, its.Privacy = c.checker(), c.others(), c.private
	its.Types, its.Observer, its.TracerProvider, its.Logger = c.options.Types, c.options.Observer, c.options.TracerProvider, c.options.Logger
	return its
}

// Supplied returns [sinks.ErrAbsent] if this program lacks the code of a sink of kind go or
// function that it would forward to. Such a forwarder would hold the sink's lanes without
// delivering. If the file has such sinks and Options.Types is nil, the error covers all its
// sinks, because routes also match aliases, which only the types know.
func (c *Config) Supplied() error {
	var mine, all []string
	for _, name := range slices.Sorted(maps.Keys(c.Sinks)) {
		if _, absent := c.Sinks[name].Sink.Sink.(sinks.Absent); absent {
			all = append(all, name)
			if len(c.only) == 0 || slices.Contains(c.only, name) {
				mine = append(mine, name)
			}
		}
	}
	switch {
	case len(mine) > 0:
		return fmt.Errorf("%w: %s; run the program that does, or name the sinks to work on with --sink", sinks.ErrAbsent, strings.Join(mine, ", "))
	case len(all) > 0 && c.options.Types == nil:
		return fmt.Errorf("%w: %s; only the program that does knows all types and their aliases: run that one, with --sink %s",
			sinks.ErrAbsent, strings.Join(all, ", "), strings.Join(c.only, ","))
	}
	return nil
}

// retention returns a retention as the engine takes it, where 0 means the default.
func retention(given *time.Duration) time.Duration {
	switch {
	case given == nil:
		return 0
	case *given == 0:
		return forwarder.KeepForever
	}
	return *given
}

// RoutesTo lists the patterns whose types go to a sink, with their conditions, in
// alphabetical order.
func (c *Config) RoutesTo(sink string) []string {
	patterns, routes := []string{}, c.routing()
	for _, pattern := range slices.Sorted(maps.Keys(routes)) {
		for _, r := range routes[pattern] {
			switch {
			case r.Sink != sink:
			case r.When != "":
				patterns = append(patterns, pattern+" when "+r.When)
			default:
				patterns = append(patterns, pattern)
			}
		}
	}
	return patterns
}
