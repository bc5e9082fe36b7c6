package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
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
	rows, err := o.db.QueryContext(o.t.Context(), `SELECT what FROM noted`)
	require.NoError(o.t, err)
	defer rows.Close()
	for rows.Next() {
		var what string
		require.NoError(o.t, rows.Scan(&what))
		all = append(all, what)
	}
	require.NoError(o.t, rows.Err())
	o.exec(`DELETE FROM noted`)
	return all
}

// mixed is a sink that answers by id.
func mixed() *script {
	return &script{answer: func(_ context.Context, d *notification.Delivery) error {
		switch {
		case d.ID == "fails" && d.Attempt < 3:
			return errors.New("500")
		case d.ID == "dies":
			return sinks.Permanent(errors.New("400"))
		}
		return nil
	}}
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
			"parked fails retrying 500", "parked behind blocked ", "parked scheduled scheduled ", "delivered good", "dead dies dead permanent: 400",
		}, o.noted())
		time.Sleep(75 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"parked fails retrying 500"}, o.noted(), "it is retried")
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"delivered fails", "delivered behind", "delivered scheduled"}, o.noted())
		f.end()
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
					o.append("t", "", "good", "fails", "dies")
					f.flush()
					time.Sleep(55 * time.Second)
					synctest.Wait()
					want := []string{"delivered good", "parked fails retrying 500", "dead dies dead permanent: 400"}
					others := slices.DeleteFunc(slices.Clone(want), func(s string) bool { return strings.HasPrefix(s, failing) })
					require.ElementsMatch(t, others, o.noted(), "the others are settled, and no effect of the failed hook is committed")
					states := map[string]string{"fails": "retrying", "dies": "dead"}
					if held == "good" {
						states["good"] = "settling"
					}
					var parked []string
					for id, state := range states {
						parked = append(parked, "sink "+state+" "+id)
					}
					require.ElementsMatch(t, parked, o.parked())
					require.Equal(t, 1, value[int](o, `SELECT count(*) FROM outbox_parked WHERE hook_error <> '' AND id = '`+held+`'`), "the error is stored with the delivery")
					require.Equal(t, 1, value[int](o, `SELECT count(*) FROM outbox_parked WHERE hook_error <> ''`))

					time.Sleep(2 * time.Minute)
					synctest.Wait()
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
					f.end()
				})
			})
		}
	}
}

// The hook refuses the first delivery of a key.
func TestAHookThatFailsForOneDeliveryDoesNotDelayItsKey(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{}
		var refuses atomic.Bool
		refuses.Store(true)
		f := o.one(forwarder.Sink{Sink: s, Hooks: forwarder.Hooks{Delivered: func(_ context.Context, _ *sql.Tx, all []forwarder.Delivered) error {
			if refuses.Load() && slices.ContainsFunc(all, func(d forwarder.Delivered) bool { return d.ID == "one" }) {
				return errors.New("deadlock")
			}
			return nil
		}}}, func(c *forwarder.Config) { c.Logger = slog.New(slog.DiscardHandler) })
		o.append("t", "k", "one", "two", "three")
		f.flush()
		time.Sleep(time.Second / 2)
		synctest.Wait()
		o.append("t", "k", "four")
		f.flush()
		require.Equal(t, []string{"one", "two", "three", "four"}, s.given())
		require.Equal(t, []string{"sink settling one"}, o.parked())
		refuses.Store(false)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.Empty(t, o.parked())
		require.Empty(t, s.given(), "no delivery is repeated")
		f.end()
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
		o.append("t", "", "good", "dies")
		f.flush()
		f.end()
		require.Empty(t, o.noted())
		require.ElementsMatch(t, []string{"sink settling good", "sink dead dies"}, o.parked())
		refuses = false
		f = o.one(forwarder.Sink{Sink: after, Hooks: hooks})
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.ElementsMatch(t, []string{"good", "dies"}, s.given())
		require.Empty(t, after.given())
		require.ElementsMatch(t, []string{"delivered good", "dead dies dead permanent: 400"}, o.noted())
		require.Equal(t, []string{"sink dead dies"}, o.parked())
		f.end()
	})
}
