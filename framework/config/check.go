package config

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/config/internal/keys"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/sinks"
)

// checkTables reports the mistakes of the keys that locate the outbox, or the outboxes.
func (l *loader) checkTables(c *Config) {
	l.checkFleet(c)
	d, o := c.Database, c.Outbox
	l.checkLog(c.Log, d, o)
	if d.Dialect() == "" && !l.reported("database") && !l.given("databases") && !l.given("fleet") {
		where := "set it in the file, with %s, or with --database"
		if l.report.file == "" {
			where = "name a configuration file with -c, or set it with %s or --database"
		}
		l.report.add(l.report.file, 0, "database is missing: "+where, variable("database"))
	}
	if l.given("outbox.prefix") && !l.reported("outbox.prefix") {
		validate := store.ValidatePrefix
		if d.Dialect() == PostgreSQL || c.HasFleet() {
			validate = func(prefix string) error { _, _, err := store.SplitPrefix(prefix); return err }
		}
		if err := validate(o.Prefix); err != nil {
			l.mistake("outbox.prefix", "outbox.prefix: %v", err)
		}
	}
}

// checkLog reports the mistakes of source, and of the tables for one.
func (l *loader) checkLog(log Log, d Database, o Outbox) {
	if log.Kafka == nil {
		if l.given("source") {
			l.mistake("source", "source: name the log to read, as in source: {kafka: {brokers: [localhost:9092], topics: [orders]}}")
		}
		return
	}
	if err := log.Kafka.Validate(); err != nil {
		l.complain("source.kafka", err)
	}
	if o.Lanes > 1 {
		l.mistake("outbox.lanes", "outbox.lanes is %d: the lanes of a source are its partitions; leave it out", o.Lanes)
	}
	if d.Dialect() != SQLite && o.Payload != PayloadBytes {
		l.mistake("outbox.payload", "outbox.payload: records of a source may not be JSON, and parked deliveries store them unchanged; use bytea")
	}
}

// sinkName keeps names readable in logs, tables and environment variables.
var sinkName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// buildSinks builds each sink of a kind, or of all kinds if it is "", from its settings. The constructor runs even if the
// settings have mistakes, to find all of them; the sink is then not used. A sink opens nothing
// before Open.
func (l *loader) buildSinks(c *Config, kind string) {
	for _, name := range slices.Sorted(maps.Keys(c.Sinks)) {
		sink, at := c.Sinks[name], keys.Join("sinks", name)
		if kind != "" && sink.Kind != kind {
			continue
		}
		if !sinkName.MatchString(name) {
			l.mistake(at, "%s: a sink's name has up to 63 letters, digits, dots, dashes and underscores, and begins with a letter or digit", at)
		}
		sink.Sink.Sink, sink.settings = l.buildSink(sink, at, c.options.Kinds, c.instance(name))
		sink.contents = contentsOf(sink.settings)
		c.Sinks[name] = sink
	}
}

func (l *loader) buildSink(sink Sink, at string, kinds *sinks.Set, instance sinks.Instance) (built sinks.Sink, settings any) {
	with := keys.Join(at, "with")
	if _, known := kinds.Kind(sink.Kind); !known {
		l.reportKind(sink.Kind, at, kinds.Names())
		var anything any
		l.decode(sink.With.node, reflect.ValueOf(&anything).Elem(), with)
		l.environment.skip(with)
		return nil, nil
	}
	built, err := kinds.Build(sink.Kind, instance, func(config any) error {
		settings = config
		l.decode(sink.With.node, reflect.ValueOf(config).Elem(), with)
		return nil
	})
	switch value := reflect.ValueOf(built); {
	case err != nil:
		l.complain(with, err)
	case built == nil, value.Kind() == reflect.Pointer && value.IsNil():
		l.mistake(at, "%s: the program's constructor returned neither a sink nor an error", at)
		built = nil
	}
	return built, settings
}

// kindsOfAll are the kinds that only the program of sinks/all has.
const kindsOfAll = "eventbridge kinesis nats pubsub rabbitmq redis sns sqs"

