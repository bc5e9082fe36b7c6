package config

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/config/internal/keys"
	"github.com/waybill-go/waybill/framework/config/internal/secret"
	"github.com/waybill-go/waybill/framework/forwarder/fleet"
)

// Fleet has the settings of a forwarder of several databases; see package fleet.
type Fleet struct {
	// Address of a control database, which assigns each database of the fleet to one forwarder by a
	// lease. waybill migrate --in control creates its tables. Default: none, and each forwarder
	// works on all databases.
	Control Database `yaml:"control" secret:"password"`
	// Instead of databases, a query of the control database that returns their names and addresses,
	// as in SELECT name, url FROM tenants WHERE active. It runs every minute, and on SIGHUP.
	Query string `yaml:"query" secret:"false"`
	// Time without work after which a database sleeps: its lanes are released, and one query a
	// second looks for new notifications, for all schemas of a database together. At least 1s; 0
	// keeps all databases awake. Default 10s.
	Sleep *time.Duration `yaml:"sleep"`
	// Most connections to PostgreSQL and MySQL of this process, over all databases, at least 8.
	// Default 64.
	Connections int `yaml:"connections" zero:"refused"`
}

// Defaults of a fleet.
const (
	DefaultFleetConnections = 64
	leastFleetConnections   = 8
)

// fleetPrefix begins the names of the fleet's tables in the control database. Fleets that share a server
// have a database, or a schema, each.
const fleetPrefix = "waybill_fleet"

// ControlName is the name of the control database for --in.
const ControlName = "control"

// HasFleet reports whether there are several databases.
func (c *Config) HasFleet() bool { return len(c.Databases) > 0 || c.Fleet.Query != "" }

// TablesIn returns what a forwarder needs to open one database of the fleet.
func (c *Config) TablesIn(d Database) Tables {
	listen := c.Forwarder.Listen == nil || *c.Forwarder.Listen
	return Tables{Database: d, Outbox: c.Outbox, Logger: c.options.Logger, Listen: listen}
}

// ControlTables returns what is needed to open the control database.
func (f Fleet) ControlTables() Tables {
	return Tables{Database: f.Control, Outbox: Outbox{Prefix: fleetPrefix}}
}

// FleetDatabase returns a database as a fleet takes it. A wrong name or address is its Mistake.
func FleetDatabase(name, address string) fleet.Database {
	d := fleet.Database{Name: cmp.Or(name, "?"), Address: address, Identity: secret.Password.Masked(address)}
	switch _, err := ParseDatabase(address); {
	case !isDatabaseName(name):
		d.Mistake = databaseNames
	case address == "":
		d.Mistake = "its address is missing"
	case err != nil:
		d.Mistake = "its address " + err.Error()
	}
	return d
}

const databaseNames = "a database's name is up to 63 letters, digits, dots, dashes and underscores, beginning with a letter or digit, and not " + ControlName

func isDatabaseName(name string) bool { return sinkName.MatchString(name) && name != ControlName }

// Address returns the address as [ParseDatabase] takes it. It may contain a password.
func (d Database) Address() string {
	if d.dialect == SQLite {
		return "sqlite:" + d.dsn
	}
	return d.dsn
}

// FleetOf returns databases as a fleet takes them, sorted by name.
func FleetOf(databases map[string]Database) fleet.Static {
	var all fleet.Static
	for _, name := range slices.Sorted(maps.Keys(databases)) {
		address := databases[name].Address()
		all = append(all, fleet.Database{Name: name, Address: address, Identity: secret.Password.Masked(address)})
	}
	return all
}

// LoadFleet reads only the keys that locate outboxes, and returns databases and fleet. Both are empty if
// there is one database.
func LoadFleet(source Source) (map[string]Database, Fleet, error) {
	c, err := read(source, Options{}, located, (*loader).checkTables)
	return c.Databases, c.Fleet, err
}

// Listeners returns how many of the connections may listen for notifications, one for each database that is
// awake.
func (f Fleet) Listeners() int { return f.Connections / 4 }

// Awake returns how many databases the forwarder works on at once: two of the connections for each, besides
// the listeners.
func (f Fleet) Awake() int { return (f.Connections - f.Listeners()) / 2 }

// SleepAfter returns Sleep as a fleet takes it.
func (f Fleet) SleepAfter() time.Duration {
	if *f.Sleep == 0 {
		return fleet.Never
	}
	return *f.Sleep
}

// WithDefaults returns the settings with defaults filled in.
func (f Fleet) WithDefaults() Fleet {
	sleep := fleet.DefaultSleep
	f.Sleep = cmp.Or(f.Sleep, &sleep)
	f.Connections = cmp.Or(f.Connections, DefaultFleetConnections)
	return f
}

// checkFleet reports the mistakes of databases and fleet.
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
		l.mistake(one, "database: databases or fleet is set, too: leave one of them out")
	case len(c.Databases) > 0 && c.Fleet.Query != "":
		l.mistake(query, "fleet.query: databases is set, too: leave one of them out")
	case len(c.Databases) == 0 && c.Fleet.Query == "":
		l.mistake(several, "databases: there are none: name them, as in databases: {eu: postgres://…, us: postgres://…}, or set fleet.query")
	case c.Fleet.Query != "" && c.Fleet.Control.Dialect() == "" && !l.reported("fleet.control"):
		l.mistake(query, "fleet.query: it runs in the control database, whose address is missing: set fleet.control")
	}
	l.checkDatabases(c.Databases)
	if s := c.Fleet.Sleep; s != nil && *s != 0 && *s < time.Second {
		l.mistake("fleet.sleep", "fleet.sleep is %s: use at least 1s, or 0 to keep all databases awake", *s)
	}
	if n := c.Fleet.Connections; n != 0 && n < leastFleetConnections {
		l.mistake("fleet.connections", "fleet.connections is %d: use at least %d", n, leastFleetConnections)
	}
	if c.Log != (Log{}) {
		l.mistake("source", "source: it needs a single database: leave out databases and fleet")
	}
	if len(c.Schedules) > 0 {
		l.mistake("schedules", "schedules: they need a single database: run another forwarder for them, with the key database")
	}
}

// checkDatabases reports invalid names, and databases that are listed twice: two outboxes would share
// the same tables.
func (l *loader) checkDatabases(databases map[string]Database) {
	known := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(databases)) {
		at, d := keys.Join("databases", name), databases[name]
		switch {
		case l.reported(at):
			continue
		case !isDatabaseName(name):
			l.mistake(at, "%s: %s", at, databaseNames)
		case d.Dialect() == "":
			l.mistake(at, "%s: its address is missing", at)
		case known[d.Address()] != "":
			l.mistake(at, "%s: this is the same database as %s", at, known[d.Address()])
		}
		known[d.Address()] = name
	}
}
