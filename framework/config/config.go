// Package config reads the configuration of the program waybill, for it and for programs
// and applications of one's own: one YAML file, environment variables over it, and flags
// over both. [Load] makes a forwarder's configuration of it, with what a program adds in
// Go: see [Options].
//
// Everything that is wrong is reported at once, with file and line, before
// anything starts. The structs of this package are the reference: their field
// tags give the keys ("yaml"), what they mean ("doc"), what there is to choose
// from ("enum") and what is not shown ("secret"); see [sinks.NewKind].
//
// The files in the order in which to read them: config.go, load.go, source.go,
// options.go, document.go, keys.go, decoder.go, expand.go, file.go, environment.go,
// check.go, observe.go, masks.go, schedules.go, standby.go, fleet.go, report.go, secrets.go, effective.go, contents.go, changes.go, show.go,
// reference.go, schema.go.
package config

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/source/kafka"
	"github.com/waybill-go/waybill/sinks"
)

// Config is the whole file. What the user left out is zero here; the
// package that uses the value has the default.
type Config struct {
	Database  Database            `yaml:"database" secret:"password" doc:"where the outbox is: postgres://user:password@host:port/name, a list of key=value as libpq takes it, mysql://user:password@host:port/name, or sqlite:path. For a failover: postgres://user:password@/name?host=db1,db2&port=5432,5432&target_session_attrs=read-write. Several stand in databases instead. Required"`
	Standby   Database            `yaml:"standby" secret:"password" doc:"a streaming standby of the database, for outbox.read_from: standby. It may name several hosts. Default: the standby among the hosts of database, if it names several"`
	Databases map[string]Database `yaml:"databases" secret:"password" doc:"in place of database: several, by name, with one forwarder, whose sinks deliver from all of them. The name travels with each notification as the metadata database. Schemas of one PostgreSQL are told apart by search_path, as in postgres://app@db/shop?search_path=tenant1"`
	Fleet     Fleet               `yaml:"fleet" doc:"how a forwarder works on several databases"`
	Outbox    Outbox              `yaml:"outbox" doc:"the tables"`
	Log       Log                 `yaml:"source" doc:"what is read in place of the outbox's own log, for a second stage behind one that writes an outbox to Kafka; the database keeps cursors, leases and what is parked, in tables of a prefix that no outbox has"`
	Forwarder Forwarder           `yaml:"forwarder" doc:"the engine that moves notifications from the outbox to the sinks"`
	Sinks     map[string]Sink     `yaml:"sinks" doc:"destinations by name: up to 63 letters, digits, dots, dashes and underscores, beginning with a letter or digit"`
	Routes    map[string][]Rule   `yaml:"routes" doc:"the sinks that get a type of notifications (order.placed), all types with a beginning (order.*), or all types (*): a list of names, or of what is below for a condition or another payload"`

	Schedules map[string]Schedule `yaml:"schedules" doc:"notifications by the clock, by name: of all processes that forward with this file one publishes each, once"`

	Observe Observe `yaml:"observe" doc:"the dashboard, metrics and probes of waybill forward, over HTTP"`

	only    []string // the sinks to work on; none for all
	source  Source
	options Options
	loader  *loader // which knows where everything came from
}

