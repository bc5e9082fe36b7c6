package config

import (
	"net/url"
)

// checkStandby says what is wrong with where the log is read.
func (l *loader) checkStandby(c *Config) {
	const from, address = "outbox.read_from", "standby"
	given := l.given(address)
	if l.reported("database") || l.reported(address) || l.reported(from) {
		return
	}
	switch {
	case given && c.Standby.Dialect() != PostgreSQL:
		l.mistake(address, "standby: only a PostgreSQL has one")
	case given && c.Outbox.ReadFrom == "":
		l.mistake(address, "standby: nothing would be read there; add outbox.read_from: standby")
	case given && c.Standby.dsn == c.Database.dsn:
		l.mistake(address, "standby: is the address of the database itself")
	case c.Outbox.ReadFrom != ReadFromStandby:
	case c.Log != (Log{}):
		l.mistake(from, "outbox.read_from: a source is read, and no log of the database")
	case c.Database.Dialect() != PostgreSQL && c.Database.Dialect() != "":
		l.mistake(from, "outbox.read_from: only on PostgreSQL a standby can be read")
	case !given && c.Database.Dialect() == PostgreSQL && !c.Database.hosts:
		l.mistake(from, "outbox.read_from: say where the standby is: write its address as standby, or name all hosts in database")
	}
}

// standby is where the pages of the log are read; the zero value where that is the primary.
func (c *Config) standby() Database {
	switch {
	case c.Outbox.ReadFrom != ReadFromStandby:
		return Database{}
	case c.Standby.Dialect() != "":
		return c.Standby
	}
	return c.Database.standby()
}

// standby is the address of the standby among several hosts, whichever it is after a failover.
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
