package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strings"

	"github.com/waybill-go/waybill/framework/store"
)

// How offsets are assigned. A reader's bounds are valid if each transaction has its id before it
// takes an offset, so only the log itself may take one:
//
//   - an identity column (GENERATED ALWAYS) refuses explicit values, and takes its number after
//     the defaults of the columns before it. An INSERT of several rows with DEFAULT would
//     otherwise compute it before all other columns;
//   - a partitioned table cannot have an identity column before PostgreSQL 17. There the default
//     takes the id first, and stores the number in a setting of the transaction. A trigger
//     compares it with the inserted value.

// offsetDefault returns the default of a partitioned log's offsets.
func offsetDefault(n names) string {
	return `CASE WHEN pg_current_xact_id() IS NOT NULL THEN set_config('waybill.offset', nextval(` + n.Literal("offset_seq") + `)::text, true)::bigint END`
}

// offsetGuard returns the SQL of the trigger of a partitioned log. Its error is that of an
// identity column.
func offsetGuard(n names) string {
	return `CREATE FUNCTION ` + n.Table("refuse_offset") + `() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'cannot insert a chosen value into column "offset" of %', TG_TABLE_NAME
        USING ERRCODE = 'generated_always', HINT = 'Leave the column out: the log numbers its rows.';
END $$;
CREATE TRIGGER ` + n.Name("offset_is_chosen") + ` BEFORE INSERT ON ` + n.Log() + ` FOR EACH ROW
    WHEN (NEW."offset"::text IS DISTINCT FROM current_setting('waybill.offset', true))
    EXECUTE FUNCTION ` + n.Table("refuse_offset") + `();`
}

// offsetOrigin is what the catalog says about the offsets of a log.
type offsetOrigin struct {
	names            names
	idFirst          bool // transaction_id comes before "offset"
	idDefault        string
	identity         string // "a": always, "d": by default, "": none
	offsetDefault    string
	trigger          string // "": none; "D": disabled
	sequence         string // owned by the column
	ours             bool   // it is the one that probes read
	increment, cache int64
	cycle            bool
}

// checkOffsets refuses a log in which a transaction could take an offset before its id, or offsets
// that are not ascending: rows would be lost.
func checkOffsets(ctx context.Context, db *sql.DB, n names) error {
	o := offsetOrigin{names: n}
	err := db.QueryRowContext(ctx, `SELECT x.attnum < o.attnum, coalesce(pg_get_expr(xd.adbin, xd.adrelid), ''),
			o.attidentity, coalesce(pg_get_expr(od.adbin, od.adrelid), ''),
			coalesce((SELECT tgenabled::text FROM pg_trigger WHERE tgrelid = o.attrelid AND tgname = $2), ''),
			coalesce(owned.name, ''), coalesce(owned.name::regclass = to_regclass($3), false),
			coalesce(s.seqincrement, 1), coalesce(s.seqcache, 1), coalesce(s.seqcycle, false)
		FROM pg_attribute o
		JOIN pg_attribute x ON x.attrelid = o.attrelid AND x.attname = 'transaction_id'
		LEFT JOIN pg_attrdef od ON od.adrelid = o.attrelid AND od.adnum = o.attnum
		LEFT JOIN pg_attrdef xd ON xd.adrelid = x.attrelid AND xd.adnum = x.attnum
		CROSS JOIN LATERAL pg_get_serial_sequence($1, 'offset') AS owned(name)
		LEFT JOIN pg_sequence s ON s.seqrelid = owned.name::regclass
		WHERE o.attrelid = to_regclass($1) AND o.attname = 'offset'`, n.Log(), n.Plain("offset_is_chosen"), n.Table("offset_seq")).
		Scan(&o.idFirst, &o.idDefault, &o.identity, &o.offsetDefault, &o.trigger, &o.sequence, &o.ours, &o.increment, &o.cache, &o.cycle)
	if err != nil {
		return fmt.Errorf("look at the offsets of %s: %w", n, err)
	}
	// With quote_all_identifiers the catalog shows all names in quotes.
	o.idDefault, o.offsetDefault = strings.ReplaceAll(o.idDefault, `"`, ``), strings.ReplaceAll(o.offsetDefault, `"`, ``)
	if faults := o.faults(); len(faults) > 0 {
		return fmt.Errorf("%w: %s", store.ErrUnsafeLog, strings.Join(faults, "; "))
	}
	return nil
}

// defaultTakesIDFirst matches offsetDefault as shown in the catalog.
var defaultTakesIDFirst = regexp.MustCompile(`(?s)^\s*CASE\s+WHEN \(pg_current_xact_id\(\) IS NOT NULL\) THEN \(?set_config\('waybill\.offset'::text, .*nextval\('`)

// faults returns what is wrong, each with how to fix it.
func (o *offsetOrigin) faults() (faults []string) {
	fault := func(what, mend string) {
		faults = append(faults, fmt.Sprintf("%s: %s; to fix it: %s", o.names, what, mend))
	}
	if !o.idFirst {
		fault(`the column "offset" comes before transaction_id`,
			"create the log again with migrate, under another outbox.prefix or once this one is empty: columns cannot change places")
	}
	if o.idDefault != `pg_current_xact_id()` {
		fault("the default of transaction_id is not pg_current_xact_id()", `ALTER TABLE `+o.names.Log()+` ALTER transaction_id SET DEFAULT pg_current_xact_id()`)
	}
	switch {
	case o.sequence == "":
		fault(`the column "offset" owns no sequence`, `ALTER SEQUENCE `+o.names.Table("offset_seq")+` OWNED BY `+o.names.Log()+`."offset"`)
	case !o.ours:
		fault("the offsets come from "+o.sequence, `ALTER SEQUENCE `+o.sequence+` RENAME TO `+o.names.Name("offset_seq"))
	}
	switch o.identity {
	case "a":
	case "d":
		fault("producers may choose offsets", `ALTER TABLE `+o.names.Log()+` ALTER "offset" SET GENERATED ALWAYS`)
	default:
		if !defaultTakesIDFirst.MatchString(o.offsetDefault) {
			fault("the default of an offset does not take the transaction id first", `ALTER TABLE `+o.names.Log()+` ALTER "offset" SET DEFAULT `+offsetDefault(o.names))
		}
		switch o.trigger {
		case "":
			fault("no trigger keeps producers from choosing offsets", offsetGuard(o.names))
		case "D", "R":
			fault("the trigger that keeps producers from choosing offsets is disabled", `ALTER TABLE `+o.names.Log()+` ENABLE TRIGGER `+o.names.Name("offset_is_chosen"))
		}
	}
	if o.increment != 1 || o.cache != 1 || o.cycle {
		fault(fmt.Sprintf("the sequence %s counts by %d, caches %d, and cycles: %t", o.sequence, o.increment, o.cache, o.cycle),
			`ALTER SEQUENCE `+o.sequence+` INCREMENT 1 CACHE 1 NO CYCLE`)
	}
	return faults
}
