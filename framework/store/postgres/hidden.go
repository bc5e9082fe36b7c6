package postgres

import (
	"strings"

	"github.com/lib/pq"
)

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