// Outbox names the tables and says how they are made.
type Outbox struct {
	Prefix   string   `yaml:"prefix" doc:"beginning of all table names; on PostgreSQL it may name their schema, as in billing.outbox. Default outbox"`
	Lanes    int      `yaml:"lanes" zero:"refused" doc:"into how many lanes each sink is cut, so that as many forwarders can share it; 1 to 1024, more than 1 not on SQLite. Another number cuts them again, and the forwarder that starts last decides. Default 1"`
	Payload  Payload  `yaml:"payload" enum:"json,bytea" doc:"type of the payload column that migrate makes, but on SQLite: json, or bytea for binary serializers, which is a LONGBLOB on MySQL. Default json"`
	ReadFrom ReadFrom `yaml:"read_from" enum:"primary,standby" doc:"where forwarders on PostgreSQL read the pages of the log: on the primary, or on a streaming standby, which takes load off the primary and adds the lag to the time until a delivery; pages that it does not have yet come from the primary. Default primary"`
	Receipts bool     `yaml:"receipts" doc:"archive each delivery's receipt in a table. Default false"`
	// WithoutProcess and Grace are for MySQL and MariaDB.
	WithoutProcess WithoutProcess `yaml:"without_process" enum:"void,grace" doc:"how a forwarder whose user lacks the privilege PROCESS on MySQL or MariaDB finds out that an offset was rolled back: void puts an empty row in its place after the grace time, and a statement that would store one there later fails; grace gives it up, and loses such a row. Default: neither, and the privilege is required"`
	Grace          time.Duration  `yaml:"grace" zero:"refused" doc:"how long a statement that publishes may take where without_process counts, at least 1s. Default 5m"`
	// Retention and InboxRetention are pointers since 0 is a wish of its own.
	Retention      *time.Duration `yaml:"retention" doc:"how long after they occurred rows stay in the log, and receipts after their delivery; rows that a sink has not settled stay longer. 0 keeps all for ever. Default 72h"`
	InboxRetention *time.Duration `yaml:"inbox_retention" doc:"how long the inbox keeps the ids of notifications that were handled, at least as long as a sink that notes ids may try a delivery again. 0 keeps all for ever. Default 720h, or 0 where retention is 0"`
}

// Log is a log outside of the database, if one is named.
type Log struct {
	Kafka *kafka.Config `yaml:"kafka" doc:"topics of Apache Kafka"`
}

// WithoutProcess is what stands in for the privilege PROCESS on MySQL and MariaDB.
type WithoutProcess string

// The ways to do without the privilege; see package mysql.
const (
	WithoutProcessVoid  WithoutProcess = "void"
	WithoutProcessGrace WithoutProcess = "grace"
)

// Payload is the type of the payload column; SQLite's takes anything.
type Payload string

// The payload columns that there are.
const (
	PayloadJSON  Payload = "json"
	PayloadBytes Payload = "bytea"
)

// ReadFrom is which server gives the pages of the log.
type ReadFrom string

// The servers that there are; see [postgres.Config.Standby].
const (
	ReadFromPrimary ReadFrom = "primary"
	ReadFromStandby ReadFrom = "standby"
)

// Forwarder is the engine's settings; see [forwarder.Config] for what they mean.
type Forwarder struct {
	Name            string             `yaml:"name" doc:"name of this forwarder in leases and logs. Default: the host's name"`
	Poll            Poll               `yaml:"poll" doc:"the pause between two looks at the log"`
	Listen          *bool              `yaml:"listen" doc:"be woken by PostgreSQL's NOTIFY on one more connection, to the same address; set it to false behind a transaction pooler, where only polling works. Default true; PostgreSQL only"`
	Lease           time.Duration      `yaml:"lease" zero:"refused" doc:"how long a lane stays with a forwarder that no longer renews its lease, at least 1s. Default 15s"`
	Connections     int                `yaml:"connections" zero:"refused" doc:"how many statements of this forwarder run at once, and so how many of the database's connections it uses, whatever the number of sinks and lanes, at least 4; the one that listens comes on top. Default 8"`
	ShutdownTimeout time.Duration      `yaml:"shutdown_timeout" zero:"refused" doc:"how long deliveries in flight may take to end when the program is stopped. Default 20s"`
	Unrouted        forwarder.Unrouted `yaml:"unrouted" enum:"park,ignore" doc:"what becomes of notifications that no route matches: park (as dead, under the sink _unrouted) or ignore. Default park"`
	TraceSettle     bool               `yaml:"trace_settle" doc:"where tracing is on, make a span for each checkpoint too. Default false"`
}

