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
// The structs of this package are the reference of the file. Their field tags have the
// key ("yaml"), its description ("doc"), the allowed values ("enum") and what is secret
// ("secret"): see [sinks.NewKind].
//
// [database]: https://pkg.go.dev/github.com/waybill-go/waybill/framework/config/database
package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/source/kafka"
	"github.com/waybill-go/waybill/sinks"
)

// Config is the whole file. A key that the user left out is the zero value; the package that
// uses the value applies the default.
type Config struct {
	Database  Database            `yaml:"database" secret:"password" doc:"Address of the outbox's database: postgres://user:password@host:port/name or the key=value form of libpq, mysql://user:password@host:port/name, or sqlite:path. For failover, name several hosts: postgres://user:password@/name?host=db1,db2&port=5432,5432&target_session_attrs=read-write. Required, unless databases or fleet.query is set"`
	Databases map[string]Database `yaml:"databases" secret:"password" doc:"Instead of database, the addresses of several databases by name. One forwarder delivers from all of them to the same sinks, and adds the name to each notification as the metadata database. Select a schema of PostgreSQL with search_path, as in postgres://app@db/shop?search_path=tenant1"`
	Fleet     Fleet               `yaml:"fleet" doc:"Settings of a forwarder of several databases"`
	Outbox    Outbox              `yaml:"outbox" doc:"The outbox's tables"`
	Log       Log                 `yaml:"source" doc:"The log to read instead of the outbox's table, for a second stage behind a forwarder that writes an outbox to Kafka. The database then keeps only cursors, leases and parked deliveries, in tables with a prefix that no outbox uses"`
	Forwarder Forwarder           `yaml:"forwarder" doc:"The forwarder, which moves notifications from the outbox to the sinks"`
	Sinks     map[string]Sink     `yaml:"sinks" doc:"Sinks by name. A name has up to 63 letters, digits, dots, dashes and underscores, and begins with a letter or digit"`
	Routes    map[string][]Rule   `yaml:"routes" doc:"The sinks for each type (order.placed), for all types with a prefix (order.*), or for all types (*): a list of sink names, or of mappings with the keys below for a condition or another payload"`

	Schedules map[string]Schedule `yaml:"schedules" doc:"Notifications that are published by the clock, by name. Of all forwarders with this schedule, one publishes each tick, once"`

	Observe Observe `yaml:"observe" doc:"The dashboard, metrics and probes of waybill forward, over HTTP"`

	only    []string // the sinks of --sink; empty for all
	source  Source
	options Options
	loader  *loader // knows where each value came from
}

// Outbox has the names and the settings of the tables.
type Outbox struct {
	Prefix   string  `yaml:"prefix" doc:"Prefix of all table names. On PostgreSQL it may include their schema, as in billing.outbox. Default outbox"`
	Lanes    int     `yaml:"lanes" zero:"refused" doc:"How many lanes each sink has, which is how many forwarders can share its work: 1 to 1024. On SQLite one of them does all the work. A new number takes effect when a forwarder with it starts. Default 1"`
	Payload  Payload `yaml:"payload" enum:"json,bytea" doc:"Type of the payload column that migrate creates: json, or bytea (on MySQL a LONGBLOB) for binary serializers. SQLite stores both. Default json"`
	Receipts bool    `yaml:"receipts" doc:"Keep the receipt of each delivery in a table. Default false"`
	WithoutProcess WithoutProcess `yaml:"without_process" enum:"void" doc:"What a forwarder on MySQL or MariaDB does about the missing rows of rolled-back transactions if its user lacks the privilege PROCESS. void fills a gap of 5 minutes with an empty row, so that a statement that would still insert there fails. Default: the privilege is required"`
	// Retention and InboxRetention are pointers because 0 differs from a key that is left out.
	Retention      *time.Duration `yaml:"retention" doc:"How long rows stay in the log after they occurred, and receipts after their delivery. Rows that a sink has not settled stay longer. 0 keeps everything forever. Default 72h"`
	InboxRetention *time.Duration `yaml:"inbox_retention" doc:"How long the inbox keeps the ids of handled notifications. It must be at least as long as a sink that uses the inbox may retry a delivery. 0 keeps them forever. Default 720h, or 0 if retention is 0"`
}

