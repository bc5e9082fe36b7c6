package mysql

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/session"
)

// These methods write in the caller's transaction, which may have any isolation level, on a connection
// with any flags. If a statement finds a row and leaves it unchanged, the reported number of rows
// depends on the flag clientFoundRows. So each statement here changes every row that it finds. None of
// them takes a shared lock first, which could deadlock two transactions.

// First records an id; see store.Inbox.
func (s *Store) First(ctx context.Context, tx store.Execer, consumer, id string) (bool, error) {
	written, err := s.write(ctx, tx, "inbox", "note the id in the inbox", tables.SQL(
		`INSERT INTO {inbox} (consumer, id) VALUES (?, ?) ON DUPLICATE KEY UPDATE repeats = repeats + 1`, consumer, id))
	return written == 1, err // it is 2 for an existing row
}

// Claim claims a uniqueness key; see store.Claimer. An expired key can be claimed again.
func (s *Store) Claim(ctx context.Context, tx store.Execer, c store.Claim) (free bool, err error) {
	const what = "claim a uniqueness key"
	token := rand.Text()
	d := &dialect{Store: s}
	_, err = s.write(ctx, tx, "unique", what, tables.SQL(`INSERT INTO {unique} (type, "key", until, token) VALUES (?, ?, ?, ?)
		ON DUPLICATE KEY UPDATE token = IF(until <= {now}, VALUES(token), token), until = IF(until <= {now}, VALUES(until), until)`,
		c.Type, c.Key, d.NowPlus(c.Period), token))
	if err != nil {
		return false, err
	}
	ours, err := s.write(ctx, tx, "unique", what, tables.SQL(`UPDATE {unique} SET token = NULL WHERE type = ? AND "key" = ? AND token = ?`, c.Type, c.Key, token))
	return ours == 1, err
}

// Cancel cancels scheduled notifications; see store.Canceller. It reads without locks: an
// INSERT … SELECT would lock the gaps between rows, and publishers would wait for the transaction.
func (s *Store) Cancel(ctx context.Context, tx store.Execer, which store.Scheduled) (int, error) {
	const (
		what = "cancel what is scheduled"
		each = `JSON_TABLE(@waybill_scheduled, '$[*]' COLUMNS ("offset" BIGINT PATH '$[0]', id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[1]')) found`
	)
	if _, err := s.write(ctx, tx, "cancelled", what, s.scheduled(which)); err != nil {
		return 0, err
	}
	token := rand.Text()
	_, err := s.write(ctx, tx, "cancelled", what, tables.SQL(`INSERT INTO {cancelled} ("offset", id, token)
		SELECT found."offset", found.id, ? FROM `+each+` ON DUPLICATE KEY UPDATE id = VALUES(id)`, token))
	if err != nil {
		return 0, err
	}
	cancelled, err := s.write(ctx, tx, "cancelled", what, tables.SQL(`UPDATE {cancelled} c JOIN `+each+` ON found."offset" = c."offset"
		SET c.token = NULL WHERE c.token = ?`, token))
	return int(cancelled), err
}

// scheduled finds offsets and ids, and stores them in the session. A row moves from the log to the parked
// table, and every snapshot has it in one of them. MariaDB cuts the list at group_concat_max_len. A text without
// characters would be NULL in a session whose sql_mode is EMPTY_STRING_IS_NULL.
func (s *Store) scheduled(which store.Scheduled) tables.Expr {
	log, parked := tables.SQL(`due_id = CRC32(?) AND id = ?`, which.ID, which.ID), tables.SQL(`id = ?`, which.ID)
	if which.ID == "" {
		types := tables.SQL(typesSQL(notification.TypeFilter{Names: which.Types}))
		log = tables.SQL(`due_key = CRC32(?) AND "key" = ? AND LENGTH("key") > 0 AND ?`, which.Key, which.Key, types)
		parked = tables.SQL(`"key" = ? AND LENGTH("key") > 0 AND ?`, which.Key, types)
	}
	return tables.SQL(`/*M!100600 SET STATEMENT group_concat_max_len = 1073741824 FOR */ SELECT coalesce(JSON_ARRAYAGG(JSON_ARRAY("offset", id)), '[]') INTO @waybill_scheduled FROM (
			SELECT "offset", id FROM {log} WHERE ? AND deliver_at > {now}
			UNION SELECT "offset", id FROM {parked} WHERE ? AND state = 'scheduled' AND due_at > {now}) scheduled`, log, parked)
}

// write runs a statement in the caller's transaction.
func (s *Store) write(ctx context.Context, tx store.Execer, table, what string, e tables.Expr) (int64, error) {
	query, args := s.run.Render(e)
	result, err := tx.ExecContext(ctx, query, args...)
	switch {
	case err == nil:
		return result.RowsAffected()
	case collides(err):
		return 0, fmt.Errorf("%s: %w: %w", what, store.ErrCollision, err)
	case session.Refused(err, session.NoSuchTable):
		return 0, fmt.Errorf("%s: %w: it has no table %s: use a transaction of the database that the outbox was opened on, or migrate this one by waybill migrate: %w",
			what, store.ErrOtherDatabase, s.names.Table(table), err)
	}
	return 0, fmt.Errorf("%s: %w", what, session.Advise(err))
}
