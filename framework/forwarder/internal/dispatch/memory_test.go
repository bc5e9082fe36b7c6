package dispatch

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

func idle() *Dispatcher {
	return New(Config{Sink: "mail", Budget: NewBudget(1 << 20), Logger: slog.New(slog.DiscardHandler),
		Settings: policy.Settings{Parallelism: policy.Parallelism{}.WithDefaults(), Breaker: policy.Breaker{}.WithDefaults()}})
}

// delivery is one that has had so many attempts.
func delivery(offset int64, id string, attempts int) notification.Delivery {
	return notification.Delivery{Sink: "mail", Envelope: &notification.Envelope{Offset: offset, ID: id}, Attempt: attempts}
}

// A person who requeues or replays a delivery changes the revision, and wants it
// delivered, also where it looks just like one that was delivered and not written.
func TestWhatIsRememberedOfParkedDeliveriesEndsWithTheRevision(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		revisions  []int64
		remembered bool
	}{
		"the same":            {[]int64{7, 7}, true},
		"changed":             {[]int64{7, 8}, false},
		"the same, two later": {[]int64{7, 7, 7}, true},
		"changed afterwards":  {[]int64{7, 7, 8}, false},
		"changed before":      {[]int64{7, 8, 8}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := idle()
			lease := store.Lease{Lane: store.NewLane("mail", 0, 1), Owner: "o"}
			join := func(revision int64) *Lane {
				lease.Epoch++
				lease.Revision = revision
				return d.Join(context.Background(), lease, time.Now(), time.Minute)
			}
			l := join(c.revisions[0])
			l.Remember([]Settlement{
				{item: &item{Delivery: delivery(3, "parked", 2), state: store.StateRetrying}, Delivered: true, Receipt: "taken"},
				{item: &item{Delivery: delivery(4, "read", 1), rows: &rows{}}, Delivered: true, Receipt: "taken"},
			})
			l.Leave()
			for i, revision := range c.revisions[1:] {
				l = join(revision)
				if i < len(c.revisions)-2 {
					l.Remember(nil)
					l.Leave()
				}
			}
			_, remembered := l.memory.made(&item{Delivery: delivery(3, "parked", 1), state: store.StateRetrying})
			require.Equal(t, c.remembered, remembered)
			made, remembered := l.memory.made(&item{Delivery: delivery(4, "read", 0), rows: &rows{}})
			require.True(t, remembered, "nobody requeues what is in the log")
			require.EqualValues(t, "taken", made.Receipt)
		})
	}
}
