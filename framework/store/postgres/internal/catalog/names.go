// Package catalog names what an outbox has in PostgreSQL, and distinguishes the server's errors.
package catalog

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/store"
)

// Names are the names of an outbox's tables, sequences, indexes and functions. They are always
// quoted, since a prefix may be an SQL keyword.
type Names struct {
	Schema string // "": the first one of the search path
	Prefix string
}

// Tables are what Names.Table takes for the tables of an outbox, without that of the migrations.
var Tables = []string{"", "cursors", "forwarders", "parked", "cancelled", "unique", "receipts", "inbox", "schedules", "actions", "endpoints", "attempts", "collections", "keys"}

// Parse parses postgres.Config.Prefix.
func Parse(prefix string) (Names, error) {
	schema, prefix, err := store.SplitPrefix(prefix)
	return Names{schema, prefix}, err
}

// Log returns the name of the log's table.
func (n Names) Log() string { return n.Table("") }

// Table returns the name of a table, a sequence or a function, such as "public"."outbox_cursors"
// for cursors; "" stands for the log.
func (n Names) Table(name string) string {
	if n.Schema == "" {
		return n.Name(name)
	}
	return pq.QuoteIdentifier(n.Schema) + `.` + n.Name(name)
}

// PathOfFunctions returns the clause with which functions find the tables if their bodies do not
// name the schema: the search path under which they are created.
func (n Names) PathOfFunctions() string {
	if n.Schema == "" {
		return " SET search_path FROM CURRENT"
	}
	return ""
}

// Name returns a name without schema, as for indexes and triggers.
func (n Names) Name(name string) string { return pq.QuoteIdentifier(n.Plain(name)) }

// Literal returns a table as an SQL text, for a regclass.
func (n Names) Literal(name string) string { return pq.QuoteLiteral(n.Table(name)) }

// Plain returns a name as in the catalog.
func (n Names) Plain(name string) string {
	if name == "" {
		return n.Prefix
	}
	return n.Prefix + "_" + name
}

// String is for messages.
func (n Names) String() string {
	if n.Schema == "" {
		return n.Prefix
	}
	return n.Schema + "." + n.Prefix
}

// Resolve sets the schema, so that all statements mean the same tables, whatever the search path
// of their session is: the schema in which the search path finds the log now, otherwise the one in
// which Migrate would create it.
func (n Names) Resolve(ctx context.Context, db *sql.DB) (Names, error) {
	if n.Schema != "" {
		return n, nil
	}
	err := db.QueryRowContext(ctx, `SELECT coalesce((SELECT nspname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
		WHERE c.oid = to_regclass($1) AND relkind IN ('r', 'p')), current_schema(), '')`, n.Log()).Scan(&n.Schema)
	switch {
	case err != nil:
		return n, fmt.Errorf("look for the schema of %s: %w", n, err)
	case n.Schema == "":
		return n, fmt.Errorf("%w: the search path of this role names no existing schema; name one, as in schema.%s", store.ErrNotMigrated, n.Prefix)
	}
	return n, nil
}
