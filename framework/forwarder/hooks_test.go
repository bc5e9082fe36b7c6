package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// noted has hooks write down what they are told, in the transaction; then what fail
// says.
func noted(o *outbox, fail func(hook string) error) forwarder.Hooks {
	o.t.Helper()
	o.exec(`CREATE TABLE noted (what text)`)
	note := func(ctx context.Context, tx *sql.Tx, hook, text string) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO noted VALUES ('`+hook+" "+text+`')`)
		return err
	}
	parked := func(hook string) func(context.Context, *sql.Tx, []forwarder.Parked) error {
		return func(ctx context.Context, tx *sql.Tx, all []forwarder.Parked) error {
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

// noted lists what hooks have committed, and forgets it.
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

func TestHooksAreToldWhatBecomesOfDeliveries(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		f := o.one(forwarder.Sink{
			Sink: mixed(), Retry: forwarder.Retry{Initial: time.Minute, Jitter: 0.01},
			Hooks: noted(o, func(string) error { return nil }),
		})
		o.append("t", "k", "fails", "behind")
		o.append("t", "", "good", "dies")
		o.schedule("t", "", "scheduled", time.Now().Add(time.Hour))
		f.flush()
		require.ElementsMatch(t, []string{
			"parked fails retrying 500", "parked behind blocked ", "parked scheduled scheduled ", "delivered good", "dead dies dead permanent: 400",
		}, o.noted())
		time.Sleep(62 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"parked fails retrying 500"}, o.noted(), "it comes again")
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"delivered fails", "delivered behind", "delivered scheduled"}, o.noted())
		f.end()
	})
}

func TestAHookThatFailsHoldsItsLaneAndNothingOfItIsCommitted(t *testing.T) {
	for failing, first := range map[string]string{"delivered": "good", "parked": "fails", "dead": "dies"} {
		for name, fail := range map[string]func() error{
			"fails":  func() error { return errors.New("deadlock") },
			"panics": func() error { panic("index out of range") },
		} {
			t.Run(failing+" "+name, func(t *testing.T) {
				onEachStore(t, func(t *testing.T, o *outbox) {
					began := time.Now()
					calls := 0
					s := mixed()
					var log lines
					f := o.one(forwarder.Sink{Sink: s, Retry: later, Parallelism: alone, Hooks: noted(o, func(hook string) error {
						if hook == failing && time.Since(began) < time.Minute {
							calls++
							return fail()
						}
						return nil
					})}, func(c *forwarder.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
					o.append("t", "", first)
					f.flush()
					for _, id := range []string{"good", "fails", "dies"} {
						if id != first {
							o.append("t", "", id)
							f.flush()
						}
					}
					time.Sleep(55 * time.Second)
					synctest.Wait()
					require.Greater(t, calls, 3, "it is called again")
					require.Empty(t, o.noted())
					require.Empty(t, o.parked(), "nothing is settled without it")
					require.Zero(t, value[int](o, `SELECT count(*) FROM outbox_receipts`))
					require.Len(t, log.with("settling failed"), 1)
					time.Sleep(time.Minute)
					synctest.Wait()
					require.ElementsMatch(t, []string{"delivered good", "parked fails retrying 500", "dead dies dead permanent: 400"}, o.noted(), "each once")
					require.ElementsMatch(t, []string{"sink retrying fails", "sink dead dies"}, o.parked())
					require.ElementsMatch(t, []string{"good", "fails", "dies"}, s.given(), "nothing is delivered again for it")
					f.end()
				})
			})
		}
	}
}

func TestWhatAHookRefusedUntilTheEndIsRepeated(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var refuses = true
		s := mixed()
		hooks := noted(o, func(string) error {
			if refuses {
				return errors.New("deadlock")
			}
			return nil
		})
		f := o.one(forwarder.Sink{Sink: s, Hooks: hooks}, func(c *forwarder.Config) { c.ShutdownTimeout = time.Second })
		o.append("t", "", "good", "dies")
		f.flush()
		f.abandon()
		require.Empty(t, o.noted())
		require.Empty(t, o.parked())
		refuses = false
		o.exec(`UPDATE outbox_cursors SET owner = NULL, epoch = epoch + 1 WHERE owner IS NOT NULL`)
		f = o.one(forwarder.Sink{Sink: s, Hooks: hooks})
		f.flush()
		require.ElementsMatch(t, []string{"good", "dies", "good", "dies"}, s.given())
		require.ElementsMatch(t, []string{"delivered good", "dead dies dead permanent: 400"}, o.noted())
		f.end()
	})
}
