package mysql

import (
	"fmt"
	"strings"
)

// grant is what a user needs of one table.
type grant struct{ privileges, table string }

const (
	appended = "id, type, version, `key`, occurred_on, deliver_at, metadata, payload"
	allOf    = `SELECT, INSERT, UPDATE, DELETE`
)

// duties are what users of the database do with an outbox, with the least privileges for each. An
// INSERT that may meet a row needs UPDATE, and a lock on rows too.
func (n names) duties() map[string][]grant {
	publishing := []grant{
		{`INSERT (` + appended + `)`, ""}, {"SELECT (`offset`, id, type, `key`, deliver_at, due_id, due_key)", ""},
		{"SELECT (`offset`, id, type, `key`, state, due_at)", "parked"},
		{`SELECT, INSERT, UPDATE`, "cancelled"}, {`SELECT, INSERT, UPDATE`, "unique"},
	}
	return map[string][]grant{
		"publisher": publishing,
		"scheduler": append(publishing[:len(publishing):len(publishing)], grant{`SELECT, INSERT, UPDATE`, "schedules"}),
		"consumer":  {{`SELECT, INSERT, UPDATE`, "inbox"}},
		"forwarder": {
			{`SELECT, INSERT, DELETE`, ""}, {`SELECT`, "migrations"}, {allOf, "cursors"}, {allOf, "forwarders"}, {allOf, "parked"},
			{`SELECT, INSERT, UPDATE, DELETE`, "receipts"}, {`SELECT, DELETE`, "inbox"}, {`SELECT, DELETE`, "cancelled"}, {`SELECT, DELETE`, "unique"},
		},
		"operator": {
			{`SELECT`, ""}, {`SELECT`, "migrations"}, {allOf, "cursors"}, {`SELECT`, "forwarders"}, {allOf, "parked"}, {`SELECT, DELETE`, "receipts"},
			{`SELECT, INSERT, UPDATE`, "actions"}, {`SELECT, UPDATE, DELETE`, "schedules"}, {`SELECT`, "cancelled"},
		},
	}
}

// Grants returns the SQL that gives a user the least privileges for a duty: publisher, consumer,
// forwarder, scheduler or operator. It is for an administrator who uses the outbox's database, behind
// Migrate, and may be run again. A user is name or name@host; the host is % where there is none.
func Grants(c Config, user, duty string) (string, error) {
	c, err := c.withDefaults()
	if err != nil {
		return "", err
	}
	n := names(c.Prefix)
	grants, known := n.duties()[duty]
	if !known {
		return "", fmt.Errorf("unknown duty %q: use one of publisher, consumer, forwarder, scheduler, operator", duty)
	}
	name, host, hasHost := strings.Cut(user, "@")
	if !hasHost {
		host = "%"
	}
	to := ` TO ` + quoted(name) + `@` + quoted(host)
	var b strings.Builder
	if duty == "forwarder" && c.WithoutProcess == ProofRequired || duty == "operator" && c.WithoutProcess == ProofRequired {
		fmt.Fprintf(&b, "GRANT PROCESS ON *.*%s;\n", to)
	}
	for _, g := range grants {
		fmt.Fprintf(&b, "GRANT %s ON %s%s;\n", g.privileges, n.Table(g.table), to)
	}
	return b.String(), nil
}

func quoted(text string) string {
	return `'` + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(text) + `'`
}
