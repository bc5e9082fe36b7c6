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

// errConflict means that another transaction has stored the customer since it was loaded.
var errConflict = errors.New("another transaction has changed the customer")

// load reads a customer, in no transaction: a person may take minutes to decide on a change.
func load(ctx context.Context, db *sql.DB, id string) (*customer.Customer, error) {
	var s customer.State
	err := db.QueryRowContext(ctx, `SELECT id, name, city, has_left, version FROM customers WHERE id = ?`, id).
		Scan(&s.ID, &s.Name, &s.City, &s.Left, &s.Version)
	return customer.Restore(s), err
}

// save stores a customer, and returns errConflict if its row no longer has the version that was
// loaded. Load the customer again before the next change: save does not raise its version.
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
