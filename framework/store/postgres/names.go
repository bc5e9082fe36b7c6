package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/store"
)

// names are those of one outbox's tables, sequences, indexes and functions. All of
// them are quoted wherever they stand, since a prefix may be a word of SQL.
type names struct {
	schema string // "": the first one of the search path
	prefix string
}

// parseNames takes Config.Prefix.
func parseNames(prefix string) (names, error) {
	schema, prefix, err := store.SplitPrefix(prefix)
	return names{schema, prefix}, err
}

// Log is the log's table.
func (n names) Log() string { return n.Table("") }

// Table is a table, a sequence or a function, such as "public"."outbox_cursors" for
// cursors. The log has no name of its own.
func (n names) Table(name string) string {
	if n.schema == "" {
		return n.Name(name)
	}
	return pq.QuoteIdentifier(n.schema) + `.` + n.Name(name)
}

// PathOfFunctions is the clause with which functions find the tables beside them, where
// their bodies do not name the schema: the search path under which they are made.
func (n names) PathOfFunctions() string {
	if n.schema == "" {
		return " SET search_path FROM CURRENT"
	}
	return ""
}

// Name is a name that stands without its schema, as those of indexes and triggers do.
func (n names) Name(name string) string { return pq.QuoteIdentifier(n.plain(name)) }

// Literal is a table as a text in SQL, for what takes a regclass.
func (n names) Literal(name string) string { return pq.QuoteLiteral(n.Table(name)) }

// plain is a name as the catalog has it.
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

// resolve names the schema, so that all statements mean the same tables, whatever the
// search path of their session is: where the search path finds the log now, else where
// Migrate would make it.
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

// whole ends a SELECT, behind LIMIT: the statement fails where row-level security hides
// rows of one of the tables from this role. Where it hides all of them the planner drops
// the scan with its conditions, but never an OFFSET that it cannot compute.
//
// That needs nothing of the session, which may be a pooler's, or the application's with
// tables of its own to protect: row_security = off would refuse those too. The statement
// has a lock on each table that keeps security from being switched on behind it.
func whole(tables ...string) string { return ` OFFSET ` + nothingHidden(tables...) + `::bigint` }

// nothingHidden is 0, or fails as [hiddenRows].
func nothingHidden(tables ...string) string {
	hidden := make([]string, len(tables))
	for i, t := range tables {
		hidden[i] = `row_security_active(` + pq.QuoteLiteral(t) + `::regclass)`
	}
	return `ln((NOT (` + strings.Join(hidden, ` OR `) + `))::int)`
}

// hiddenRows is how [nothingHidden] fails: the logarithm of zero.
const hiddenRows = "2201E"
