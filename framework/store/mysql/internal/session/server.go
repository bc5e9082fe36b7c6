package session

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// The oldest supported servers. The store needs expressions as defaults, checks, JSON_TABLE, and binary
// collations without padding.
const (
	minMySQL   = 8_00_17
	minMariaDB = 10_06_00
)

// Server is the family and version of a server.
type Server struct {
	Family    Family
	version   int // 80031 for 8.0.31
	Collation string
}

// checkServer refuses a server on which the store does not work or would lose rows.
func Check(ctx context.Context, db *sql.DB) (s Server, err error) {
	var text string
	if err := db.QueryRowContext(ctx, `SELECT VERSION()`).Scan(&text); err != nil {
		return s, fmt.Errorf("connect to MySQL: %w", err)
	}
	if s, err = ParseServer(text); err != nil {
		return s, err
	}
	if err := checkSession(ctx, db); err != nil {
		return s, err
	}
	if err := checkClock(ctx, db); err != nil {
		return s, err
	}
	if err := checkPages(ctx, db); err != nil {
		return s, err
	}
	return s, CheckTopology(func(name string) (string, error) {
		value, err := Variable(ctx, db, name)
		if err != nil {
			err = fmt.Errorf("look up %s: %w", name, err)
		}
		return value, err
	})
}

// checkPages refuses a server whose pages are too small for the indexes: a key of utf8mb4 texts has up
// to 3072 bytes, and an index takes that only with pages of 16 KiB.
func checkPages(ctx context.Context, db *sql.DB) error {
	var bytes int
	if err := db.QueryRowContext(ctx, `SELECT @@innodb_page_size`).Scan(&bytes); err != nil {
		return fmt.Errorf("look up innodb_page_size: %w", err)
	}
	if bytes < 16<<10 {
		return fmt.Errorf("%w: innodb_page_size is %d, which is too small for the indexes of an outbox: use a server that was initialized with innodb_page_size = 16k, the default, or more",
			store.ErrUnsupported, bytes)
	}
	return nil
}

// ParseServer reads what VERSION() says, such as 8.0.31 or 10.11.19-MariaDB-0+deb12u1.
func ParseServer(text string) (Server, error) {
	s := Server{Family: Families[0], Collation: "utf8mb4_0900_bin"}
	minimum, least := minMySQL, "8.0.17"
	switch {
	case strings.Contains(text, "MariaDB"):
		s.Family, s.Collation = Families[1], "utf8mb4_nopad_bin"
		minimum, least = minMariaDB, "10.6"
		text = strings.TrimPrefix(text, "5.5.5-") // a prefix of some proxies
	case strings.Contains(text, "TiDB"), strings.Contains(text, "Vitess"), strings.Contains(text, "OceanBase"):
		return s, fmt.Errorf("%w: %s has the protocol of MySQL but not InnoDB, which readers need; use MySQL or MariaDB", store.ErrUnsupported, text)
	}
	var major, minor, patch int
	if _, err := fmt.Sscanf(text, "%d.%d.%d", &major, &minor, &patch); err != nil {
		return s, fmt.Errorf("%w: unknown server version %q", store.ErrUnsupported, text)
	}
	s.version = major*1_00_00 + minor*1_00 + patch
	if s.version < minimum {
		return s, fmt.Errorf("%w: %s %s is too old: %s or later is needed", store.ErrUnsupported, s.Family.Name, text, least)
	}
	return s, nil
}

// checkClock refuses a handle that reads a DATETIME in a zone other than UTC.
func checkClock(ctx context.Context, db *sql.DB) error {
	var at any
	if err := db.QueryRowContext(ctx, `SELECT CAST('2026-07-01 12:00:00' AS DATETIME)`).Scan(&at); err != nil {
		return fmt.Errorf("connect to MySQL: %w", err)
	}
	if t, isTime := at.(time.Time); isTime && !t.Equal(time.Date(2026, time.July, 1, 12, 0, 0, 0, time.UTC)) {
		return fmt.Errorf("%w: the database handle reads times in the zone %s: remove loc=… from its address, or open a separate handle for the outbox with mysql.OpenDB",
			store.ErrUnsupported, t.Location())
	}
	return nil
}

// Variable returns a variable of the server; "" if it has none with this name.
func Variable(ctx context.Context, q store.RowQuerier, name string) (string, error) {
	var key, value string
	err := q.QueryRowContext(ctx, `SHOW GLOBAL VARIABLES WHERE Variable_name = '`+name+`'`).Scan(&key, &value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return value, err
}

// topology has the settings with which rows would be lost, each with the problem and its fix.
var topology = []struct{ name, bad, wrong, mend string }{
	{"wsrep_on", "ON", "the server is part of a Galera cluster, whose nodes assign offsets independently of each other",
		"keep the outbox on a server that alone takes writes"},
	{"group_replication_single_primary_mode", "OFF", "the server is part of a group with several primaries, which assign offsets independently of each other",
		"SELECT group_replication_switch_to_single_primary_mode()"},
	{"innodb_read_only", "ON", "the server is a replica, which may show rows in another order than its primary", "name the primary in the database's address"},
}

func CheckTopology(variable func(name string) (string, error)) error {
	for _, t := range topology {
		value, err := variable(t.name)
		if err != nil {
			return err
		}
		if value == t.bad {
			return fmt.Errorf("%w: %s: %s", store.ErrUnsupported, t.wrong, t.mend)
		}
	}
	for _, name := range []string{"auto_increment_increment", "auto_increment_offset"} {
		value, err := variable(name)
		if err != nil {
			return err
		}
		if value != "1" {
			return fmt.Errorf("%w: %s is %s, as in clusters where several servers hand out offsets, but readers need a single one: SET GLOBAL %s = 1, also in the server's configuration",
				store.ErrUnsupported, name, value, name)
		}
	}
	value, err := variable("read_only")
	if err == nil && value == "ON" {
		err = fmt.Errorf("%w: the server is a replica, or read_only is on: name the primary in the database's address", store.ErrUnsupported)
	}
	return err
}
