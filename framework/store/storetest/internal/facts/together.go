package facts

import (
	"database/sql"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// Together calls a function in eight simultaneous transactions, half of which roll back, and returns
// the sum of the counts of those that committed. If the database makes them serializable, a
// transaction that collides fails and is repeated.
func (o *Outbox) Together(t *testing.T, do func(tx *sql.Tx) (int, error)) int {
	t.Helper()
	attempt := func(commit bool) (int, error) {
		tx, err := o.DB.BeginTx(t.Context(), nil)
		if err != nil {
			return 0, err
		}
		defer func() { _ = tx.Rollback() }()
		n, err := do(tx)
		if err != nil || !commit {
			return 0, err
		}
		return n, tx.Commit()
	}
	var counted atomic.Int64
	var all errgroup.Group
	for i := range 8 {
		all.Go(func() (err error) {
			for range 100 {
				n := 0
				if n, err = attempt(i%2 == 0); err == nil {
					counted.Add(int64(n))
					return nil
				}
			}
			return err
		})
	}
	require.NoError(t, all.Wait())
	return int(counted.Load())
}

// One returns 1 for true.
func One(ok bool, err error) (int, error) {
	if ok {
		return 1, err
	}
	return 0, err
}
