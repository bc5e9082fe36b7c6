package config

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/fleet"
	"github.com/waybill-go/waybill/framework/store"
)

// Fleet is what several databases with one forwarder have beside their addresses; see package fleet.
type Fleet struct {
	Control     Database       `yaml:"control" secret:"password" doc:"address of a database that leases the databases of the fleet to its forwarders, so that each is worked on by one; waybill migrate --in control makes its tables. Default: none, and each forwarder works on all databases"`
	Prefix      string         `yaml:"prefix" doc:"beginning of the names of the fleet's tables in control; fleets that share a control database have different ones. Default waybill_fleet"`
	Query       string         `yaml:"query" secret:"false" doc:"in place of databases, a query of control that returns their names and addresses, as in SELECT name, url FROM tenants WHERE active"`
	Refresh     time.Duration  `yaml:"refresh" zero:"refused" doc:"how often query is asked, at least 1s. SIGHUP asks it at once. Default 1m"`
	Sleep       *time.Duration `yaml:"sleep" doc:"after what time without anything to do a database sleeps: its lanes are given back, and one look a second finds what comes, for all schemas of one database together. At least 1s; 0 keeps all awake. Default 10s"`
	Connections int            `yaml:"connections" zero:"refused" doc:"how many connections of PostgreSQL and MySQL this process has for all databases together, at least 8. Default 64"`
}

// Defaults of a fleet.
const (
	DefaultFleetPrefix      = "waybill_fleet"
	DefaultFleetConnections = 64
	leastFleetConnections   = 8
)

// ControlName names the control database of a fleet where databases are named.
const ControlName = "control"

// HasFleet reports whether there are several databases.
func (c *Config) HasFleet() bool { return len(c.Databases) > 0 || c.Fleet.Query != "" }

// TablesIn is Tables for one database of the fleet.
func (c *Config) TablesIn(d Database) Tables {
	listen := c.Forwarder.Listen == nil || *c.Forwarder.Listen
	return Tables{Database: d, Outbox: c.Outbox, Logger: c.options.Logger, Listen: listen}
}

// ControlTables are those of the control database.
func (f Fleet) ControlTables() Tables {
	return Tables{Database: f.Control, Outbox: Outbox{Prefix: cmp.Or(f.Prefix, DefaultFleetPrefix)}}
}

// FleetDatabase is a database as a fleet takes it. What is wrong with the address is found out when it is opened.
func FleetDatabase(name, address string) fleet.Database {
	return fleet.Database{Name: name, Address: address, Identity: hidesPassword.masked(address)}
}

// Address is what ParseDatabase takes.
func (d Database) Address() string {
	if d.dialect == SQLite {
		return "sqlite:" + d.dsn
	}
	return d.dsn
}

// FleetOf lists databases as a fleet takes them.
func FleetOf(databases map[string]Database) fleet.Static {
	var all fleet.Static
	for _, name := range slices.Sorted(maps.Keys(databases)) {
		all = append(all, FleetDatabase(name, databases[name].Address()))
	}
	return all
}

// LoadFleet reads the keys databases and fleet, and what else says where outboxes are, and nothing else. Where
// there is one database both are empty.
func LoadFleet(source Source) (map[string]Database, Fleet, error) {
	l, node := newLoader(source)
	if len(l.report.found) > 0 {
		return nil, Fleet{}, l.report.err()
	}
	c := l.loadTables(node)
	return c.Databases, c.Fleet, l.report.err()
}

// Listeners is how many of the connections databases that are awake may use to be listened to.
func (f Fleet) Listeners() int { return f.Connections / 4 }

// SleepAfter is Sleep as a fleet takes it.
func (f Fleet) SleepAfter() time.Duration {
	if *f.Sleep == 0 {
		return fleet.Never
	}
	return *f.Sleep
}

// WithDefaults fills in what was left out.
func (f Fleet) WithDefaults() Fleet {
	if f.Control.Dialect() != "" {
		f.Prefix = cmp.Or(f.Prefix, DefaultFleetPrefix)
	}
	f.Refresh = cmp.Or(f.Refresh, fleet.DefaultRefresh)
	sleep := fleet.DefaultSleep
	f.Sleep = cmp.Or(f.Sleep, &sleep)
	f.Connections = cmp.Or(f.Connections, DefaultFleetConnections)
	return f
}

// checkFleet says what is wrong with several databases.
func (l *loader) checkFleet(c *Config) {
	const one, several, query = "database", "databases", "fleet.query"
	if l.flags[one] != "" { // which wins over all of them
		c.Databases, c.Fleet = nil, Fleet{}
		return
	}
	if !l.given(several) && !l.given("fleet") {
		return
	}
	switch {
	case l.reported(several) || l.reported(query):
	case l.given(one):
		l.mistake(one, "database: is given beside databases or fleet: leave one of them out")
	case len(c.Databases) > 0 && c.Fleet.Query != "":
		l.mistake(query, "fleet.query: is given beside databases: leave one of them out")
	case len(c.Databases) == 0 && c.Fleet.Query == "":
		l.mistake(several, "databases: there is none: name them, as in databases: {eu: postgres://…, us: postgres://…}, or write fleet.query")
	case c.Fleet.Query != "" && c.Fleet.Control.Dialect() == "" && !l.reported("fleet.control"):
		l.mistake(query, "fleet.query: is asked in the control database: write its address as fleet.control")
	}
	l.checkDatabases(c.Databases)
	if l.given("fleet.prefix") && !l.reported("fleet.prefix") {
		if _, _, err := store.SplitPrefix(c.Fleet.Prefix); err != nil {
			l.mistake("fleet.prefix", "fleet.prefix: %v", err)
		}
	}
	if l.given("fleet.refresh") && !l.reported("fleet.refresh") && c.Fleet.Refresh < time.Second {
		l.mistake("fleet.refresh", "fleet.refresh is %s: use at least 1s", c.Fleet.Refresh)
	}
	if s := c.Fleet.Sleep; s != nil && *s != 0 && *s < time.Second {
		l.mistake("fleet.sleep", "fleet.sleep is %s: use at least 1s, or 0 to keep all databases awake", *s)
	}
	if n := c.Fleet.Connections; n != 0 && n < leastFleetConnections {
		l.mistake("fleet.connections", "fleet.connections is %d: use at least %d", n, leastFleetConnections)
	}
	if c.Log != (Log{}) {
		l.mistake("source", "source: is read by a forwarder of one database: leave out databases and fleet")
	}
	if c.Outbox.ReadFrom == ReadFromStandby || l.given("standby") {
		l.mistake("outbox.read_from", "outbox.read_from: standbys are read by a forwarder of one database: leave out databases and fleet")
	}
	if len(c.Schedules) > 0 {
		l.mistake("schedules", "schedules: they are published to one database: run a forwarder with that one as database for them")
	}
}

// checkDatabases says what is wrong with the names of databases, and which is there twice: it would be worked
// on twice.
func (l *loader) checkDatabases(databases map[string]Database) {
	known := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(databases)) {
		at, d := join("databases", name), databases[name]
		switch {
		case l.reported(at):
			continue
		case !sinkName.MatchString(name) || name == ControlName:
			l.mistake(at, "%s: a database's name is up to 63 letters, digits, dots, dashes and underscores, beginning with a letter or digit, and not %s", at, ControlName)
		case d.Dialect() == "":
			l.mistake(at, "%s: its address is missing", at)
		case known[d.Address()] != "":
			l.mistake(at, "%s: is the same database as %s", at, known[d.Address()])
		}
		known[d.Address()] = name
	}
}
