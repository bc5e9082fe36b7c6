package config

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/config/internal/keys"
	"github.com/waybill-go/waybill/framework/config/internal/secret"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// Load reads the whole configuration, checks it and builds the sinks, without opening them. If
// anything is wrong, it returns an [*Error] with all mistakes.
func Load(source Source, options Options) (*Config, error) {
	return read(source, options, nil, (*loader).checkAll)
}

func (l *loader) checkAll(c *Config) {
	l.checkTables(c)
	if c.Log != (Log{}) && len(c.Schedules) > 0 {
		l.mistake("schedules", "schedules: nothing can be published to the log of source; move them to the first stage's configuration")
	}
	l.checkPublishing(c)
	l.checkTypes(c)
	l.checkPrivacy(c)
	l.buildSinks(c, "")
	l.checkSchedules(c)
	routesAreRight, alertsAreRight := l.checkRoutes(c), l.checkAlerts(c)
	if c.source.Listen != nil {
		c.Forwarder.Listen = c.source.Listen
	}
	for _, name := range c.source.Sinks {
		if _, known := c.Sinks[name]; known {
			c.only = append(c.only, name)
		} else {
			l.mistake("", "--sink %s: there is no such sink; the configuration has %s", name, strings.Join(slices.Sorted(maps.Keys(c.Sinks)), ", "))
		}
	}
	l.checkForwarder(c, routesAreRight && alertsAreRight)
	l.checkObserve(c.Observe)
	l.environment.reportUnknown()
}

// checkAlerts reports the mistakes of the alerts. It returns true if there are none.
func (l *loader) checkAlerts(c *Config) (valid bool) {
	before := len(l.report.found)
	if l.reported("alerts") || !l.given("alerts") {
		return !l.reported("alerts")
	}
	if c.Log != (Log{}) {
		l.mistake("alerts", "alerts: nothing can be published to the log of source; move them to the first stage's configuration")
	}
	names := slices.Collect(maps.Keys(c.Sinks))
	for i, rule := range c.Alerts.To {
		at := fmt.Sprintf("alerts.to[%d]", i)
		l.checkRule(rule, "alerts.to", at, names)
		if c.Sinks[rule.Sink].Kind == webhooks.KindName {
			l.mistake(at, "alerts.to names %s, which would send the alerts to customers: name a sink of your own", rule.Sink)
		}
	}
	if c.Alerts.Causeless() && (l.given("alerts.dead") || l.given("alerts.disabled_endpoint")) {
		l.mistake("alerts", "alerts: all causes are switched off: set one of those that you want, such as stalled: 5m")
	}
	its := c.Alerts
	if len(its.To) > 0 { // whose mistakes have just been reported
		its.To = route.To("known")
	}
	if err := its.Validate(); err != nil {
		for _, e := range flatten(err) {
			l.complain("", errors.New(strings.TrimPrefix(e.Error(), settings.ErrConfig.Error()+": ")))
		}
	}
	return len(l.report.found) == before
}

// checkPublishing reports sinks that publish to a log to which nothing can be published.
func (l *loader) checkPublishing(c *Config) {
	for name, sink := range c.Sinks {
		if sink.Kind == webhooks.KindName && c.Log != (Log{}) {
			at := keys.Join("sinks", name)
			l.mistake(at, "%s: nothing can be published to the log of source; move the sink to the first stage's configuration", at)
		}
	}
}

// Tables is the part of a configuration that is needed to open the outbox.
type Tables struct {
	Database Database
	Outbox   Outbox
	// Log is the log that forwarders read; the zero value means the outbox's own table.
	Log Log
	// Logger is for the log; nil means slog's default.
	Logger *slog.Logger
	// Listen makes the store listen for the database's notifications. Only forwarders
	// need it.
	Listen bool
}

// LoadTables reads only database, outbox and source. It needs no file if Source has the
// database, and no secrets of sinks. Other sections are not checked.
func LoadTables(source Source) (Tables, error) {
	c, err := read(source, Options{}, located, func(l *loader, c *Config) {
		l.checkTables(c)
		l.environment.reportUnknown()
		l.wantOne(c)
	})
	return Tables{Database: c.Database, Outbox: c.Outbox, Log: c.Log}, err
}

