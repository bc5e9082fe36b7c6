package tables

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// Claim takes a uniqueness key; see store.Claimer. A key whose time is over can be taken again.
func (t *Tables) Claim(ctx context.Context, tx store.Execer, c store.Claim) (free bool, err error) {
	query, args := t.run.Render(SQL(`INSERT INTO {unique} AS u (type, "key", until) VALUES (?, ?, ?)
		ON CONFLICT (type, "key") DO UPDATE SET until = EXCLUDED.until WHERE u.until <= {now}`,
		c.Type, c.Key, t.run.Dialect.NowPlus(c.Period)))
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return false, t.run.refused(ctx, tx, err, "unique", "claim a uniqueness key")
	}
	claimed, err := result.RowsAffected()
	return claimed == 1, err
}

// Unclaim frees a uniqueness key; see store.Claimer. The pruner removes the row, since publishers
// may not delete anything.
func (t *Tables) Unclaim(ctx context.Context, tx store.Execer, c store.Claim) error {
	query, args := t.run.Render(SQL(`UPDATE {unique} SET until = {now} WHERE type = ? AND "key" = ?`, c.Type, c.Key))
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return t.run.Failed(err, "free a uniqueness key")
	}
	return nil
}

// ClaimedUntil returns when a key becomes free; see store.Claimer.
func (t *Tables) ClaimedUntil(ctx context.Context, tx store.RowQuerier, c store.Claim) (time.Time, error) {
	query, args := t.run.Render(SQL(`SELECT until FROM {unique} WHERE type = ? AND "key" = ? AND until > {now}`, c.Type, c.Key))
	var until time.Time
	err := tx.QueryRowContext(ctx, query, args...).Scan(t.run.Into(&until))
	if errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, t.run.Failed(err, "look for a uniqueness key")
	}
	return until, nil
}