// Log is a log outside of the database. The zero value means the outbox's own table.
type Log struct {
	Kafka *kafka.Config `yaml:"kafka" doc:"Topics of Apache Kafka"`
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
	Name            string             `yaml:"name" doc:"Name of this forwarder in leases and logs. Default: the host's name"`
	Poll            time.Duration      `yaml:"poll" zero:"refused" doc:"Longest pause between two reads of the log, after a while without anything new; at least 1ms. While there is something new, the pause is a fiftieth of it. Default 50ms"`
	Listen          *bool              `yaml:"listen" doc:"Let PostgreSQL's NOTIFY wake the forwarder, on one more connection to the same address. Set it to false behind a transaction pooler, where only polling works. Default true; PostgreSQL only"`
	Lease           time.Duration      `yaml:"lease" zero:"refused" doc:"How long a forwarder keeps a lane after it last renewed the lease, which is how long a crashed forwarder holds its lanes; at least 1s. Default 15s"`
	Connections     int                `yaml:"connections" zero:"refused" doc:"Most database connections that this forwarder uses at once, for any number of sinks and lanes, at least 4. The connection that listens is not counted. Default 8"`
	ShutdownTimeout time.Duration      `yaml:"shutdown_timeout" zero:"refused" doc:"How long deliveries in flight may take to end when the program stops. Default 20s"`
	Unrouted        forwarder.Unrouted `yaml:"unrouted" enum:"park,ignore" doc:"What happens to notifications that no route matches: park (as dead, under the sink _unrouted) or ignore. Default park"`
}

// Sink is a sink with the settings of its deliveries.
type Sink struct {
	Kind        string           `yaml:"kind" doc:"Kind of the sink. Required"`
	With        With             `yaml:"with" doc:"Settings of the kind"`
	Start       forwarder.Start  `yaml:"start" doc:"Where a new sink starts: oldest (the first row that is still in the log), now (only what is committed later), or a time such as 2026-03-01T00:00:00Z (the first row in log order that occurred at that time or later). A sink that has cursors continues from them. Default: oldest on a log from which nothing was forwarded yet, now on any other"`
	Parallelism Parallelism      `yaml:"parallelism" doc:"How many deliveries are in flight at once"`
	Retry       Retry            `yaml:"retry" doc:"When a delivery that failed temporarily is retried"`
	OnDead      forwarder.OnDead `yaml:"on_dead" enum:"continue,halt" doc:"What happens to later deliveries of a key after one is dead: continue with them, or halt the key until a person acts. Default continue"`
	Timeout     time.Duration    `yaml:"timeout" zero:"refused" doc:"How long one delivery, or one batch, may take. Default 30s"`
	Rate        forwarder.Rate   `yaml:"rate" doc:"Most deliveries per second, minute or hour, over all forwarders: 50/s, 100/m or 1000/h. With burst, as in 50/s, burst 100, that many may go at once after a pause; put the value in quotes if it is inside braces. Default: no limit; burst is as many as in a second"`
	Breaker     Breaker          `yaml:"breaker" doc:"When the breaker opens: all deliveries then wait until a probe succeeds, and nothing is parked. It opens if the destination cannot be reached, if too many attempts fail, if none succeeds for two minutes, or if ten deliveries in a row are refused permanently"`
	Fairness    string           `yaml:"fairness" doc:"Name of the metadata, such as tenant, whose values share the sink fairly: if several values have pending deliveries, each gets the same number of deliveries in flight. Default: none"`
	AnswerBytes *int             `yaml:"answer_bytes" doc:"How much of a destination's answer, which may repeat private data, the error of a parked delivery quotes: 0 to 4096 bytes. Default 4096"`
	Trace       forwarder.Trace  `yaml:"trace" enum:"pass,none" doc:"Whether the sink gets the trace context (traceparent, tracestate) of a delivery: pass it on, or none to remove it. Default pass"`

	// Sink is the sink that Load built from Kind and With.
	Sink sinks.Sink `yaml:"-"`
	// settings is the kind's own struct, which Load decoded from With.
	settings any
	// contents are digests of the files that settings name, at the time of Load.
	contents map[string]string
}

// With has the settings of a kind, undecoded.
type With struct{ node *yaml.Node }

// Parallelism limits the deliveries in flight to one sink.
type Parallelism struct {
	Threshold int             `yaml:"threshold" zero:"refused" doc:"Most deliveries in flight, 1 to 65536. Default 16"`
	Above     forwarder.Above `yaml:"above" enum:"bounded,sequential" doc:"What happens while more than threshold are pending: bounded (threshold in flight at once) or sequential (one at a time, until no more than threshold are pending). Default bounded"`
	Adaptive  *Adaptive       `yaml:"adaptive" doc:"Instead of a fixed threshold, one that adapts to the latency and the refusals of the destination; a sink with several destinations has one for each. Default: none"`
}

