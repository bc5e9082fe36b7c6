package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/store"
)

// names are the names of an outbox's tables, sequences, indexes and functions. They are always
// quoted, since a prefix may be an SQL keyword.
type names struct {
	schema string // "": the first one of the search path
	prefix string
}

// tableNames are what Table takes for the tables of an outbox, without that of the migrations.
var tableNames = []string{"", "cursors", "forwarders", "parked", "cancelled", "unique", "receipts", "inbox", "schedules", "actions"}

// parseNames parses Config.Prefix.
func parseNames(prefix string) (names, error) {
	schema, prefix, err := store.SplitPrefix(prefix)
	return names{schema, prefix}, err
}

// Log returns the name of the log's table.
func (n names) Log() string { return n.Table("") }

// Table returns the name of a table, a sequence or a function, such as "public"."outbox_cursors"
// for cursors; "" stands for the log.
func (n names) Table(name string) string {
	if n.schema == "" {
		return n.Name(name)
	}
	return pq.QuoteIdentifier(n.schema) + `.` + n.Name(name)
}

// PathOfFunctions returns the clause with which functions find the tables if their bodies do not
// name the schema: the search path under which they are created.
func (n names) PathOfFunctions() string {
	if n.schema == "" {
		return " SET search_path FROM CURRENT"
	}
	return ""
}

// Name returns a name without schema, as for indexes and triggers.
func (n names) Name(name string) string { return pq.QuoteIdentifier(n.plain(name)) }

// Literal returns a table as an SQL text, for a regclass.
func (n names) Literal(name string) string { return pq.QuoteLiteral(n.Table(name)) }

// plain returns a name as in the catalog.
func (n names) plain(name string) string {
	if name == "" {
		return n.prefix
	}
	return n.prefix + "_" + name
}

// String is for messages.
func (n names) String() string {
	if n.schema == "" {
		return n.prefix
	}
	return n.schema + "." + n.prefix
}

// resolve sets the schema, so that all statements mean the same tables, whatever the search path
// of their session is: the schema in which the search path finds the log now, otherwise the one in
// which Migrate would create it.
func (n names) resolve(ctx context.Context, db *sql.DB) (names, error) {
	if n.schema != "" {
		return n, nil
	}
	err := db.QueryRowContext(ctx, `SELECT coalesce((SELECT nspname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
		WHERE c.oid = to_regclass($1) AND relkind IN ('r', 'p')), current_schema(), '')`, n.Log()).Scan(&n.schema)
	switch {
	case err != nil:
		return n, fmt.Errorf("look for the schema of %s: %w", n, err)
	case n.schema == "":
		return n, fmt.Errorf("%w: the search path of this role names no existing schema; name one, as in schema.%s", store.ErrNotMigrated, n.prefix)
	}
	return n, nil
}

// whole ends a SELECT, after LIMIT, so that the statement fails if row-level security hides rows of
// one of the tables from this role. If it hides all of them, the planner drops the scan with its
// conditions, but never an OFFSET that it cannot compute.
//
// This needs nothing from the session, which may be a pooler's, or the application's with its own
// protected tables: row_security = off would refuse those too. The statement locks each table, so
// that security cannot be enabled meanwhile.
func whole(tables ...string) string { return ` OFFSET ` + nothingHidden(tables...) + `::bigint` }

// nothingHidden returns an expression that is 0, or fails with [hiddenRows].
func nothingHidden(tables ...string) string {
	hidden := make([]string, len(tables))
	for i, t := range tables {
		hidden[i] = `row_security_active(` + pq.QuoteLiteral(t) + `::regclass)`
	}
	return `ln((NOT (` + strings.Join(hidden, ` OR `) + `))::int)`
}

// hiddenRows is the code with which [nothingHidden] fails: the logarithm of zero.
const hiddenRows = "2201E"
