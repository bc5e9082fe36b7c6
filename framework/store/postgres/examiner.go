package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/store/internal/tables"
	"github.com/waybill-go/waybill/framework/store/postgres/internal/catalog"
)

// Examiner reads from a server what package doctor checks. It changes nothing, reads no large
// table, and also works with an outbox that [Open] refuses. It is safe for concurrent use.
type Examiner struct {
	db     *sql.DB
	config Config
	names  names
}

// Examine connects and finds the schema of the outbox. Like [Open], it refuses a server of an
// unsupported version or encoding.
func Examine(ctx context.Context, db *sql.DB, c Config) (*Examiner, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	if _, err := checkServer(ctx, db); err != nil {
		return nil, err
	}
	n, err := c.names(ctx, db)
	if err != nil {
		return nil, err
	}
	return &Examiner{db: db, config: c, names: n}, nil
}

// IsDenied reports whether the server refused a statement because of a missing privilege.
func IsDenied(err error) bool { return catalog.Refused(err, catalog.DeniedPrivilege) }

// Schema returns nil if the tables match this program; otherwise the error of [Open].
func (e *Examiner) Schema(ctx context.Context) error {
	return migrations(e.config, e.names).Check(ctx, e.db)
}

// Offsets returns nil if the log assigns its offsets as readers need it. Otherwise it fails with
// store.ErrUnsafeLog, which says what is wrong and how to fix it.
func (e *Examiner) Offsets(ctx context.Context) error { return checkOffsets(ctx, e.db, e.names) }

// InRecovery reports whether the server is a standby.
func (e *Examiner) InRecovery(ctx context.Context) (standby bool, err error) {
	err = e.db.QueryRowContext(ctx, `SELECT pg_is_in_recovery()`).Scan(&standby)
	return standby, err
}

// Settings returns the session's settings that this role may see, in the units of pg_settings:
// milliseconds for timeouts.
func (e *Examiner) Settings(ctx context.Context, settings ...string) (values map[string]string, err error) {
	values = make(map[string]string)
	err = e.each(ctx, func(rows *sql.Rows) error {
		var name, value string
		err := rows.Scan(&name, &value)
		values[name] = value
		return err
	}, `SELECT name, setting FROM pg_settings WHERE name = ANY ($1)`, pq.Array(settings))
	return values, err
}

// Role returns the role of the sessions, quoted.
func (e *Examiner) Role(ctx context.Context) (role string, err error) {
	err = e.db.QueryRowContext(ctx, `SELECT current_user`).Scan(&role)
	return pq.QuoteIdentifier(role), err
}

// Creators returns the roles, quoted, that may create functions in the outbox's schema, beside superusers
// and the owners of schema and log; PUBLIC means all. schema is quoted, too.
func (e *Examiner) Creators(ctx context.Context) (schema string, roles []string, err error) {
	err = e.db.QueryRowContext(ctx, `SELECT coalesce(array_agg(coalesce(quote_ident(r.rolname), 'PUBLIC') ORDER BY r.rolname), '{}')
		FROM pg_namespace n CROSS JOIN aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) a LEFT JOIN pg_roles r ON r.oid = a.grantee
		WHERE n.nspname = $1 AND a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner AND NOT coalesce(r.rolsuper, false)
			AND a.grantee IS DISTINCT FROM (SELECT relowner FROM pg_class WHERE oid = to_regclass($2))`, e.names.Schema, e.names.Log()).Scan(pq.Array(&roles))
	return pq.QuoteIdentifier(e.names.Schema), roles, err
}

// Database returns the name of the database, quoted.
func (e *Examiner) Database(ctx context.Context) (name string, err error) {
	err = e.db.QueryRowContext(ctx, `SELECT current_database()`).Scan(&name)
	return pq.QuoteIdentifier(name), err
}

// Now returns the server's time.
func (e *Examiner) Now(ctx context.Context) (now time.Time, err error) {
	err = e.db.QueryRowContext(ctx, `SELECT clock_timestamp()`).Scan(&now)
	return now, err
}

// Holding is an open transaction that holds up the log: it has a transaction id, or a lock on the
// log's table.
type Holding struct {
	PID         int
	Application string
	Age         time.Duration
	State       string // active, idle in transaction, …
	Query       string // last query of the session, cut to 200 characters
}

