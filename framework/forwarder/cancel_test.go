package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	outboxes "github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/registry"
)

// intoTheFuture advances the clock of the bubble so far that its scheduled times are in the future by
// the real clock of the database.
func intoTheFuture() { time.Sleep(100 * 365 * 24 * time.Hour) }

// cancel commits the cancellation of a key or, without one, of an id, and returns how many notifications
// were scheduled.
func (o *outbox) cancel(key, id string) (cancelled int) {
	o.t.Helper()
	p, err := outboxes.New(registry.New(), o.store, outboxes.Config{Announcer: outboxes.Silent})
	require.NoError(o.t, err)
	require.NoError(o.t, p.RunInTx(o.t.Context(), o.db, nil, func(ctx context.Context, tx *sql.Tx) (err error) {
		if key != "" {
			cancelled, err = p.CancelKey(ctx, tx, "t", key)
		} else {
			cancelled, err = p.CancelID(ctx, tx, id)
		}
		return err
	}))
	return cancelled
}

func TestANotificationCancelledInTimeIsDeliveredToNoSink(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		intoTheFuture()
		due := time.Now().Add(time.Hour)
		mail, web := &script{}, &script{}
		f := o.start(map[string]forwarder.Sink{"mail": {Sink: mail}, "web": {Sink: web}}, route.Routes{"*": route.To("mail", "web")})
		for _, id := range []string{"kept", "by id", "by key"} {
			o.schedule("t", "key of "+id, id, due)
		}
		f.flush()
		require.Len(t, o.parked(), 6)
		require.Equal(t, 1, o.cancel("", "by id"))
		require.Equal(t, 1, o.cancel("key of by key", ""))
		o.schedule("t", "", "not parked", due)
		require.Equal(t, 1, o.cancel("", "not parked"))
		time.Sleep(time.Until(due) + time.Minute)
		f.flush()
		require.Equal(t, []string{"kept"}, mail.given())
		require.Equal(t, []string{"kept"}, web.given())
		require.Empty(t, o.parked(), "a cancelled delivery is settled when it is due")
		require.Equal(t, 2, o.receipts())
	})
}

func TestANotificationCancelledBeforeItIsReadIsNotDelivered(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		intoTheFuture()
		due := time.Now().Add(time.Hour)
		o.schedule("t", "k", "cancelled", due)
		o.schedule("t", "k", "kept", due)
		require.Equal(t, 1, o.cancel("", "cancelled"))
		time.Sleep(2 * time.Hour) // no forwarder runs meanwhile
		s := &script{}
		f := o.one(forwarder.Sink{Sink: s})
		f.flush()
		require.Equal(t, []string{"kept"}, s.given())
		require.Empty(t, o.parked())
	})
}

func TestACancelledDeliveryOfABlockedKeyIsSettledOnceTheKeyIsFree(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		intoTheFuture()
		start := time.Now()
		s := &script{answer: refuses(errors.New("later"), func(d *notification.Delivery) bool { return d.ID == "head" && time.Since(start) < 2*time.Hour })}
		f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{MaxAttempts: 1000, Initial: time.Minute, Max: time.Minute}})
		o.schedule("t", "k", "cancelled", start.Add(time.Hour))
		f.publish("t", "k", "head", "behind")
		require.Equal(t, 1, o.cancel("", "cancelled"))
		time.Sleep(90 * time.Minute)
		f.flush()
		require.Contains(t, o.parked(), "sink scheduled cancelled")
		time.Sleep(time.Hour)
		f.flush()
		given := s.given()
		require.NotContains(t, given, "cancelled")
		require.Equal(t, "behind", given[len(given)-1])
		require.Empty(t, o.parked())
	})
}

// attempt is one notification of a history with cancellations.
type attempt struct {
	id, key  string
	due      time.Time
	asked    bool // cancellation was requested
	answered bool // the cancellation is committed and found it
	inTime   bool // cancelled before it was due
}

// TestRandomCancellationsHold runs publishers, cancellers and forwarders at once, and kills some.
// Everything cancelled in time is not delivered, and everything else is.
func TestRandomCancellationsHold(t *testing.T) {
	t.Parallel()
	for seed := range seeds(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			onEachStore(t, func(t *testing.T, o *outbox) {
				intoTheFuture()
				s := &script{}
				var mu sync.Mutex
				var all []*attempt
				var clients sync.WaitGroup
				for client := range 4 {
					rng := rand.New(rand.NewPCG(seed, uint64(client)))
					clients.Go(func() {
						for i := range 40 {
							a := &attempt{id: fmt.Sprintf("%d-%d", client, i), due: time.Now().Add(time.Duration(rng.IntN(4000)) * time.Millisecond), asked: rng.IntN(2) == 0}
							if rng.IntN(2) == 0 {
								a.key = a.id
							}
							mu.Lock()
							all = append(all, a)
							mu.Unlock()
							o.schedule("t", a.key, a.id, a.due)
							pause := time.Duration(rng.IntN(4500)) * time.Millisecond
							if a.asked {
								clients.Go(func() {
									time.Sleep(pause)
									a.cancel(o)
								})
							}
							time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
						}
					})
				}
				rng := rand.New(rand.NewPCG(seed, 100))
				for range 5 {
					f := o.one(forwarder.Sink{Sink: s}, briefLease)
					time.Sleep(time.Duration(500+rng.IntN(2000)) * time.Millisecond)
					if rng.IntN(2) == 0 { // the forwarder loses its work since the last checkpoint
						o.loseLeases()
						f.abandon()
					} else {
						f.end()
					}
					time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
				}
				clients.Wait()
				o.deliver(time.Minute, forwarder.Sink{Sink: s})

				delivered := make(map[string]bool)
				for _, id := range s.given() {
					delivered[id] = true
				}
				held := 0
				for _, a := range all {
					switch {
					case a.inTime:
						held++
						require.False(t, delivered[a.id], "%+v is delivered", a)
					case !a.asked || !a.answered:
						require.True(t, delivered[a.id], "%+v is not delivered", a)
					}
				}
				require.Greater(t, held, 20)
				require.Empty(t, o.parked())
			})
		})
	}
}

// cancel cancels by id or by key.
func (a *attempt) cancel(o *outbox) {
	a.answered = o.cancel(a.key, a.id) == 1
	a.inTime = a.answered && time.Now().Before(a.due)
}