func (l *loader) reportKind(kind, at string, known []string) {
	key := keys.Join(at, "kind")
	switch {
	case l.reported(key):
	case kind == "":
		l.mistake(key, "%s is missing: use %s", key, strings.Join(known, ", "))
	case slices.Contains(strings.Fields(kindsOfAll), kind):
		l.mistake(key, "%s: unknown sink kind %q; known are %s; the program waybill-all has it (docs/deployment.md), and your own program adds it with program.Kinds",
			key, kind, strings.Join(known, ", "))
	default:
		l.mistake(key, "%s: unknown sink kind %q%s", key, kind, didYouMean(kind, known))
	}
}

// checkRoutes reports the mistakes that [route.New] would report, each at its line. It returns
// true if there are none.
func (l *loader) checkRoutes(c *Config) (valid bool) {
	before := len(l.report.found)
	if len(c.Routes) == 0 && !l.reported("routes") {
		l.mistake("routes", "routes: there are none, so nothing would be delivered: name the sinks of each type, or of * for all types")
	}
	names := slices.Collect(maps.Keys(c.Sinks))
	for _, pattern := range slices.Sorted(maps.Keys(c.Routes)) {
		at := keys.Join("routes", pattern)
		if l.reported(at) {
			continue
		}
		if err := route.ValidatePattern(pattern); err != nil {
			l.mistake(at, "%s: use a type like order.placed, a prefix of types like order.*, or *", at)
		}
		if len(c.Routes[pattern]) == 0 {
			l.mistake(at, "%s: name at least one sink", at)
		}
		for i, rule := range c.Routes[pattern] {
			l.checkRule(rule, at, fmt.Sprintf("%s[%d]", at, i), names)
		}
	}
	return len(l.report.found) == before && !l.reported("routes")
}

func (l *loader) checkRule(rule route.Rule, pattern, at string, sinks []string) {
	name := keys.Join(at, "sink")
	switch known := slices.Contains(sinks, rule.Sink); {
	case known || l.reported(name) || l.reported("sinks"):
	case rule.Sink == "":
		l.mistake(name, "%s is missing: name the sink", name)
	default:
		l.mistake(name, "%s names the unknown sink %q%s", pattern, rule.Sink, didYouMean(rule.Sink, sinks))
	}
	if err := rule.Check(); err != nil {
		l.complain(at, err)
	}
}

// checkForwarder lets the forwarder check its settings. Placeholders stand in for sinks that have
// mistakes or whose code is missing. If the routes have mistakes, one route to all sinks stands in
// for them.
func (l *loader) checkForwarder(c *Config, routesAreValid bool) {
	engine := c.ForwarderConfig(unopened{})
	if engine.Fleet {
		engine.Store = nil
	}
	for name, sink := range engine.Sinks {
		if _, absent := sink.Sink.(sinks.Absent); absent || sink.Sink == nil {
			sink.Sink = unbuilt{}
			engine.Sinks[name] = sink
		}
	}
	if len(engine.Sinks) == 0 {
		if !l.reported("sinks") {
			l.mistake("sinks", "sinks: there are none: add one, with its kind")
		}
		engine.Sinks = map[string]forwarder.Sink{"none": {Sink: unbuilt{}}}
		routesAreValid = false
	}
	if !routesAreValid {
		engine.Types, engine.Routes = nil, route.Routes{"*": route.To(slices.Collect(maps.Keys(engine.Sinks))...)}
		for name, sink := range engine.Sinks {
			sink.Sink = unbuilt{}
			engine.Sinks[name] = sink
		}
	}
	if _, err := forwarder.New(engine); err != nil {
		for _, e := range flatten(err) {
			l.complain("", errors.New(strings.TrimPrefix(e.Error(), forwarder.ErrConfig.Error()+": ")))
		}
	}
}

// unopened and unbuilt are placeholders; the forwarder does not use them before it runs. What stands in for a
// sink takes collections of any size, since it is not known what the sink takes.
type (
	unopened struct {
		webhooks.Store
		store.Inbox
	}
	unbuilt struct{ sinks.Collector }
)

// Handle is what sinks that work in transactions of the store need.
func (unopened) Handle() *sql.DB { return nil }

func (unbuilt) CollectionSize() int { return 0 }
