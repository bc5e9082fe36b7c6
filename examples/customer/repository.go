package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/waybill-go/waybill/examples/customer/customer"
)

const tables = `
	CREATE TABLE customers (id TEXT PRIMARY KEY, name TEXT, city TEXT, has_left BOOLEAN, version INTEGER);
	CREATE TABLE invoice_addresses (customer TEXT PRIMARY KEY, city TEXT, changes INTEGER);`

// errConflict: someone else has stored the customer since it was loaded.
var errConflict = errors.New("the customer was changed meanwhile")

// load reads a customer, outside of any transaction: a person may look at it for minutes.
func load(ctx context.Context, db *sql.DB, id string) (*customer.Customer, error) {
	var s customer.State
	err := db.QueryRowContext(ctx, `SELECT id, name, city, has_left, version FROM customers WHERE id = ?`, id).
		Scan(&s.ID, &s.Name, &s.City, &s.Left, &s.Version)
	return customer.Restore(s), err
}

// save stores a customer, unless its row has another version than it was loaded with.
// Load it again for the next change.
func save(ctx context.Context, tx *sql.Tx, c *customer.Customer) error {
	s := c.State()
	query := `UPDATE customers SET name = ?2, city = ?3, has_left = ?4, version = version + 1 WHERE id = ?1 AND version = ?5`
	if s.Version == 0 {
		query = `INSERT INTO customers VALUES (?1, ?2, ?3, ?4, ?5 + 1) ON CONFLICT DO NOTHING`
	}
	result, err := tx.ExecContext(ctx, query, s.ID, s.Name, s.City, s.Left, s.Version)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return errConflict
}