// Holdings returns at most 20 transactions that have held up the log for longer than age, oldest
// first. hidden is the number of sessions that this role may not see.
func (e *Examiner) Holdings(ctx context.Context, age time.Duration) (found []Holding, hidden int, err error) {
	err = e.each(ctx, func(rows *sql.Rows) error {
		var h Holding
		var seconds float64
		err := rows.Scan(&h.PID, &h.Application, &seconds, &h.State, &h.Query)
		h.Age = time.Duration(seconds * float64(time.Second))
		found = append(found, h)
		return err
	}, `SELECT pid, coalesce(application_name, ''), extract(epoch FROM clock_timestamp() - xact_start)::float8, coalesce(state, ''), left(coalesce(query, ''), 200)
		FROM pg_stat_activity a WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
			AND xact_start < clock_timestamp() - make_interval(secs => $1)
			AND (backend_xid IS NOT NULL OR EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.granted AND l.relation = to_regclass($2)))
		ORDER BY xact_start LIMIT 20`, age.Seconds(), e.names.Log())
	if err == nil {
		err = e.db.QueryRowContext(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query = '<insufficient privilege>'`).Scan(&hidden)
	}
	return found, hidden, err
}

// Prepared is a transaction of a two-phase commit that was not ended.
type Prepared struct {
	GID string
	Age time.Duration
}

// Prepared returns at most 20 prepared transactions of the database that are older than age, oldest
// first.
func (e *Examiner) Prepared(ctx context.Context, age time.Duration) (found []Prepared, err error) {
	err = e.each(ctx, func(rows *sql.Rows) error {
		var p Prepared
		var seconds float64
		err := rows.Scan(&p.GID, &seconds)
		p.Age = time.Duration(seconds * float64(time.Second))
		found = append(found, p)
		return err
	}, `SELECT gid, extract(epoch FROM clock_timestamp() - prepared)::float8 FROM pg_prepared_xacts
		WHERE database = current_database() AND prepared < clock_timestamp() - make_interval(secs => $1) ORDER BY prepared LIMIT 20`, age.Seconds())
	return found, err
}

// Slot is a replication slot that keeps files of the server, or has lost those it should keep.
type Slot struct {
	Name   string
	Active bool
	Kept   int64  // bytes of the write-ahead log
	Status string // wal_status
}

// Slots returns the server's replication slots that keep something.
func (e *Examiner) Slots(ctx context.Context) (found []Slot, err error) {
	err = e.each(ctx, func(rows *sql.Rows) error {
		var s Slot
		err := rows.Scan(&s.Name, &s.Active, &s.Kept, &s.Status)
		found = append(found, s)
		return err
	}, `SELECT slot_name, active, coalesce(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, restart_lsn), 0)::bigint,
			coalesce(wal_status, '')
		FROM pg_replication_slots WHERE restart_lsn IS NOT NULL OR wal_status = 'lost' ORDER BY slot_name`)
	return found, err
}

// Room is a limit of connections, and how many are in use.
type Room struct {
	Limit string // name of the setting, such as max_connections
	Of    int
	Used  int
}

// Rooms returns the limits that apply to this role.
func (e *Examiner) Rooms(ctx context.Context) (rooms []Room, err error) {
	err = e.each(ctx, func(rows *sql.Rows) error {
		var r Room
		err := rows.Scan(&r.Limit, &r.Of, &r.Used)
		rooms = append(rooms, r)
		return err
	}, `SELECT 'max_connections', current_setting('max_connections')::int
			- CASE WHEN (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN 0
			       ELSE current_setting('superuser_reserved_connections')::int + coalesce(current_setting('reserved_connections', true)::int, 0) END,
			(SELECT coalesce(sum(numbackends), 0)::int FROM pg_stat_database)
		UNION ALL SELECT 'the role''s CONNECTION LIMIT', rolconnlimit, (SELECT count(*)::int FROM pg_stat_activity WHERE usename = current_user)
			FROM pg_roles WHERE rolname = current_user AND rolconnlimit >= 0
		UNION ALL SELECT 'the database''s CONNECTION LIMIT', datconnlimit, (SELECT numbackends FROM pg_stat_database s WHERE s.datid = d.oid)
			FROM pg_database d WHERE datname = current_database() AND datconnlimit >= 0`)
	return rooms, err
}

// OldestIDs returns the database of the server with the oldest transaction ids, and their age in
// transactions.
func (e *Examiner) OldestIDs(ctx context.Context) (database string, age int64, err error) {
	err = e.db.QueryRowContext(ctx, `SELECT datname, age(datfrozenxid) FROM pg_database WHERE datallowconn ORDER BY 2 DESC LIMIT 1`).Scan(&database, &age)
	return database, age, err
}

// Bloat is how many rows of a table are dead, by the server's statistics.
type Bloat struct {
	Table      string
	Live, Dead int64
}

// Bloat returns the figures of the tables whose rows change often.
func (e *Examiner) Bloat(ctx context.Context) (found []Bloat, err error) {
	changed := []string{e.names.Table("cursors"), e.names.Table("parked"), e.names.Table("forwarders")}
	err = e.each(ctx, func(rows *sql.Rows) error {
		var b Bloat
		err := rows.Scan(&b.Table, &b.Live, &b.Dead)
		found = append(found, b)
		return err
	}, `SELECT t, n_live_tup, n_dead_tup FROM unnest($1::text[]) t JOIN pg_stat_user_tables s ON s.relid = to_regclass(t) ORDER BY t`, pq.Array(changed))
	return found, err
}

// IndexFault is an index that differs from what Migrate creates.
type IndexFault struct {
	Index  string
	Reason string
	Fix    string // SQL
}

// madeIndex matches the statements of the migrations that create indexes.
var madeIndex = regexp.MustCompile(`CREATE INDEX ("[^"]+") ON [^;]+;`)

// IndexFaults returns the indexes of the outbox's tables that are missing or invalid.
func (e *Examiner) IndexFaults(ctx context.Context) (faults []IndexFault, err error) {
	text, err := migrations(e.config, e.names).SQL()
	if err != nil {
		return nil, err
	}
	var own []string
	for _, name := range catalog.Tables {
		own = append(own, e.names.Table(name))
	}
	primary := make(map[string]bool)
	var valid []string
	err = e.each(ctx, func(rows *sql.Rows) error {
		var table, name string
		var isPrimary, isValid bool
		if err := rows.Scan(&table, &name, &isPrimary, &isValid); err != nil {
			return err
		}
		primary[table] = primary[table] || isPrimary
		valid = append(valid, pq.QuoteIdentifier(name))
		if !isValid {
			quoted := pq.QuoteIdentifier(e.names.Schema) + "." + pq.QuoteIdentifier(name)
			faults = append(faults, IndexFault{name, "is invalid: making it was interrupted", "REINDEX INDEX CONCURRENTLY " + quoted + ";"})
		}
		return nil
	}, `SELECT t, c.relname, i.indisprimary, i.indisvalid FROM unnest($1::text[]) t JOIN pg_index i ON i.indrelid = to_regclass(t) JOIN pg_class c ON c.oid = i.indexrelid`, pq.Array(own))
	if err != nil {
		return nil, err
	}
	for _, table := range own {
		if !primary[table] {
			faults = append(faults, IndexFault{table, "has no primary key", "ALTER TABLE " + table + " ADD PRIMARY KEY as `waybill migrate --print` has it;"})
		}
	}
	for _, made := range madeIndex.FindAllStringSubmatch(text, -1) {
		if name := made[1]; !slices.Contains(valid, name) {
			faults = append(faults, IndexFault{name[1 : len(name)-1], "is missing", made[0]})
		}
	}
	return faults, nil
}

// IsPooled reports whether a transaction pooler is in front of the server: then two connections
// that are open at the same time may have one process there. It needs two connections for a
// moment.
func (e *Examiner) IsPooled(ctx context.Context) (pooled bool, err error) { return isPooled(ctx, e.db) }

func isPooled(ctx context.Context, db *sql.DB) (pooled bool, err error) {
	first, err := db.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, first.Close()) }()
	const process = `SELECT pg_backend_pid()`
	var one, other int
	if err := first.QueryRowContext(ctx, process).Scan(&one); err != nil {
		return false, err
	}
	second, err := db.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, second.Close()) }()
	// A pooler gives the transaction the free process that was used last, or, if that is in
	// use, gives the first connection another process than before.
	tx, err := second.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // it only reads
	if err := tx.QueryRowContext(ctx, process).Scan(&other); err != nil || one == other {
		return err == nil, err
	}
	again := 0
	err = first.QueryRowContext(ctx, process).Scan(&again)
	return again != one, err
}

