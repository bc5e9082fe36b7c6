package forwarder_test

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
)

// TestAHookThatSpoilsItsTransactionHoldsBackItsDeliveryAndNoOther has a hook return nil for
// a transaction that cannot be committed.
func TestAHookThatSpoilsItsTransactionHoldsBackItsDeliveryAndNoOther(t *testing.T) {
	for name, spoil := range map[string]func(ctx context.Context, tx *sql.Tx) error{
		"a statement fails, which it passes over": func(ctx context.Context, tx *sql.Tx) error {
			_, _ = tx.ExecContext(ctx, `INSERT INTO noted VALUES (1, 1), (1, 1)`)
			return nil
		},
		"a constraint that is checked with the commit": func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO noted VALUES (2, 2)`)
			return err
		},
		"it rolls back": func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
		"it commits":    func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
	} {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, o *outbox) {
				o.exec(`CREATE TABLE parents (id int PRIMARY KEY)`)
				o.exec(`CREATE TABLE noted (id int PRIMARY KEY, parent int REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)`)
				began := time.Now()
				s := &script{}
				f := o.one(forwarder.Sink{Sink: s, Hooks: forwarder.Hooks{
					Delivered: func(ctx context.Context, tx *sql.Tx, all []forwarder.Delivered) error {
						if time.Since(began) < time.Minute && slices.ContainsFunc(all, func(d forwarder.Delivered) bool { return d.ID == "bad" }) {
							return spoil(ctx, tx)
						}
						return nil
					},
				}})
				o.append("t", "", "one", "bad", "two")
				f.flush()
				time.Sleep(10 * time.Second)
				synctest.Wait()
				o.append("t", "", "three")
				f.flush()
				require.ElementsMatch(t, []string{"one", "bad", "two", "three"}, s.given(), "the lane goes on")
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				require.Empty(t, o.parked())
				require.Empty(t, s.given(), "nothing is delivered again")
				f.end()
			})
		})
	}
}