// Poll bounds the pause between two looks at the log.
type Poll struct {
	Min time.Duration `yaml:"min" zero:"refused" doc:"after something new. Default 1ms"`
	Max time.Duration `yaml:"max" zero:"refused" doc:"after a while without. Default 50ms, or min if that is more"`
}

// Sink is a destination and how deliveries to it are made.
type Sink struct {
	Kind        string           `yaml:"kind" doc:"the kind of sink. Required"`
	With        With             `yaml:"with" doc:"the kind's own settings"`
	Start       forwarder.Start  `yaml:"start" doc:"where the sink begins if the outbox has no cursors of it: oldest (the first row that is still in the log), now (what is committed from then on), or a time such as 2026-03-01T00:00:00Z (the first row in log order that occurred then or later). A sink that has cursors goes on at them. Default: oldest on a log from which nothing was forwarded yet, now on any other"`
	Parallelism Parallelism      `yaml:"parallelism" doc:"deliveries in flight"`
	Retry       Retry            `yaml:"retry" doc:"when a delivery that failed for the moment is tried again"`
	OnDead      forwarder.OnDead `yaml:"on_dead" enum:"continue,halt" doc:"what becomes of a key whose delivery is dead: continue with the next one, or halt until a person acts. Default continue"`
	OnUnknown   OnUnknown        `yaml:"on_unknown" doc:"what becomes of a delivery whose type or version the sink does not know, as in the old processes of a rolling deploy: it is tried again, with no attempt spent, and is dead then"`
	Timeout     time.Duration    `yaml:"timeout" zero:"refused" doc:"how long one delivery, or one batch, may take. Default 30s"`
	Rate        forwarder.Rate   `yaml:"rate" doc:"most deliveries per unit of time, over all forwarders: 50/s, 100/m or 1000/h; with burst, as in 50/s, burst 100, so many may go at once after a pause (in quotes where the line has braces). Default: no bound; burst is the deliveries of a second"`
	Breaker     Breaker          `yaml:"breaker" doc:"when all deliveries wait because the destination cannot be reached, fails, or refuses ten keys in a row for good, until one gets through; nothing is parked meanwhile"`
	Fairness    string           `yaml:"fairness" doc:"name of the metadata, such as tenant, whose values share the sink: while several have something to deliver each gets the same number of slots. Default: none"`
	Trace       forwarder.Trace  `yaml:"trace" enum:"pass,none" doc:"the trace context of deliveries (traceparent, tracestate): pass it on to the sink, or none, which takes it out of all that the sink gets. Default pass"`

	// Sink is the sink that Load built of kind and with.
	Sink sinks.Sink `yaml:"-"`
	// settings is what Load made of with: the kind's own struct.
	settings any
	// contents are digests of the files that settings name, as they were then.
	contents map[string]string
}

// With is the settings of a kind, which only the kind can read.
type With struct{ node *yaml.Node }

// Parallelism is the threshold of deliveries in flight to one sink.
type Parallelism struct {
	Threshold int             `yaml:"threshold" zero:"refused" doc:"most deliveries in flight, 1 to 65536. Default 16"`
	Above     forwarder.Above `yaml:"above" enum:"bounded,sequential" doc:"while more are pending: bounded (never more than threshold in flight) or sequential (one at a time until the backlog has shrunk to threshold). Default bounded"`
	Adaptive  *Adaptive       `yaml:"adaptive" doc:"a threshold that follows the latency and the refusals of the destination, for each where the sink has several, instead of a fixed one. Default: none"`
}

// Adaptive bounds a threshold that follows the destination.
type Adaptive struct {
	Min int `yaml:"min" zero:"refused" doc:"the smallest threshold. Default 1"`
	Max int `yaml:"max" zero:"refused" doc:"the largest threshold, up to 65536, for all destinations together. Default 512, or min if that is more"`
}

