package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// noted has hooks that record their calls in the transaction, and then fail if fail returns an error.
func noted(o *outbox, fail func(hook string) error) forwarder.Hooks {
	o.t.Helper()
	o.exec(`CREATE TABLE noted (what text)`)
	note := func(ctx context.Context, tx *sql.Tx, hook, text string) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO noted VALUES ('`+hook+" "+text+`')`)
		return err
	}
	parked := func(hook string) func(context.Context, *sql.Tx, []event.Parked) error {
		return func(ctx context.Context, tx *sql.Tx, all []event.Parked) error {
			for _, p := range all {
				require.Equal(o.t, "sink", p.Sink)
				require.Equal(o.t, p.State == store.StateRetrying || p.State == store.StateScheduled, !p.DueAt.IsZero())
				if err := note(ctx, tx, hook, p.ID+" "+string(p.State)+" "+p.Error); err != nil {
					return err
				}
			}
			return fail(hook)
		}
	}
	return forwarder.Hooks{
		Delivered: func(ctx context.Context, tx *sql.Tx, all []forwarder.Delivered) error {
			for _, d := range all {
				if err := note(ctx, tx, "delivered", d.ID); err != nil {
					return err
				}
			}
			return fail("delivered")
		},
		Parked: parked("parked"),
		Dead:   parked("dead"),
	}
}

// noted returns what hooks have committed, and clears it.
func (o *outbox) noted() (all []string) {
	o.t.Helper()
	all = o.texts(`SELECT what FROM noted`)
	o.exec(`DELETE FROM noted`)
	return all
}

// mixed is a sink that answers by id.
func mixed() *script {
	return &script{answer: either(fails(errors.New("500"), 2, "fails"), fails(sinks.Permanent(errors.New("400")), always, "dies"))}
}

func TestHooksGetTheOutcomesOfDeliveries(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		f := o.one(forwarder.Sink{
			Sink: mixed(), Retry: forwarder.Retry{Initial: time.Minute},
			Hooks: noted(o, func(string) error { return nil }),
		})
		o.append("t", "k", "fails", "behind")
		o.append("t", "", "good", "dies")
		o.schedule("t", "", "scheduled", time.Now().Add(time.Hour))
		f.flush()
		require.ElementsMatch(t, []string{
			"parked fails retrying 500", "parked behind blocked ", "parked scheduled scheduled ", "delivered good", "dead dies dead 400",
		}, o.noted())
		pass(75 * time.Second)
		require.Equal(t, []string{"parked fails retrying 500"}, o.noted(), "it is retried")
		pass(2 * time.Hour)
		require.Equal(t, []string{"delivered fails", "delivered behind", "delivered scheduled"}, o.noted())
	})
}

func TestAHookThatFailsDelaysOnlyItsDelivery(t *testing.T) {
	for failing, held := range map[string]string{"delivered": "good", "parked": "fails", "dead": "dies"} {
		for name, fail := range map[string]func() error{
			"fails":  func() error { return errors.New("deadlock") },
			"panics": func() error { panic("index out of range") },
		} {
			t.Run(failing+" "+name, func(t *testing.T) {
				onEachStore(t, func(t *testing.T, o *outbox) {
					began := time.Now()
					calls := 0
					s := mixed()
					f := o.one(forwarder.Sink{Sink: s, Retry: later, Hooks: noted(o, func(hook string) error {
						if hook == failing && time.Since(began) < time.Minute {
							calls++
							return fail()
						}
						return nil
					})})
					f.publish("t", "", "good", "fails", "dies")
					pass(55 * time.Second)
					want := []string{"delivered good", "parked fails retrying 500", "dead dies dead 400"}
					others := slices.DeleteFunc(slices.Clone(want), func(s string) bool { return strings.HasPrefix(s, failing) })
					require.ElementsMatch(t, others, o.noted(), "the others are settled, and no effect of the failed hook is committed")
					parked := []string{"sink retrying fails", "sink dead dies"}
					if held == "good" {
						parked = append(parked, "sink settling good")
					}
					require.ElementsMatch(t, parked, o.parked())
					require.Equal(t, []string{held}, o.texts(`SELECT id FROM outbox_parked WHERE hook_error <> ''`), "the error is stored with the delivery")

					pass(2 * time.Minute)
					if failing == "parked" {
						require.Less(t, calls, 5, "after an attempt the hook is called until it has failed for this delivery alone")
						require.Empty(t, o.noted())
					} else {
						require.Greater(t, calls, 4, "the hook is called again")
						require.Less(t, calls, 15, "with growing pauses")
						require.Equal(t, []string{want[slices.Index([]string{"delivered", "parked", "dead"}, failing)]}, o.noted(), "once")
						require.Zero(t, value[int](o, `SELECT count(*) FROM outbox_parked WHERE hook_error <> '' OR state = 'settling'`))
					}
					require.ElementsMatch(t, []string{"sink retrying fails", "sink dead dies"}, o.parked())
					require.ElementsMatch(t, []string{"good", "fails", "dies"}, s.given(), "no delivery is repeated")
				})
			})
		}
	}
}

// spoiled is a hook that calls spoil for a delivery during the first minute.
func spoiled(id string, spoil func(ctx context.Context, tx *sql.Tx) error) forwarder.Hooks {
	until := time.Now().Add(time.Minute)
	return forwarder.Hooks{Delivered: func(ctx context.Context, tx *sql.Tx, all []forwarder.Delivered) error {
		if time.Now().Before(until) && slices.ContainsFunc(all, func(d forwarder.Delivered) bool { return d.ID == id }) {
			return spoil(ctx, tx)
		}
		return nil
	}}
}

// The hook refuses the first delivery of a key.
func TestAHookThatFailsForOneDeliveryDoesNotDelayItsKey(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{}
		f := o.one(forwarder.Sink{Sink: s, Hooks: spoiled("one", func(context.Context, *sql.Tx) error { return errors.New("deadlock") })})
		f.publish("t", "k", "one", "two", "three")
		pass(time.Second / 2)
		f.publish("t", "k", "four")
		require.Equal(t, []string{"one", "two", "three", "four"}, s.given())
		require.Equal(t, []string{"sink settling one"}, o.parked())
		pass(5 * time.Minute)
		require.Empty(t, o.parked())
		require.Empty(t, s.given(), "no delivery is repeated")
	})
}

func TestDeliveriesThatAHookRefusedUntilTheStopAreNotRepeated(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var refuses = true
		s := mixed()
		after := mixed()
		hooks := noted(o, func(string) error {
			if refuses {
				return errors.New("deadlock")
			}
			return nil
		})
		f := o.one(forwarder.Sink{Sink: s, Hooks: hooks})
		f.publish("t", "", "good", "dies")
		f.end()
		require.Empty(t, o.noted())
		require.ElementsMatch(t, []string{"sink settling good", "sink dead dies"}, o.parked())
		refuses = false
		o.one(forwarder.Sink{Sink: after, Hooks: hooks})
		pass(5 * time.Minute)
		require.ElementsMatch(t, []string{"good", "dies"}, s.given())
		require.Empty(t, after.given())
		require.ElementsMatch(t, []string{"delivered good", "dead dies dead 400"}, o.noted())
		require.Equal(t, []string{"sink dead dies"}, o.parked())
	})
}

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
				s := &script{}
				f := o.one(forwarder.Sink{Sink: s, Hooks: spoiled("bad", spoil)})
				f.publish("t", "", "one", "bad", "two")
				pass(10 * time.Second)
				f.publish("t", "", "three")
				require.ElementsMatch(t, []string{"one", "bad", "two", "three"}, s.given(), "the lane continues")
				pass(5 * time.Minute)
				require.Empty(t, o.parked())
				require.Empty(t, s.given(), "no delivery is repeated")
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
			do           func(s appendable, ctx context.Context, b store.ParkedBatch) (store.ParkedBatchResult, error)
			changed      int
			given, after []string
		}{
			"requeue": {appendable.Requeue, 1, []string{"dies"}, []string{"sink dead dies"}},
			"discard": {appendable.Discard, 2, nil, nil},
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
					}}, over(acted))
					f.publish("t", "", "good", "dies")
					require.ElementsMatch(t, []string{"sink settling good", "sink dead dies"}, o.parked())
					require.ElementsMatch(t, []string{"good", "dies"}, s.given())
					do := func() {
						fails.Store(outcome != nil)
						require.NoError(t, o.store.Begin(t.Context(), store.Action{ID: "act", Filter: []byte("{}")}))
						result, err := test.do(o.store, t.Context(), store.ParkedBatch{Action: "act", Filter: store.ParkedFilter{Sink: "sink"}, Limit: 10})
						require.NoError(t, err)
						require.Equal(t, test.changed, result.Changed)
					}
					acted.act.Store(&do)
					pass(30 * time.Second)
					fails.Store(false)
					pass(10 * time.Minute)
					require.Equal(t, test.given, s.given())
					require.Equal(t, test.after, o.parked())
				})
			})
		}
	}
}

// A checkpoint with hooks writes a part of what is settled. It must not rest before the next part.
func TestHooksOfABacklogAreCalledWithoutPauses(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		const takes = 200 * time.Millisecond
		var calls, seen int
		f := o.one(forwarder.Sink{Sink: &script{}, Hooks: forwarder.Hooks{
			Delivered: func(_ context.Context, _ *sql.Tx, all []forwarder.Delivered) error {
				time.Sleep(takes)
				calls++
				seen += len(all)
				return nil
			},
		}})
		o.append("t", "", numbered("", 6000)...)
		f.Wake()
		pass(9 * takes)
		require.Equal(t, 6000, seen, "in %d calls", calls)
	})
}
