package mysql

import (
	"fmt"
	"strings"
)

// grant has the privileges that a user needs on one table, or on the server.
type grant struct{ privileges, on string }

// process is the privilege to see which statements run.
var process = grant{"PROCESS", "*.*"}

const (
	appended = "id, type, version, `key`, occurred_on, deliver_at, metadata, payload"
	allOf    = `SELECT, INSERT, UPDATE, DELETE`
)

// duties has the least privileges for each duty. An INSERT that may find an existing row needs UPDATE,
// and so does a lock on rows.
func (n names) duties() map[string][]grant {
	publishing := []grant{
		{`INSERT (` + appended + `)`, ""}, {"SELECT (`offset`, id, type, `key`, deliver_at, due_id, due_key)", ""},
		{"SELECT (`offset`, id, type, `key`, state, due_at)", "parked"},
		{"SELECT, INSERT (`offset`, id, token), UPDATE (id, token)", "cancelled"}, {"SELECT, INSERT (type, `key`, until, token), UPDATE (until, token)", "unique"},
		{`SELECT, INSERT (id, subject, wrapped, under)`, "keys"},
	}
	return map[string][]grant{
		"publisher": append(publishing[:len(publishing):len(publishing)], grant{allOf, "endpoints"}, grant{`SELECT`, "attempts"}),
		"scheduler": append(publishing[:len(publishing):len(publishing)], grant{`SELECT, INSERT, UPDATE`, "schedules"}),
		"consumer":  {{`SELECT, INSERT, UPDATE`, "inbox"}},
		"forwarder": {
			{`SELECT, INSERT, DELETE`, ""}, {`SELECT`, "migrations"}, {allOf, "cursors"}, {allOf, "forwarders"}, {allOf, "parked"}, {allOf, "collections"},
			{`SELECT, INSERT, UPDATE, DELETE`, "receipts"}, {`SELECT, DELETE`, "inbox"}, {`SELECT, DELETE`, "cancelled"}, {`SELECT, DELETE`, "unique"},
			{`SELECT, UPDATE`, "endpoints"}, {allOf, "attempts"}, {`SELECT, INSERT (id, subject, wrapped, under)`, "keys"},
		},
		"operator": { // privacy purge deletes from each table in which a person may be named
			{`SELECT, UPDATE (payload), DELETE`, ""}, {`SELECT`, "migrations"}, {allOf, "cursors"}, {`SELECT`, "forwarders"}, {allOf, "parked"}, {`SELECT, UPDATE, DELETE`, "collections"},
			{`SELECT, UPDATE, DELETE`, "receipts"}, {`SELECT, INSERT, UPDATE`, "actions"}, {`SELECT, UPDATE, DELETE`, "schedules"}, {`SELECT, DELETE`, "cancelled"},
			{`SELECT, DELETE`, "inbox"}, {`SELECT, DELETE`, "unique"},
			{allOf, "endpoints"}, {`SELECT, UPDATE, DELETE`, "attempts"}, {`SELECT, INSERT, UPDATE`, "keys"},
		},
	}
}

// Grants returns the SQL that gives a user the least privileges for a duty: publisher, consumer,
// forwarder, scheduler or operator. An administrator runs it in the outbox's database, after Migrate;
// it can be run repeatedly. The user is name or name@host; the default host is %.
func Grants(c Config, user, duty string) (string, error) {
	c, err := c.withDefaults()
	if err != nil {
		return "", err
	}
	grants, err := c.grants(duty)
	if err != nil {
		return "", err
	}
	name, host := user, "%"
	if at := strings.LastIndexByte(user, '@'); at >= 0 {
		name, host = user[:at], user[at+1:]
	}
	var b strings.Builder
	for _, g := range grants {
		fmt.Fprintln(&b, g.to(quoted(name)+`@`+quoted(host)))
	}
	return b.String(), nil
}

// grants returns the grants of a duty.
func (c Config) grants(duty string) (grants []grant, err error) {
	n := names(c.Prefix)
	ofTables, known := n.duties()[duty]
	if !known {
		return nil, fmt.Errorf("unknown duty %q: use one of publisher, consumer, forwarder, scheduler, operator", duty)
	}
	if (duty == "forwarder" || duty == "operator") && c.WithoutProcess == ProofRequired {
		grants = append(grants, process)
	}
	for _, g := range ofTables {
		grants = append(grants, grant{g.privileges, n.Table(g.on)})
	}
	return grants, nil
}

// to returns the SQL that gives the grant to a user.
func (g grant) to(user string) string {
	return "GRANT " + g.privileges + " ON " + g.on + " TO " + user + ";"
}

func quoted(text string) string {
	return `'` + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(text) + `'`
}
