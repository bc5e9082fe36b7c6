package postgres

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/store/postgres/internal/catalog"
)

// Duty is what a database role does with an outbox.
type Duty string

// The duties.
const (
	// Publisher appends notifications in the application's transactions, cancels them, and keeps
	// them unique. To cancel them, it can see which are scheduled, but not their content. It manages
	// customers' endpoints, and sees the attempts at them.
	Publisher Duty = "publisher"
	// Consumer notes handled ids in the inbox.
	Consumer Duty = "consumer"
	// Forwarder delivers, and removes old rows. It appends the notifications that its sinks publish for
	// themselves, in its checkpoints. Only the owner of the log can create and drop partitions.
	Forwarder Duty = "forwarder"
	// Scheduler publishes the notifications of schedules in its own transactions, and keeps them
	// unique.
	Scheduler Duty = "scheduler"
	// Operator runs the commands for people: status, why, requeue, replay, pause.
	Operator Duty = "operator"
)

// Duties returns all duties.
func Duties() []Duty { return []Duty{Publisher, Consumer, Forwarder, Scheduler, Operator} }

// grant is what a role needs on one relation.
type grant struct{ privileges, on string }

// grants returns the least privileges. Locking rows needs UPDATE, and an INSERT that may conflict
// with a row needs SELECT. What the log computes itself needs nothing, except the sequence in the
// default of a partitioned log.
func (d Duty) grants(n names) ([]grant, error) {
	table := func(name string) string { return `TABLE ` + n.Table(name) }
	sequence := `SEQUENCE ` + n.Table("offset_seq")
	const all = `SELECT, INSERT, UPDATE, DELETE`
	publishing := []grant{
		{`INSERT (` + appended + `)`, table("")}, {`USAGE`, sequence},
		{`SELECT ("offset", id, type, key, deliver_at)`, table("")}, {`SELECT ("offset", id, type, key, state, due_at)`, table("parked")},
		{`SELECT, INSERT ("offset", id)`, table("cancelled")}, {`SELECT, INSERT (type, key, until), UPDATE (until)`, table("unique")},
		{`SELECT, INSERT (id, subject, wrapped, under)`, table("keys")},
	}
	switch d {
	case Publisher:
		return append(publishing, grant{all, table("endpoints")}, grant{`SELECT`, table("attempts")},
			grant{`EXECUTE`, `FUNCTION ` + n.Table("publish")}, grant{`EXECUTE`, `FUNCTION ` + n.Table("cancel")}), nil
	case Scheduler:
		return append(publishing, grant{`SELECT, INSERT, UPDATE`, table("schedules")}), nil
	case Forwarder:
		return []grant{
			{`SELECT, INSERT (` + appended + `), DELETE`, table("")}, {`SELECT, USAGE`, sequence}, {`SELECT`, table("migrations")},
			{all, table("cursors")}, {all, table("forwarders")}, {all, table("parked")}, {all, table("collections")}, {`SELECT, INSERT, DELETE`, table("receipts")},
			{`SELECT, DELETE`, table("inbox")}, {`SELECT, DELETE`, table("cancelled")}, {`SELECT, DELETE`, table("unique")},
			{`SELECT, UPDATE`, table("endpoints")}, {`SELECT, INSERT, DELETE`, table("attempts")}, {`SELECT`, table("actions")},
			{`SELECT, INSERT (id, subject, wrapped, under)`, table("keys")},
		}, nil
	case Consumer:
		return []grant{{`SELECT, INSERT`, table("inbox")}, {`EXECUTE`, `FUNCTION ` + n.Table("first")}}, nil
	case Operator: // privacy purge deletes from each table in which a person may be named
		return []grant{
			{`SELECT, UPDATE (payload), DELETE`, table("")}, {`SELECT`, sequence}, {`SELECT`, table("migrations")},
			{all, table("cursors")}, {`SELECT`, table("forwarders")}, {all, table("parked")}, {`SELECT, UPDATE, DELETE`, table("collections")}, {`SELECT, UPDATE, DELETE`, table("receipts")},
			{`SELECT, INSERT, UPDATE`, table("actions")}, {`SELECT, UPDATE, DELETE`, table("schedules")}, {`SELECT, DELETE`, table("cancelled")},
			{`SELECT, DELETE`, table("inbox")}, {`SELECT, DELETE`, table("unique")},
			{all, table("endpoints")}, {`SELECT, UPDATE, DELETE`, table("attempts")}, {`SELECT, INSERT, UPDATE`, table("keys")},
		}, nil
	}
	return nil, fmt.Errorf("unknown duty %q: use one of %s", d, strings.Join(dutyNames(), ", "))
}

func dutyNames() (names []string) {
	for _, d := range Duties() {
		names = append(names, string(d))
	}
	return slices.Clip(names)
}

// Grants returns the SQL that gives a role the least privileges for a duty. The owner of the
// tables runs it after Migrate, and may run it again. A role may have several duties.
func Grants(c Config, role string, d Duty) (string, error) {
	c, err := c.withDefaults()
	if err != nil {
		return "", err
	}
	n, err := catalog.Parse(c.Prefix)
	if err != nil {
		return "", err
	}
	grants, err := d.grants(n)
	if err != nil {
		return "", err
	}
	to := ` TO ` + pq.QuoteIdentifier(role)
	var b strings.Builder
	schema := `public`
	if n.Schema != "" {
		schema = pq.QuoteIdentifier(n.Schema)
		fmt.Fprintf(&b, "GRANT USAGE ON SCHEMA %s%s;\n", schema, to)
	} else {
		fmt.Fprintf(&b, "DO %s;\n", dollarQuoted(fmt.Sprintf(" BEGIN\n    IF NOT has_schema_privilege(%s, current_schema(), 'USAGE') THEN\n"+
			"        EXECUTE format('GRANT USAGE ON SCHEMA %%I TO %%I', current_schema(), %s);\n    END IF;\nEND ",
			pq.QuoteLiteral(role), pq.QuoteLiteral(role))))
	}
	for _, g := range grants {
		fmt.Fprintf(&b, "GRANT %s ON %s%s;\n", g.privileges, g.on, to)
	}
	if d == Publisher || d == Consumer {
		fmt.Fprintf(&b, "-- Anyone who may create functions in the schema of the outbox can replace those of Waybill:\n-- REVOKE CREATE ON SCHEMA %s FROM PUBLIC;\n", schema)
	}
	return b.String(), nil
}

// dollarQuoted quotes a text with dollars, with a tag that it does not contain.
func dollarQuoted(text string) string {
	tag := "$$"
	for n := 1; strings.Contains(text, tag); n++ {
		tag = fmt.Sprintf("$q%d$", n)
	}
	return tag + text + tag
}