// OnUnknown says how long what a sink does not know is tried again.
type OnUnknown struct {
	RetryFor time.Duration `yaml:"retry_for" zero:"refused" doc:"for how long, from when the delivery was first parked; the pauses grow with that time, from retry.initial to 1m. Default 24h"`
}

// Breaker says when a sink waits as a whole.
type Breaker struct {
	FailureShare float64       `yaml:"failure_share" zero:"refused" doc:"share of the last attempts over different keys that failed for the moment, 0 to 1. Default 0.9"`
	Among        int           `yaml:"among" zero:"refused" doc:"how many attempts those are, 1 to 10000. Default 20"`
	MaxPause     time.Duration `yaml:"max_pause" zero:"refused" doc:"the longest pause between two probes; pauses begin at 100ms and double. Default 5s"`
	Off          bool          `yaml:"off" doc:"wait only for a destination that cannot be reached, or refuses the sink itself. Default false"`
}

// Retry is exponential backoff with jitter.
type Retry struct {
	Policy `yaml:",inline"`
	Types  map[string]Policy `yaml:"types" doc:"other settings for some types: for a type, the beginning of types (order.*), or all (*); the longest that matches counts. What is left out is as above"`
}

// Policy says when a delivery is tried again.
type Policy struct {
	MaxAttempts int           `yaml:"max_attempts" zero:"refused" doc:"attempts that a delivery has before it is dead, the first included. Default 12"`
	MaxAge      time.Duration `yaml:"max_age" zero:"refused" doc:"how old a notification may be at its next attempt, from when it occurred or was to be delivered; it is dead otherwise. The first attempt is made at any age. Default: no limit"`
	Initial     time.Duration `yaml:"initial" zero:"refused" doc:"the pause after the first attempt. Default 1s"`
	Multiplier  float64       `yaml:"multiplier" zero:"refused" doc:"how much longer each pause is than the one before, at least 1. Default 2"`
	Max         time.Duration `yaml:"max" zero:"refused" doc:"the longest pause. Default 15m, or initial if that is more"`
	Jitter      *float64      `yaml:"jitter" doc:"share of a pause by which chance makes it shorter or longer, 0 to 1. Default 0.2"`
}

// Rule brings what a route's pattern matches to a sink; a name alone is one without
// conditions. See [route.Rule].
type Rule struct {
	Sink    string            `yaml:"sink" short:"true" doc:"the sink's name. Required"`
	When    string            `yaml:"when" secret:"false" doc:"a condition, such as payload.total > 100 && metadata.tenant == 'acme'. The language is that of expr-lang.org, over type, version, key, id, occurred_on, metadata and, where it is JSON, payload; what may be missing is asked for with ?. as in payload.customer?.country. A notification for which it is false passes the sink by; one on which it fails is parked as dead. Default: always"`
	Payload map[string]string `yaml:"payload" secret:"false" doc:"what the sink gets instead of the payload: names of fields to expressions of the same language, as in {order: payload.id, total: payload.amount.value}. Default: the payload as it is"`
}

// routes are those of the engine.
func (c *Config) routes() route.Routes {
	routes := make(route.Routes, len(c.Routes))
	for pattern, rules := range c.Routes {
		routes[pattern] = make([]route.Rule, len(rules))
		for i, r := range rules {
			routes[pattern][i] = route.Rule(r)
		}
	}
	return routes
}

// Table is the routes, checked and compiled; nil if there are none.
func (c *Config) Table() (*route.Table, error) {
	if len(c.Routes) == 0 {
		return nil, nil
	}
	return route.New(c.routes(), slices.Collect(maps.Keys(c.Sinks)), c.options.Types)
}