// located are the sections that say where outboxes are.
var located = []string{"database", "databases", "fleet", "outbox", "source"}

// read decodes only some keys and what is below them, or all if there are none, and checks them.
// With an error, the configuration has what could be read.
func read(source Source, options Options, only []string, check func(*loader, *Config)) (*Config, error) {
	l, node := newLoader(source)
	l.only = only
	c := &Config{source: source, options: options.withDefaults(), loader: l}
	c.contracts = l.contracts(c)
	if len(l.report.found) == 0 {
		l.fill(c, node)
		check(l, c)
	}
	return c, l.report.err()
}

// fill decodes a configuration.
func (l *loader) fill(c *Config, node *yaml.Node) {
	l.decode(node, reflect.ValueOf(c).Elem(), "")
	for name, sink := range c.Sinks {
		if a := &sink.Parallelism.Adaptive; *a == (settings.Adaptive{}) && l.given(keys.Join("sinks", name)+".parallelism.adaptive") {
			a.Min = settings.DefaultAdaptiveMin // an empty mapping is adaptive as well
			c.Sinks[name] = sink
		}
	}
}

// wantOne reports that there are several databases, where one is needed.
func (l *loader) wantOne(c *Config) {
	if c.HasFleet() && len(l.report.found) == 0 {
		l.mistake("databases", "databases: there are several: choose one with --in, or give its address with --database")
	}
}

// LoadAddress reads only observe.address.
func LoadAddress(source Source) (string, error) {
	c, err := read(source, Options{}, []string{"observe.address"}, func(l *loader, c *Config) { l.checkAddress(c.Observe.Address) })
	return c.Observe.Address, err
}

// LoadRoutes reads the configuration without schedules, and of observe only the masks, and builds no
// sinks, so it needs no secrets of sinks. It also works without a file, and then returns no
// routes.
func LoadRoutes(source Source, options Options) (*Config, error) {
	return read(source, options, append(located, "forwarder.unrouted", "sinks", "routes", "types", "alerts", "observe.masks"), func(l *loader, c *Config) {
		l.checkTables(c)
		l.wantOne(c)
		l.checkTypes(c)
		if len(c.Routes) > 0 {
			l.checkRoutes(c)
			l.checkAlerts(c)
		}
	})
}

// LoadKind reads where the outbox is, and builds the sinks of one kind, so it needs no secrets of
// others.
func LoadKind(source Source, options Options, kind string) (*Config, error) {
	return read(source, options, append(located, "sinks"), func(l *loader, c *Config) {
		l.checkTables(c)
		l.wantOne(c)
		l.checkPublishing(c)
		l.buildSinks(c, kind)
	})
}

// LoadPrivacy reads where the outbox is, and how private values are encrypted. It needs no secrets of sinks.
func LoadPrivacy(source Source, options Options) (*Config, error) {
	return read(source, options, append(located, "privacy"), func(l *loader, c *Config) {
		l.checkTables(c)
		l.wantOne(c)
		l.checkPrivacy(c)
	})
}

// LoadDeliveries reads the routes and the settings of deliveries. It builds no sinks and does
// not read the database's address, so it needs no secrets.
func LoadDeliveries(source Source, options Options) (*Config, error) {
	return read(source, options, []string{"outbox", "forwarder", "sinks", "routes", "types"}, func(l *loader, c *Config) {
		l.checkTypes(c)
		l.checkForwarder(c, l.checkRoutes(c))
	})
}

// LoadTypes reads only types, for their contracts. It also works without a file.
func LoadTypes(source Source, options Options) (*Config, error) {
	return read(source, options, []string{"types"}, (*loader).checkTypes)
}

