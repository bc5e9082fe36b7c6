package postgres

import (
	"context"
	"fmt"
	"reflect"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/store"
)

var _ store.Borrower = (*Store)(nil)

// Borrows implements [store.Borrower]. A handle that borrows gives a connection back when it does not need it.
// Its next one is another connection for database/sql, in the same session of the server.
func (s *Store) Borrows(ctx context.Context) (bool, error) {
	switch s.db.Driver().(type) {
	case *pq.Driver, *addressed:
		return false, nil // lib/pq has no pools
	}
	first, its, err := s.borrow(ctx)
	if err != nil {
		return false, err
	}
	second, next, err := s.borrow(ctx)
	if err != nil {
		return false, err
	}
	compares := reflect.ValueOf(first).Comparable() && reflect.ValueOf(second).Comparable()
	return compares && first != second && its == next, nil
}

// borrow returns a connection of the driver, which was given back, and its session.
func (s *Store) borrow(ctx context.Context) (of any, session int, err error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("look at a connection: %w", err)
	}
	defer func() { _ = conn.Close() }() // gives it back
	if err := conn.Raw(func(c any) error { of = c; return nil }); err != nil {
		return nil, 0, fmt.Errorf("look at a connection: %w", err)
	}
	if err := conn.QueryRowContext(ctx, `SELECT pg_backend_pid()`).Scan(&session); err != nil {
		return nil, 0, fmt.Errorf("look at a connection: %w", err)
	}
	return of, session, nil
}