// LogBytes returns the size of the log with its indexes and partitions.
func (e *Examiner) LogBytes(ctx context.Context) (size int64, err error) {
	err = e.db.QueryRowContext(ctx, `SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint FROM pg_partition_tree(to_regclass($1))`, e.names.Log()).Scan(&size)
	if err == nil && size == 0 { // a table without partitions, before PostgreSQL 14
		err = e.db.QueryRowContext(ctx, `SELECT pg_total_relation_size(to_regclass($1))`, e.names.Log()).Scan(&size)
	}
	return size, err
}

// Folder returns the server's data directory if the server runs on this machine; otherwise "".
func (e *Examiner) Folder(ctx context.Context) (folder string, err error) {
	err = e.db.QueryRowContext(ctx, `SELECT CASE WHEN inet_server_addr() IS NULL OR inet_server_addr() <<= '127.0.0.0/8' OR inet_server_addr() = '::1'
		THEN current_setting('data_directory') ELSE '' END`).Scan(&folder)
	return folder, err
}

// each calls row for each row of a query.
func (e *Examiner) each(ctx context.Context, row func(*sql.Rows) error, query string, args ...any) error {
	return tables.EachRow(ctx, e.db, row, query, args...)
}

// PartitionsAhead returns how many partitions begin after the log's last offset, and whether rows
// are in the default partition because no other was created in time.
func (s *Store) PartitionsAhead(ctx context.Context) (ahead int, strays bool, err error) {
	ranges, err := s.partitions(ctx, s.db)
	if err != nil {
		return 0, false, err
	}
	now, err := s.runProbe(ctx, s.db, s.sql.probe)
	if err != nil {
		return 0, false, advise(err)
	}
	for _, p := range ranges {
		if p.From > now.last {
			ahead++
		}
	}
	err = s.db.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM `+s.names.Table(defaultPartition)+`)`).Scan(&strays)
	return ahead, strays, err
}

// Missing returns the GRANTs that the role of the sessions lacks for a duty.
func (e *Examiner) Missing(ctx context.Context, d Duty) (missing []string, err error) {
	grants, err := d.grants(e.names)
	if err != nil {
		return nil, err
	}
	role, err := e.Role(ctx)
	if err != nil {
		return nil, err
	}
	held := false
	if err := e.db.QueryRowContext(ctx, `SELECT has_schema_privilege($1, 'USAGE')`, e.names.Schema).Scan(&held); err != nil {
		return nil, err
	}
	if !held {
		// Without it nothing below can be looked up.
		return []string{"GRANT USAGE ON SCHEMA " + pq.QuoteIdentifier(e.names.Schema) + " TO " + role + ";"}, nil
	}
	for _, g := range grants {
		lacks, err := e.lacks(ctx, g)
		if err != nil {
			return nil, fmt.Errorf("look at the privileges on %s: %w", g.on, err)
		}
		if lacks {
			missing = append(missing, "GRANT "+g.privileges+" ON "+g.on+" TO "+role+";")
		}
	}
	return missing, nil
}

// onePrivilege is a privilege of a grant, with its columns.
var onePrivilege = regexp.MustCompile(`([A-Z]+)(?: \(([^)]*)\))?`)

// lacks reports whether this role lacks a privilege of a grant.
func (e *Examiner) lacks(ctx context.Context, g grant) (bool, error) {
	kind, name, _ := strings.Cut(g.on, " ")
	for _, p := range onePrivilege.FindAllStringSubmatch(g.privileges, -1) {
		privilege, columns := p[1], p[2]
		query, args := ``, []any{name, privilege}
		switch {
		case kind == "SEQUENCE":
			query = `SELECT has_sequence_privilege(to_regclass($1)::oid, $2)`
		case kind == "FUNCTION":
			query = `SELECT has_function_privilege(to_regproc($1)::oid, $2)`
		case columns != "":
			query = `SELECT bool_and(has_column_privilege(to_regclass($1)::oid, attnum, $2)) FROM pg_attribute
				WHERE attrelid = to_regclass($1) AND attname = ANY ($3::text[])`
			args = append(args, pq.Array(strings.Split(strings.ReplaceAll(columns, `"`, ""), ", ")))
		default:
			query = `SELECT has_table_privilege(to_regclass($1)::oid, $2)`
		}
		var held sql.NullBool
		if err := e.db.QueryRowContext(ctx, query, args...).Scan(&held); err != nil {
			return false, err
		}
		if !held.Bool {
			return true, nil
		}
	}
	return false, nil
}
