package tables

import (
	"context"
	"database/sql"
	"errors"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/store"
)

const privateKey = `SELECT id, subject, wrapped, under, created_at, erased_at FROM {keys} WHERE `

// AddPrivateKeys adds keys; see store.PrivateKeys.
func (t *Tables) AddPrivateKeys(ctx context.Context, tx store.Execer, keys []store.PrivateKey) error {
	rows := make([]Expr, len(keys))
	for i, k := range keys {
		rows[i] = list(k.ID, k.Subject, k.Wrapped, k.Under)
	}
	return t.run.within(ctx, tx, failpoint.Keys, func(tx store.Execer) error {
		_, err := t.run.writeIn(ctx, tx, "keys", "add keys of private values", SQL(`INSERT INTO {keys} (id, subject, wrapped, under) VALUES ?`, Join(`, `, rows)))
		return err
	})
}

// PrivateKeyOf returns the newest living key; see store.PrivateKeys.
func (t *Tables) PrivateKeyOf(ctx context.Context, tx store.RowQuerier, subjects []string) (k store.PrivateKey, found bool, err error) {
	if tx == nil {
		tx = t.run.Own()
	}
	query, args := t.run.Render(SQL(privateKey+`? AND wrapped <> '' ORDER BY created_at DESC, id DESC {limit} 1 {whole keys}`, AnyOf(`subject`, subjects)))
	err = t.run.scanPrivateKey(tx.QueryRowContext(ctx, query, args...), &k)
	if errors.Is(err, sql.ErrNoRows) {
		return k, false, nil
	}
	execer, _ := tx.(store.Execer)
	t.run.unread(ctx, execer, &err, "keys", "look for the key of private values")
	return k, err == nil, err
}

// PrivateKeysByID returns keys by their ids; see store.PrivateKeys.
func (t *Tables) PrivateKeysByID(ctx context.Context, ids []string) ([]store.PrivateKey, error) {
	return t.privateKeys(ctx, `id`, ids)
}

// PrivateKeysOf returns the keys of subjects; see store.PrivateKeys.
func (t *Tables) PrivateKeysOf(ctx context.Context, subjects []string) ([]store.PrivateKey, error) {
	return t.privateKeys(ctx, `subject`, subjects)
}

func (t *Tables) privateKeys(ctx context.Context, column string, values []string) (found []store.PrivateKey, err error) {
	if len(values) == 0 {
		return nil, nil
	}
	defer t.run.unread(ctx, nil, &err, "keys", "read the keys of private values")
	return List(ctx, t.run, t.run.Own(), func(rows *sql.Rows, k *store.PrivateKey) error { return t.run.scanPrivateKey(rows, k) },
		privateKey+`? ORDER BY created_at, id {whole keys}`, AnyOf(column, values))
}

func (r *Runner) scanPrivateKey(row interface{ Scan(to ...any) error }, k *store.PrivateKey) error {
	return row.Scan(&k.ID, &k.Subject, &k.Wrapped, &k.Under, r.Into(&k.CreatedAt), r.Into(&k.ErasedAt))
}

// RewrapPrivateKey wraps a root again; see store.PrivateKeys.
func (t *Tables) RewrapPrivateKey(ctx context.Context, k store.PrivateKey) error {
	return t.run.within(ctx, nil, failpoint.Keys, func(tx store.Execer) error {
		_, err := t.run.writeIn(ctx, tx, "keys", "wrap the root key "+k.ID, SQL(`UPDATE {keys} SET wrapped = ?, under = ? WHERE id = ? AND subject = ''`, k.Wrapped, k.Under, k.ID))
		return err
	})
}

// ErasePrivateKeys erases keys; see store.PrivateKeys.
func (t *Tables) ErasePrivateKeys(ctx context.Context, action string, ids []string) (erased int, err error) {
	defer t.run.Tried(&err, "erase keys of private values")
	err = t.run.InTx(ctx, failpoint.Erase, func(tx *sql.Tx) error {
		erased = 0
		for _, id := range ids {
			isNew, err := t.run.InsertNew(ctx, tx, []string{"id"}, `INSERT INTO {keys} (id, subject, wrapped, under, erased_at) VALUES (?, '-', '', '', {now})`, id)
			if err != nil {
				return err
			}
			n, err := t.run.Exec(ctx, tx, `UPDATE {keys} SET wrapped = '', erased_at = {now} WHERE id = ? AND wrapped <> '' AND subject <> ''`, id)
			if err != nil {
				return err
			}
			if n > 0 || isNew {
				erased++
			}
		}
		if action == "" {
			return nil
		}
		return t.run.Count(ctx, tx, action, erased)
	})
	return erased, err
}

// ErasedPrivateKeys returns the ids of erased keys; see store.PrivateKeys.
func (t *Tables) ErasedPrivateKeys(ctx context.Context) (ids []string, err error) {
	defer t.run.unread(ctx, nil, &err, "keys", "read the erased keys")
	return Column[string](ctx, t.run, t.run.Own(), `SELECT id FROM {keys} WHERE erased_at IS NOT NULL ORDER BY id {whole keys}`)
}
