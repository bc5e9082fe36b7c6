package sqlite

import (
	"context"
	"database/sql"
	"regexp"
	"slices"

	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// Examiner reads from a database what package doctor checks. It changes nothing, and also works with
// an outbox that [Open] refuses. It is safe for concurrent use.
type Examiner struct {
	db     *sql.DB
	config Config
}

// Examine connects. Like [Open], it refuses an SQLite that is too old.
func Examine(ctx context.Context, db *sql.DB, c Config) (*Examiner, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Examiner{db: db, config: c}, checkHandle(ctx, db)
}

// Schema returns nil if the tables match this program; otherwise the error of [Open].
func (e *Examiner) Schema(ctx context.Context) error { return migrations(e.config).Check(ctx, e.db) }

// Pragma returns the value of a pragma of the connection or the file.
func (e *Examiner) Pragma(ctx context.Context, name string) (value string, err error) {
	err = e.db.QueryRowContext(ctx, `PRAGMA `+name).Scan(&value)
	return value, err
}

// Integrity returns the first fault in the file, or "". It reads the whole file, so ctx should have a
// deadline.
func (e *Examiner) Integrity(ctx context.Context) (fault string, err error) {
	fault, err = e.Pragma(ctx, "integrity_check(1)")
	if fault == "ok" {
		fault = ""
	}
	return fault, err
}

// File returns the path of the database and its size in bytes.
func (e *Examiner) File(ctx context.Context) (path string, size int64, err error) {
	err = e.db.QueryRowContext(ctx, `SELECT (SELECT file FROM pragma_database_list WHERE name = 'main'),
		(SELECT page_count FROM pragma_page_count) * (SELECT page_size FROM pragma_page_size)`).Scan(&path, &size)
	return path, size, err
}

// madeIndex matches the statements of the migrations that create indexes.
var madeIndex = regexp.MustCompile(`CREATE INDEX "([^"]+)" ON [^;]+;`)

// MissingIndexes returns the indexes that Migrate creates and that do not exist, with the SQL that
// creates them.
func (e *Examiner) MissingIndexes(ctx context.Context) (missing map[string]string, err error) {
	text, err := MigrationSQL(e.config)
	if err != nil {
		return nil, err
	}
	present, err := tables.Texts(ctx, e.db, `SELECT name FROM sqlite_master WHERE type = 'index'`)
	if err != nil {
		return nil, err
	}
	missing = make(map[string]string)
	for _, made := range madeIndex.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(present, made[1]) {
			missing[made[1]] = made[0]
		}
	}
	return missing, nil
}