// LoadSettings decodes some keys of a sink's with into a struct and calls use, whose error is
// reported at the lines of the keys, as by [Load]. Other keys, such as passwords, are not
// checked.
func LoadSettings(source Source, sink string, names []string, settings any, use func() error) error {
	_, err := read(source, Options{}, []string{"sinks"}, func(l *loader, c *Config) {
		l.only = nil
		with := keys.Join(keys.Join("sinks", sink), "with")
		l.decode(only(c.Sinks[sink].With.node, names), reflect.ValueOf(settings).Elem(), with)
		if len(l.report.found) > 0 {
			return
		}
		if err := use(); err != nil {
			l.complain(with, err)
		}
	})
	return err
}

// only returns a mapping with only some of its keys; other nodes are returned unchanged.
func only(node *yaml.Node, names []string) *yaml.Node {
	if node == nil || node.Kind != yaml.MappingNode {
		return node
	}
	some := *node
	some.Content = nil
	for i := 0; i+1 < len(node.Content); i += 2 {
		if slices.Contains(names, node.Content[i].Value) {
			some.Content = append(some.Content, node.Content[i:i+2]...)
		}
	}
	return &some
}

// Tables returns what a forwarder needs to open the outbox.
func (c *Config) Tables() Tables {
	its := c.TablesIn(c.Database)
	its.Log = c.Log
	return its
}

// loader decodes a configuration and checks it.
type loader struct {
	decoder
	folders map[string][]string // the names in the folders of schemas
}

// newLoader parses the source's file. If that fails, the report has a mistake, and the node
// is nil.
func newLoader(source Source) (*loader, *yaml.Node) {
	r := &report{file: source.File}
	variables := source.variables()
	l := &loader{folders: make(map[string][]string), decoder: decoder{
		report:      r,
		environment: newEnvironment(variables, r),
		outside:     outside{report: r, variables: variables, folder: filepath.Dir(source.File)},
		flags:       map[string]string{"database": source.Database},
		places:      make(map[string]place),
		typed:       make(map[string]string),
		fields:      make(map[string]bool),
		secrecy:     make(map[string]secret.Secrecy),
		values:      make(map[string]string),
		wrong:       make(map[string]bool),
	}}
	text, ok := source.read(r)
	if !ok {
		return l, nil
	}
	return l, parseDocument(text, r)
}

// complain reports the errors of a check, each of which begins with the path of a key below
// base. It leaves out keys for which a mistake is already reported, and masks secrets that the
// errors quote.
func (l *loader) complain(base string, err error) {
	l.complainOf(base, err, l.secretsBelow(base))
}

// complainOf is complain for errors that may quote these secrets only.
func (l *loader) complainOf(base string, err error, secrets secret.Concealed) {
	for _, e := range flatten(err) {
		text := e.Error()
		key, _, _ := strings.Cut(text, " ")
		key, _, _ = strings.Cut(key, ":")
		path, known := l.nearestKey(keys.Join(base, key), base)
		if l.reported(path) {
			continue
		}
		text = key + secrets.Redacted(secret.OneLine(text[len(key):]))
		switch p := l.placeOf(path); {
		case known:
			l.report.add(p.where, p.line, "%s", keys.Join(base, text))
		case base != "":
			l.report.add(p.where, p.line, "%s: %s", base, text)
		default:
			l.report.add(p.where, p.line, "%s", text)
		}
	}
}

// nearestKey returns the longest prefix of a path, longer than base, that is a key; base and
// false if there is none.
func (l *loader) nearestKey(path, base string) (string, bool) {
	for len(path) > len(base) {
		if l.fields[path] || l.given(path) {
			return path, true
		}
		path = keys.Parent(path)
	}
	return base, false
}

// reported reports whether a mistake of a key, or of one above it, is in the report.
func (l *loader) reported(path string) bool {
	for path != "" && !l.wrong[path] {
		path = keys.Parent(path)
	}
	return l.wrong[path]
}

// flatten returns the parts of an errors.Join, or the error itself. It does not take apart an
// error that wraps several others in its own text.
func flatten(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	parts := joined.Unwrap()
	texts := make([]string, len(parts))
	for i, part := range parts {
		texts[i] = part.Error()
	}
	if strings.Join(texts, "\n") != err.Error() {
		return []error{err}
	}
	var all []error
	for _, part := range parts {
		all = append(all, flatten(part)...)
	}
	return all
}
