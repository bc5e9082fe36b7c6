package config

import (
	"encoding"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/config/internal/secret"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

// Dialect is a kind of database.
type Dialect string

// The kinds of database that an outbox can be in.
const (
	PostgreSQL Dialect = "postgres"
	SQLite     Dialect = "sqlite"
	MySQL      Dialect = "mysql" // and MariaDB
)

// Database is the address of a database. Printing it does not show the password.
type Database struct {
	dialect Dialect
	dsn     string
	shown   string
	hosts   bool // whether it names several hosts
}

var (
	_ encoding.TextUnmarshaler = (*Database)(nil)
	_ fmt.Stringer             = Database{}
	_ fmt.GoStringer           = Database{}
	_ slog.LogValuer           = Database{}
)

// keyValueList matches the start of the key=value form.
var keyValueList = regexp.MustCompile(`^\s*\w+\s*=`)

// ParseDatabase parses an address as in the configuration. Errors do not quote it, because it
// may contain a password. Line ends at its end do not count.
func ParseDatabase(address string) (Database, error) {
	address = strings.TrimRight(address, "\r\n")
	scheme, rest, _ := strings.Cut(address, ":")
	switch strings.ToLower(scheme) {
	case "postgres", "postgresql":
		if strings.HasPrefix(rest, "//") {
			return parsePostgresURL(address)
		}
	case "sqlite":
		return parseSQLite(rest)
	case "mysql", "mariadb":
		return parseMySQL(address)
	}
	if keyValueList.MatchString(address) {
		return parsePostgresList(address)
	}
	return Database{}, errors.New("is not a database address; write postgres://user:password@host:port/name, a list of key=value, mysql://user:password@host:port/name, or sqlite:path")
}

func parsePostgresURL(address string) (Database, error) {
	if _, err := url.Parse(address); err != nil {
		return Database{}, errors.New("is not a valid URL; percent-encode special characters in user and password")
	}
	return parsePostgres(address)
}

func parsePostgresList(address string) (Database, error) {
	if d, err := parsePostgres(address); err == nil || !strings.Contains(err.Error(), "missing") {
		return d, err
	}
	// pq's error quotes a word, which may be the second half of a password.
	return Database{}, errors.New("is not a valid list of key=value; put values with spaces in single quotes")
}

func parsePostgres(address string) (Database, error) {
	address = postgres.PlainDSN(address)
	c, err := pq.NewConfig(address)
	if err != nil {
		return Database{}, errors.New(strings.TrimPrefix(err.Error(), "pq: "))
	}
	return Database{
		dialect: PostgreSQL,
		dsn:     address,
		shown:   fmt.Sprintf("postgres database %q at %s:%d as %q", c.Database, c.Host, c.Port, c.User),
		hosts:   len(c.Multi) > 0,
	}, nil
}

func parseMySQL(address string) (Database, error) {
	a, err := mysql.ParseAddress(address)
	if err != nil {
		return Database{}, err
	}
	scheme, _, _ := strings.Cut(address, ":")
	return Database{dialect: MySQL, dsn: address, shown: fmt.Sprintf("%s database %q at %s as %q", strings.ToLower(scheme), a.Database, a.Host, a.User)}, nil
}

func parseSQLite(path string) (Database, error) {
	switch {
	case path == "":
		return Database{}, errors.New("does not name a file; write sqlite:path, such as sqlite:outbox.db")
	case strings.HasPrefix(path, "//"):
		return Database{}, errors.New("is ambiguous; write sqlite:path without // before the path, such as sqlite:outbox.db or sqlite:/var/lib/outbox.db")
	case strings.Contains(path, ":memory:"):
		return Database{}, errors.New("is in memory, where no other program can read it; name a file")
	}
	return Database{dialect: SQLite, dsn: path, shown: "SQLite database " + path}, nil
}

// HasPassword reports whether an address has a password in the clear, rather than a reference to a
// variable or a file.
func HasPassword(address string) bool { return secret.Password.Masked(address) != address }

// Dialect returns the kind of database; "" for the zero value.
func (d Database) Dialect() Dialect { return d.dialect }

// DSN returns what the driver takes: a URL or the key=value form for PostgreSQL, a URL for MySQL
// and MariaDB, a path for SQLite. It may contain a password.
func (d Database) DSN() string { return d.dsn }

// String describes the database without its password.
func (d Database) String() string { return d.shown }

// GoString returns String, for %#v.
func (d Database) GoString() string { return d.shown }

// LogValue returns String, for slog.
func (d Database) LogValue() slog.Value { return slog.StringValue(d.shown) }

// UnmarshalText parses an address with [ParseDatabase].
func (d *Database) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDatabase(string(text))
	return err
}
