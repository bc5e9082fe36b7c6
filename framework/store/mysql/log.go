package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/session"
)

// better has settings that should be changed, although no rows are lost while the server runs.
var better = []struct {
	name string
	good []string
	text string
}{
	{"innodb_autoinc_lock_mode", []string{"2"}, "a publisher that writes many rows with one statement holds up all others; set it to 2 in the server's configuration, and restart it"},
	{"innodb_flush_log_at_trx_commit", []string{"1", "3"}, "a crash takes back commits whose notifications were delivered; set it to 1"},
}

// Warnings returns warnings about settings of the server. waybill doctor checks more.
func (s *Store) Warnings(ctx context.Context) (texts []string, err error) {
	for _, b := range better {
		value, err := session.Variable(ctx, s.db, b.name)
		if err != nil {
			return nil, fmt.Errorf("look up %s: %w", b.name, err)
		}
		if !slices.Contains(b.good, value) {
			texts = append(texts, fmt.Sprintf("%s is %s: %s", b.name, value, b.text))
		}
	}
	return texts, nil
}

// checkLog refuses a log from which readers would lose rows.
func checkLog(ctx context.Context, db *sql.DB, n names) error {
	var engine, extra string
	err := db.QueryRowContext(ctx, `SELECT t.ENGINE, c.EXTRA FROM information_schema.TABLES t JOIN information_schema.COLUMNS c
		ON c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME AND c.COLUMN_NAME = 'offset'
		WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = ?`, string(n)).Scan(&engine, &extra)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil // the user cannot see the table
	case err != nil:
		return fmt.Errorf("inspect the table %s: %w", n, err)
	case engine != "InnoDB":
		return fmt.Errorf("%w: the table %s has the engine %s, which has no transactions; to fix it: ALTER TABLE %s ENGINE = InnoDB", store.ErrUnsafeLog, n, engine, n.Log())
	case !strings.Contains(extra, "auto_increment"):
		return fmt.Errorf("%w: the column offset of %s does not number the rows; to fix it: ALTER TABLE %s MODIFY `offset` BIGINT NOT NULL AUTO_INCREMENT", store.ErrUnsafeLog, n, n.Log())
	}
	return nil
}