// Adaptive limits a threshold that adapts to the destination.
type Adaptive struct {
	Min int `yaml:"min" zero:"refused" doc:"Smallest threshold. Default 1"`
	Max int `yaml:"max" zero:"refused" doc:"Largest threshold, up to 65536, over all destinations together. Default 512, or min if that is more"`
}

// Breaker sets when a sink waits as a whole.
type Breaker struct {
	MaxPause time.Duration `yaml:"max_pause" zero:"refused" doc:"Longest pause between two probes. Pauses start at 100ms and double. Default 5s"`
	Off      bool          `yaml:"off" doc:"Open only for a destination that cannot be reached, or that refuses the sink itself. Default false"`
}

// Retry sets exponential backoff with jitter.
type Retry struct {
	Policy `yaml:",inline"`
	Types  map[string]Policy `yaml:"types" doc:"Other settings for a type, for types with a prefix (order.*), or for all types (*). The longest pattern that matches applies. Keys that are left out are taken from above"`
}

// Policy sets when a delivery is retried.
type Policy struct {
	MaxAge      time.Duration `yaml:"max_age" zero:"refused" doc:"How long a delivery is retried: when its pauses would add up to more, it is dead. What a breaker or a stopped forwarder adds does not count. Default: 24h, or no limit if max_attempts is set"`
	MaxAttempts int           `yaml:"max_attempts" zero:"refused" doc:"Most attempts of a delivery, including the first; then it is dead. Default: no limit"`
	Initial     time.Duration `yaml:"initial" zero:"refused" doc:"Pause after the first attempt. Default 1s"`
	Max         time.Duration `yaml:"max" zero:"refused" doc:"Longest pause. Default 15m, or initial if that is more"`
}

// Rule sends what a route's pattern matches to a sink. A sink's name alone is a rule without
// a condition. See [route.Rule].
type Rule struct {
	Sink    string            `yaml:"sink" short:"true" doc:"Name of the sink. Required"`
	When    string            `yaml:"when" secret:"false" doc:"Condition in the language of expr-lang.org, such as payload.total > 100 && metadata.tenant == 'acme'. It can use type, version, key, id, occurred_on, metadata and, if it is JSON, payload. Use ?. for what may be missing, as in payload.customer?.country. If it is false, the sink does not get the notification; if it fails, the delivery is parked as dead. Default: always"`
	Payload map[string]string `yaml:"payload" secret:"false" doc:"Payload for the sink, as fields with expressions of the same language: {order: payload.id, total: payload.amount.value}. Default: the original payload"`
}

// routes returns the routes as the engine takes them.
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

// Table returns the routes, checked and compiled; nil if there are none.
func (c *Config) Table() (*route.Table, error) {
	if len(c.Routes) == 0 {
		return nil, nil
	}
	return route.New(c.routes(), slices.Collect(maps.Keys(c.Sinks)), c.options.Types)
}

// ForwarderConfig returns the configuration for [forwarder.New]. Package database opens the
// store that the configuration names.
func (c *Config) ForwarderConfig(s forwarder.Store) forwarder.Config {
	return forwarder.Config{
		Store:           s,
		Fleet:           c.HasFleet(),
		Routes:          c.routes(),
		Sinks:           c.destinations(),
		Name:            c.Forwarder.Name,
		Lanes:           c.Outbox.Lanes,
		Poll:            c.Forwarder.Poll,
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
		Logger:          c.options.Logger,
	}
}

// Supplied returns [sinks.ErrAbsent] if this program lacks the code of a sink of kind go or
// function that it would forward to. Such a forwarder would hold the sink's lanes without
// delivering. If the file has such sinks and Options.Types is nil, the error covers all its
// sinks, because routes also match aliases, which only the types know.
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

func (s Sink) forwarder() forwarder.Sink {
	return forwarder.Sink{
		Sink:        s.Sink,
		Start:       s.Start,
		Parallelism: s.Parallelism.forwarder(),
		Retry:       s.Retry.forwarder(),
		OnDead:      s.OnDead,
		Timeout:     s.Timeout,
		Rate:        s.Rate,
		Breaker:     forwarder.Breaker(s.Breaker),
		Fairness:    s.Fairness,
		Trace:       s.Trace,
		AnswerBytes: s.AnswerBytes,
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
	return forwarder.Retry{MaxAttempts: p.MaxAttempts, MaxAge: p.MaxAge, Initial: p.Initial, Max: p.Max}
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