// ForwarderConfig is what the engine works with, over a store of the configuration's
// database; see package database.
func (c *Config) ForwarderConfig(s forwarder.Store) forwarder.Config {
	return forwarder.Config{
		Store:           s,
		Fleet:           c.HasFleet(),
		Routes:          c.routes(),
		Sinks:           c.destinations(),
		Name:            c.Forwarder.Name,
		Lanes:           c.Outbox.Lanes,
		Poll:            forwarder.Poll{Min: c.Forwarder.Poll.Min, Max: c.Forwarder.Poll.Max},
		Lease:           c.Forwarder.Lease,
		Connections:     c.Forwarder.Connections,
		ShutdownTimeout: c.Forwarder.ShutdownTimeout,
		Unrouted:        c.Forwarder.Unrouted,
		Only:            c.only,
		Retention:       retention(c.Outbox.Retention),
		InboxRetention:  retention(c.Outbox.InboxRetention),
		Types:           c.options.Types,
		Observer:        c.options.Observer,
		TracerProvider:  c.options.TracerProvider,
		TraceSettle:     c.Forwarder.TraceSettle,
		Logger:          c.options.Logger,
	}
}

// Supplied reports the sinks to work on that another program is to supply, as
// [sinks.ErrAbsent]. A forwarder that worked on one would keep its lanes from that program.
// One without Types works on no sink of a file with such sinks: the file is of a program
// whose types may have aliases, and a route to a type is one to its aliases.
func (c *Config) Supplied() error {
	var mine, all []string
	for _, name := range slices.Sorted(maps.Keys(c.Sinks)) {
		if _, absent := c.Sinks[name].Sink.(sinks.Absent); absent {
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

// retention is that of the engine, for which 0 is the default.
func retention(given *time.Duration) time.Duration {
	switch {
	case given == nil:
		return 0
	case *given == 0:
		return forwarder.KeepForever
	}
	return *given
}

func (s Sink) forwarder() forwarder.Sink {
	return forwarder.Sink{
		Sink:        s.Sink,
		Start:       s.Start,
		Parallelism: s.Parallelism.forwarder(),
		Retry:       s.Retry.forwarder(),
		OnDead:      s.OnDead,
		OnUnknown:   forwarder.OnUnknown(s.OnUnknown),
		Timeout:     s.Timeout,
		Rate:        s.Rate,
		Breaker:     forwarder.Breaker(s.Breaker),
		Fairness:    s.Fairness,
		Trace:       s.Trace,
	}
}

func (p Parallelism) forwarder() forwarder.Parallelism {
	its := forwarder.Parallelism{Threshold: p.Threshold, Above: p.Above}
	if p.Adaptive != nil {
		its.Adaptive = forwarder.Adaptive(*p.Adaptive)
		its.Adaptive.Min = cmp.Or(its.Adaptive.Min, forwarder.DefaultAdaptiveMin) // an empty mapping is adaptive as well
	}
	return its
}

func (r Retry) forwarder() forwarder.Retry {
	retry := r.Policy.forwarder()
	for pattern, policy := range r.Types {
		if retry.Types == nil {
			retry.Types = make(map[string]forwarder.Retry, len(r.Types))
		}
		retry.Types[pattern] = policy.forwarder()
	}
	return retry
}

func (p Policy) forwarder() forwarder.Retry {
	retry := forwarder.Retry{MaxAttempts: p.MaxAttempts, MaxAge: p.MaxAge, Initial: p.Initial, Multiplier: p.Multiplier, Max: p.Max}
	if p.Jitter != nil {
		retry.Jitter = *p.Jitter
		if retry.Jitter == 0 {
			retry.Jitter = noJitter
		}
	}
	return retry
}

// RoutesTo lists the patterns whose types go to a sink, with their conditions, in
// alphabetical order.
func (c *Config) RoutesTo(sink string) []string {
	patterns := []string{}
	for _, pattern := range slices.Sorted(maps.Keys(c.Routes)) {
		for _, r := range c.Routes[pattern] {
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

// noJitter is what a jitter of 0 is to the forwarder, to whom 0 is its default.
const noJitter = math.SmallestNonzeroFloat64
