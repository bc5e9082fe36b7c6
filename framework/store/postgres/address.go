package postgres

import (
	"regexp"
	"slices"
	"strings"

	"github.com/lib/pq"
)

// PlainDSN returns an address, a URL or the key=value form, without what only pgx understands, such as
// pool_max_conns: lib/pq would send it to the server, which refuses it. So an application can have one
// address for both. Line ends at the end are left out, too.
func PlainDSN(dsn string) string {
	dsn = strings.TrimRight(dsn, "\r\n")
	if !strings.Contains(dsn, "://") {
		return strings.TrimSpace(pair.ReplaceAllStringFunc(dsn, func(found string) string {
			if name, _, _ := strings.Cut(strings.TrimSpace(found), "="); onlyPgx(strings.TrimSpace(name)) {
				return ""
			}
			return found
		}))
	}
	address, query, _ := strings.Cut(dsn, "?")
	parameters := slices.DeleteFunc(strings.Split(query, "&"), func(p string) bool {
		name, _, _ := strings.Cut(p, "=")
		return name == "" || onlyPgx(name)
	})
	if len(parameters) == 0 {
		return address
	}
	return address + "?" + strings.Join(parameters, "&")
}

// pair is a key=value of libpq with the space before it; a value in quotes may contain others.
var pair = regexp.MustCompile(`\s*[\w.]+\s*=\s*(?:'(?:[^'\\]|\\.)*'|(?:[^\s\\]|\\.)*)`)

// onlyPgx reports whether pgx or pgxpool takes a parameter out of the address.
func onlyPgx(name string) bool {
	switch name {
	case "default_query_exec_mode", "statement_cache_capacity", "statement_cache_mode", "description_cache_capacity", "min_read_buffer_size":
		return true
	}
	return strings.HasPrefix(name, "pool_")
}

// parseDSN parses an address and the variables PGHOST, PGPASSWORD and so on, without line ends at their ends.
func parseDSN(dsn string) (pq.Config, error) {
	c, err := pq.NewConfig(PlainDSN(dsn))
	for _, value := range []*string{&c.Host, &c.User, &c.Password, &c.Database} {
		*value = strings.TrimRight(*value, "\r\n")
	}
	return c, err
}
