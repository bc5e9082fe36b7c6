package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/store/internal/tables"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/session"
)

// Examiner reads what package doctor checks. It changes nothing and does not read large tables. It also
// works on an outbox that [Open] refuses. It is safe for concurrent use.
type Examiner struct {
	db     *sql.DB
	config Config
	names  names
	server session.Server
}

// Examine connects to the server. Like [Open], it refuses a server that is too old or of a kind that
// would lose rows.
func Examine(ctx context.Context, db *sql.DB, c Config) (*Examiner, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := session.Check(ctx, db)
	return &Examiner{db: db, config: c, names: names(c.Prefix), server: s}, err
}

// Schema returns nil if the tables have the version of this program; see [Open].
func (e *Examiner) Schema(ctx context.Context) error {
	return migrations(e.config, e.server).Check(ctx, e.db)
}

// Log returns nil if the log numbers its rows as readers need it. Otherwise it returns
// store.ErrUnsafeLog, with the problem and its fix.
func (e *Examiner) Log(ctx context.Context) error { return checkLog(ctx, e.db, e.names) }

// HasProcess reports whether the user has the privilege PROCESS.
func (e *Examiner) HasProcess(ctx context.Context) (bool, error) {
	var n int
	err := e.db.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 FROM information_schema.innodb_trx LIMIT 1) any_row`).Scan(&n)
	if session.Refused(err, session.NeedsPrivilege) {
		return false, nil
	}
	return err == nil, err
}

// Variable returns a global variable of the server; "" if it has none with this name.
func (e *Examiner) Variable(ctx context.Context, name string) (string, error) {
	return session.Variable(ctx, e.db, name)
}

// Packet returns max_allowed_packet, how large a notification can be that sessions of OpenDB write, and
// how large one that any driver can write: some write a byte as two.
func (e *Examiner) Packet(ctx context.Context) (packet, ours, anyone int, err error) {
	packet, err = packetSize(ctx, e.db)
	return packet, limits(packet).Row, limits(packet).Row / 2, err
}

// Now returns the server's time.
func (e *Examiner) Now(ctx context.Context) (now time.Time, err error) {
	var text string
	if err := e.db.QueryRowContext(ctx, `SELECT CAST(UTC_TIMESTAMP(6) AS CHAR)`).Scan(&text); err != nil {
		return now, err
	}
	return parseTime(text)
}

// Connections returns how many sessions the server has, and may have.
func (e *Examiner) Connections(ctx context.Context) (used, most int, err error) {
	var name string
	if err := e.db.QueryRowContext(ctx, `SHOW GLOBAL STATUS WHERE Variable_name = 'Threads_connected'`).Scan(&name, &used); err != nil {
		return 0, 0, err
	}
	err = e.db.QueryRowContext(ctx, `SELECT @@global.max_connections`).Scan(&most)
	return used, most, err
}

// Prepared returns the names of prepared XA transactions, in the form of XA ROLLBACK.
func (e *Examiner) Prepared(ctx context.Context) (names []string, err error) {
	err = tables.EachRow(ctx, e.db, func(rows *sql.Rows) error {
		var format, global, branch int
		var data []byte
		if err := rows.Scan(&format, &global, &branch, &data); err != nil {
			return err
		}
		if global+branch > len(data) {
			return fmt.Errorf("XA RECOVER: a name of %d bytes in %d", global+branch, len(data))
		}
		names = append(names, fmt.Sprintf("X'%x',X'%x',%d", data[:global], data[global:global+branch], format))
		return nil
	}, `XA RECOVER`)
	return names, err
}

// Holding is a long open transaction that has written or is writing.
type Holding struct {
	Session     int64 // the argument of KILL
	User, State string
	Age         time.Duration
	Statement   string // the running statement; "" if none
}

// Holdings returns the transactions of the whole server that have been open for longer than age.
func (e *Examiner) Holdings(ctx context.Context, age time.Duration) (found []Holding, err error) {
	const since = `TIMESTAMPDIFF(MICROSECOND, t.trx_started, CONVERT_TZ(UTC_TIMESTAMP(6), '+00:00', 'SYSTEM'))`
	err = tables.EachRow(ctx, e.db, func(rows *sql.Rows) error {
		var h Holding
		var microseconds int64
		err := rows.Scan(&h.Session, &h.User, &h.State, &microseconds, &h.Statement)
		h.Age = time.Duration(microseconds) * time.Microsecond
		found = append(found, h)
		return err
	}, `SELECT t.trx_mysql_thread_id, coalesce(p.USER, ''), coalesce(p.COMMAND, ''), `+since+`, coalesce(t.trx_query, '')
		FROM information_schema.innodb_trx t LEFT JOIN information_schema.PROCESSLIST p ON p.ID = t.trx_mysql_thread_id
		WHERE t.trx_mysql_thread_id <> 0 AND (t.trx_rows_modified > 0 OR t.trx_tables_locked > 0) AND `+since+` > ? ORDER BY t.trx_started`, age.Microseconds())
	return found, err
}

// onePrivilege is a privilege of a grant, with its columns.
var onePrivilege = regexp.MustCompile(`([A-Z]+)(?: \(([^)]*)\))?`)

// Missing returns the GRANTs that the user lacks for a duty; see [Grants].
func (e *Examiner) Missing(ctx context.Context, duty string) (missing []string, err error) {
	grants, err := e.config.grants(duty)
	if err != nil {
		return nil, err
	}
	var user string
	if err := e.db.QueryRowContext(ctx, `SELECT CURRENT_USER()`).Scan(&user); err != nil {
		return nil, err
	}
	at := strings.LastIndexByte(user, '@')
	user = quoted(user[:at]) + `@` + quoted(user[at+1:])
	for _, g := range grants {
		lacks, err := e.lacks(ctx, g)
		if err != nil {
			return nil, fmt.Errorf("check the privileges on %s: %w", g.on, err)
		}
		if lacks {
			missing = append(missing, g.to(user))
		}
	}
	return missing, nil
}

// lacks reports whether the user lacks a privilege of a grant. It uses EXPLAIN, which needs the
// privileges of the statement, so that roles and wildcards count, too.
func (e *Examiner) lacks(ctx context.Context, g grant) (bool, error) {
	if g == process {
		has, err := e.HasProcess(ctx)
		return !has, err
	}
	for _, p := range onePrivilege.FindAllStringSubmatch(g.privileges, -1) {
		privilege, columns := p[1], p[2]
		if columns == "" && (privilege == "INSERT" || privilege == "UPDATE") {
			var all sql.NullString
			err := e.db.QueryRowContext(ctx, `SELECT group_concat(char(96), COLUMN_NAME, char(96) SEPARATOR ', ') FROM information_schema.COLUMNS
				WHERE TABLE_SCHEMA = DATABASE() AND concat(char(96), TABLE_NAME, char(96)) = ? AND coalesce(GENERATION_EXPRESSION, '') = ''`, g.on).Scan(&all)
			if err != nil || !all.Valid {
				return true, err // without any privilege, the user cannot even see the table
			}
			columns = all.String
		}
		_, err := e.db.ExecContext(ctx, `EXPLAIN `+needing(privilege, g.on, columns))
		if IsDenied(err) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// needing returns a statement that needs only this privilege on columns of a table.
func needing(privilege, table, columns string) string {
	switch privilege {
	case "SELECT":
		return `SELECT ` + cmp.Or(columns, "*") + ` FROM ` + table + ` WHERE false`
	case "INSERT":
		nulls := strings.Repeat(", NULL", strings.Count(columns, ",")+1)[2:]
		return `INSERT INTO ` + table + ` (` + columns + `) SELECT ` + nulls + ` FROM DUAL WHERE false`
	case "UPDATE":
		return `UPDATE ` + table + ` SET ` + strings.ReplaceAll(columns, ",", " = NULL,") + ` = NULL WHERE false`
	}
	return `DELETE FROM ` + table + ` WHERE false`
}

// LogBytes returns the size of the log on disk, by the server's statistics.
func (e *Examiner) LogBytes(ctx context.Context) (bytes int64, err error) {
	err = e.db.QueryRowContext(ctx, `SELECT coalesce(sum(DATA_LENGTH + INDEX_LENGTH), 0) FROM information_schema.TABLES
		WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?`, string(e.names)).Scan(&bytes)
	return bytes, err
}

// madeTable and madeIndex match statements of the migrations.
var (
	madeTable = regexp.MustCompile("(?s)CREATE TABLE IF NOT EXISTS `([^`]+)` \\((.*?)\\) ENGINE")
	madeIndex = regexp.MustCompile("(?m)^ +KEY `([^`]+)` (\\(.*\\)),?$")
)

// MissingIndexes returns the indexes of Migrate that do not exist, with the SQL that creates them.
func (e *Examiner) MissingIndexes(ctx context.Context) (missing map[string]string, err error) {
	text, err := migrations(e.config, e.server).SQL()
	if err != nil {
		return nil, err
	}
	present, err := tables.Texts(ctx, e.db, `SELECT DISTINCT INDEX_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE()`)
	if err != nil {
		return nil, err
	}
	missing = make(map[string]string)
	for _, table := range madeTable.FindAllStringSubmatch(text, -1) {
		for _, index := range madeIndex.FindAllStringSubmatch(table[2], -1) {
			if !slices.Contains(present, index[1]) {
				missing[index[1]] = "CREATE INDEX `" + index[1] + "` ON `" + table[1] + "` " + index[2] + ";"
			}
		}
	}
	return missing, nil
}
