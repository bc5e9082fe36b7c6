package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/store"
)

// The hook breaks the transaction, so that it cannot be committed, and returns nil.
func TestAHookThatBreaksItsTransactionDelaysOnlyItsDelivery(t *testing.T) {
	for name, spoil := range map[string]func(ctx context.Context, tx *sql.Tx) error{
		"a statement fails, and the hook ignores the error": func(ctx context.Context, tx *sql.Tx) error {
			_, _ = tx.ExecContext(ctx, `INSERT INTO noted VALUES (1, 1), (1, 1)`)
			return nil
		},
		"a deferred constraint is violated": func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO noted VALUES (2, 2)`)
			return err
		},
		"the hook rolls back": func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
		"the hook commits":    func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
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
				require.ElementsMatch(t, []string{"one", "bad", "two", "three"}, s.given(), "the lane continues")
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				require.Empty(t, o.parked())
				require.Empty(t, s.given(), "no delivery is repeated")
				f.end()
			})
		})
	}
}

// actedOn is a store in which an operator acts after deliveries were read, just before the checkpoint
// that calls their hooks.
type actedOn struct {
	appendable
	act atomic.Pointer[func()]
}

func (s *actedOn) Checkpoint(ctx context.Context, c store.Checkpoint) error {
	if c.InTx != nil {
		if act := s.act.Swap(nil); act != nil {
			(*act)()
		}
	}
	return s.appendable.Checkpoint(ctx, c)
}

func TestAnActionBeforeAHookIsCalledAgainTakesEffect(t *testing.T) {
	for name, outcome := range map[string]error{"and fails": errors.New("deadlock"), "and succeeds": nil} {
		for act, test := range map[string]struct {
			do           func(o *outbox, b store.ParkedBatch) (store.ParkedBatchResult, error)
			changed      int
			given, after []string
		}{
			"requeue": {func(o *outbox, b store.ParkedBatch) (store.ParkedBatchResult, error) {
				return o.store.Requeue(o.t.Context(), b)
			},
				1, []string{"dies"}, []string{"sink dead dies"}},
			"discard": {func(o *outbox, b store.ParkedBatch) (store.ParkedBatchResult, error) {
				return o.store.Discard(o.t.Context(), b)
			},
				2, nil, nil},
		} {
			t.Run(act+" "+name, func(t *testing.T) {
				onEachStore(t, func(t *testing.T, o *outbox) {
					newOperator(o)
					s, acted := mixed(), &actedOn{appendable: o.store}
					var fails atomic.Bool
					fails.Store(true)
					answer := func() error {
						if fails.Load() {
							return errors.New("deadlock")
						}
						return nil
					}
					f := o.one(forwarder.Sink{Sink: s, Hooks: forwarder.Hooks{
						Delivered: func(context.Context, *sql.Tx, []forwarder.Delivered) error { return answer() },
						Dead:      func(context.Context, *sql.Tx, []event.Parked) error { return answer() },
					}}, func(c *forwarder.Config) { c.Store = acted })
					o.append("t", "", "good", "dies")
					f.flush()
					require.ElementsMatch(t, []string{"sink settling good", "sink dead dies"}, o.parked())
					require.ElementsMatch(t, []string{"good", "dies"}, s.given())
					do := func() {
						fails.Store(outcome != nil)
						require.NoError(t, o.store.Begin(t.Context(), store.Action{ID: "act", Filter: []byte("{}")}))
						result, err := test.do(o, store.ParkedBatch{Action: "act", Filter: store.ParkedFilter{Sink: "sink"}, Limit: 10})
						require.NoError(t, err)
						require.Equal(t, test.changed, result.Changed)
					}
					acted.act.Store(&do)
					time.Sleep(30 * time.Second)
					synctest.Wait()
					fails.Store(false)
					time.Sleep(10 * time.Minute)
					synctest.Wait()
					require.Equal(t, test.given, s.given())
					require.Equal(t, test.after, o.parked())
					f.end()
				})
			})
		}
	}
}
