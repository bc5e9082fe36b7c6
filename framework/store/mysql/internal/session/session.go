// Package session opens sessions of MySQL and MariaDB that know their server, and refuses servers and
// sessions with which an outbox does not work.
package session

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/store"
)

// setting is a variable of a session on which the meaning of the store's statements depends. Its global
// value, which new sessions take over, belongs to the server's administrator.
type setting struct {
	name string
	// value is what a session of OpenDB gets, and shown how the server shows it; "" if other handles may
	// have another one.
	value, shown string
	// otherwise is what happens with another value.
	otherwise string
}

// settings are set by a statement for each new session of OpenDB, and checked in other handles. Limits of
// time and memory are not among them: with those a statement fails, and the forwarder tries again.
var settings = []setting{
	{"autocommit", `1`, "ON", "a statement without a transaction commits nothing"},
	{"completion_type", `NO_CHAIN`, "NO_CHAIN", "a commit begins the next transaction, or ends the session"},
	{"sql_select_limit", `18446744073709551615`, "18446744073709551615", "lists end early, and rows are skipped"},
	{"sql_big_selects", `1`, "ON", "a large log cannot be read: max_join_size applies"},
	{"sql_safe_updates", `0`, "OFF", "the server refuses statements that change rows by their state"},
	{"sql_auto_is_null", `0`, "OFF", "a condition IS NULL may find the row that was inserted last"},
	{"unique_checks", `1`, "ON", "the server need not find duplicates"},
	{"group_concat_max_len", `1048576`, "", ""},
	{"max_sort_length", `4096`, "", ""},
	{"default_storage_engine", `InnoDB`, "", ""},
}

// ofMariaDB are settings that MySQL does not have.
var ofMariaDB = []setting{
	{"check_constraint_checks", `1`, "ON", "rows that no reader can deliver enter the log"},
}

// elsewhere are settings that a session gets by other statements: SET NAMES and SET TRANSACTION.
var elsewhere = []setting{
	{"character_set_client", `utf8mb4`, "utf8mb4", "texts get other characters"},
	{"character_set_connection", `utf8mb4`, "utf8mb4", "texts get other characters"},
	{"character_set_results", `utf8mb4`, "utf8mb4", "texts get other characters"},
	{"transaction_read_only", `0`, "OFF", "nothing can be written"},
	{"tx_read_only", `0`, "OFF", "nothing can be written"}, // until MariaDB 11.1
}

// modes is the sql_mode of a session. The mode of the server may change what an operator, a quote or an
// empty text means.
const modes = `'STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'`

// wrongModes are the modes with which statements mean something else.
var wrongModes = []string{"EMPTY_STRING_IS_NULL", "ORACLE", "MSSQL", "DB2", "MAXDB", "HIGH_NOT_PRECEDENCE", "SIMULTANEOUS_ASSIGNMENT"}

// judged has the names of the variables that other handles must have.
var judged = func() []string {
	names := []string{"sql_mode"}
	for _, s := range slices.Concat(settings, ofMariaDB, elsewhere) {
		if s.shown != "" {
			names = append(names, s.name)
		}
	}
	return names
}()

// settle is the statement that gives a session its settings. MySQL takes /*M! for a comment.
var settle = func() string {
	var b strings.Builder
	b.WriteString(`SET SESSION sql_mode = ` + modes)
	add := func(list []setting) {
		for _, s := range list {
			b.WriteString(`, ` + s.name + ` = ` + s.value)
		}
	}
	add(settings)
	b.WriteString(` /*M!100600 `)
	add(ofMariaDB)
	b.WriteString(` */`)
	return b.String()
}()

// checkSession refuses a handle that OpenDB did not open if the store's statements would mean something
// else in its sessions. It does not change them: they also run the application's statements.
func checkSession(ctx context.Context, db *sql.DB) error {
	c, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect to MySQL: %w", err)
	}
	defer func() { _ = c.Close() }() // returns it to the pool
	ours := false
	if err := c.Raw(func(conn any) error { _, ours = conn.(*Session); return nil }); err != nil || ours {
		return err
	}
	values := make(map[string]string)
	for _, name := range judged {
		var value, shown string
		err := c.QueryRowContext(ctx, `SHOW SESSION VARIABLES WHERE Variable_name = '`+name+`'`).Scan(&shown, &value)
		if err != nil && !errors.Is(err, sql.ErrNoRows) { // the other family has it
			return fmt.Errorf("look up the session's %s: %w", name, err)
		}
		values[name] = value
	}
	return unfit(values)
}

// unfit returns an error with everything that is wrong with a session that has these variables.
func unfit(values map[string]string) error {
	var wrong []error
	for _, s := range slices.Concat(settings, ofMariaDB, elsewhere) {
		if value := values[s.name]; value != "" && value != s.shown {
			wrong = append(wrong, unfitFor(s.name, value, s.otherwise, s.value))
		}
	}
	for mode := range strings.SplitSeq(values["sql_mode"], ",") {
		if slices.Contains(wrongModes, mode) {
			wrong = append(wrong, unfitFor("sql_mode", mode, "operators and texts mean something else", modes))
		}
	}
	return errors.Join(wrong...)
}

func unfitFor(name, value, otherwise, good string) error {
	return fmt.Errorf("%w: sessions of the database handle have %s = %s, with which %s: open a handle for the outbox with mysql.OpenDB, which sets it, or add %s=%s to the handle's address",
		store.ErrUnsupported, name, value, otherwise, name, url.QueryEscape(good))
}
