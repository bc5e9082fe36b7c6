package config

import "net/url"

// checkStandby reports the mistakes of standby and outbox.read_from.
func (l *loader) checkStandby(c *Config) {
	const from, address = "outbox.read_from", "standby"
	given := l.given(address)
	if l.reported("database") || l.reported(address) || l.reported(from) {
		return
	}
	switch {
	case given && c.Standby.Dialect() != PostgreSQL:
		l.mistake(address, "standby: only PostgreSQL has standbys: leave it out")
	case given && c.Outbox.ReadFrom == "":
		l.mistake(address, "standby: nothing is read there: set outbox.read_from: standby, or leave it out")
	case given && c.Standby.dsn == c.Database.dsn:
		l.mistake(address, "standby: is the address of the database itself: write that of a standby, or leave it out")
	case c.Outbox.ReadFrom != ReadFromStandby:
	case c.Log != (Log{}):
		l.mistake(from, "outbox.read_from: with a source, the log is not in the database: leave it out")
	case c.Database.Dialect() != PostgreSQL && c.Database.Dialect() != "":
		l.mistake(from, "outbox.read_from: only PostgreSQL has standbys: leave it out")
	case !given && c.Database.Dialect() == PostgreSQL && !c.Database.hosts:
		l.mistake(from, "outbox.read_from: the standby's address is missing: set standby, or name all hosts in database")
	}
}

// standby returns the server from which the log is read; the zero value means the primary.
func (c *Config) standby() Database {
	switch {
	case c.Outbox.ReadFrom != ReadFromStandby:
		return Database{}
	case c.Standby.Dialect() != "":
		return c.Standby
	}
	return c.Database.standby()
}

// standby returns an address that leads to the standby among several hosts.
func (d Database) standby() Database {
	const attribute, value = "target_session_attrs", "standby"
	its := d
	if address, err := url.Parse(d.dsn); err == nil && address.Scheme != "" {
		query := address.Query()
		query.Set(attribute, value)
		address.RawQuery = query.Encode()
		its.dsn = address.String()
	} else {
		its.dsn += " " + attribute + "=" + value // the last one counts
	}
	return its
}
