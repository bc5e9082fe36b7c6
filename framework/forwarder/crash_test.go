package forwarder_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// gatedLog is a store whose readers wait until a gate opens.
type gatedLog struct {
	appendable
	gate chan struct{}
}

func (s gatedLog) NewReader(p json.RawMessage, f store.Filter) (store.Reader, error) {
	r, err := s.appendable.NewReader(p, f)
	return gatedReader{r, s.gate}, err
}

type gatedReader struct {
	store.Reader
	gate chan struct{}
}

func (g gatedReader) Next(ctx context.Context, t store.Target, limit int) (store.Page, error) {
	select {
	case <-g.gate:
	case <-ctx.Done():
		return store.Page{}, ctx.Err()
	}
	return g.Reader.Next(ctx, t, limit)
}

// readAll reads the log in one page.
func (o *outbox) readAll() store.Page {
	o.t.Helper()
	r, err := o.store.NewReader(nil, store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Types: notification.AllTypes})
	require.NoError(o.t, err)
	target, err := o.store.Probe(o.t.Context())
	require.NoError(o.t, err)
	page, err := r.Next(o.t.Context(), target, 1000)
	require.NoError(o.t, err)
	return page
}

// TestARequeueBeforeTheLogIsReadKeepsTheOrder begins with the state after a crash:
// the first delivery of a key is dead, the second was in flight, and the third is parked behind it
// and settled beyond the position. An operator requeues the dead one before the forwarder has read the
// second one again.
func TestARequeueBeforeTheLogIsReadKeepsTheOrder(t *testing.T) {
	for name, c := range map[string]struct {
		head  string // key of the second delivery
		fails error  // error of the requeued delivery
	}{
		"the same key":                          {head: "k"},
		"no key":                                {head: ""},
		"the same key, the requeued one dies":   {head: "k", fails: sinks.Permanent(errors.New("still"))},
		"the same key, the requeued one waits":  {head: "k", fails: errors.New("later")},
		"another key, the requeued one retries": {head: "other", fails: errors.New("later")},
	} {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, o *outbox) {
				ctx := t.Context()
				o.append("a", "k", "dead")
				o.append("a", c.head, "head")
				o.append("a", "k", "behind")
				o.append("a", "", "x", "y")
				_, err := o.store.Cut(ctx, "sink", 1, store.StartOldest)
				require.NoError(t, err)
				lease, err := o.store.Acquire(ctx, store.NewLane("sink", 0, 1), "before", time.Second)
				require.NoError(t, err)
				page := o.readAll()
				require.NoError(t, o.store.Checkpoint(ctx, store.Checkpoint{
					Lease: lease, TTL: time.Second, Number: 1,
					Position: page.After(0), Settled: store.OffsetRanges(page.Envelopes[2].Offset),
					Park: []store.Parked{
						{Envelope: page.Envelopes[0], State: store.StateDead, Attempt: 3},
						{Envelope: page.Envelopes[2], State: store.StateBlocked},
					},
				}))
				require.NoError(t, o.store.Release(ctx, lease))

				s := &script{}
				s.answer = func(_ context.Context, d *notification.Delivery) error {
					if d.ID == "dead" && d.Attempt == 1 {
						return c.fails
					}
					return nil
				}
				gate := make(chan struct{})
				f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{Initial: time.Minute}}, func(c *forwarder.Config) {
					c.Store = gatedLog{o.store, gate}
				})
				f.flush()
				require.Empty(t, s.given())
				p := newOperator(o)
				require.Equal(t, 1, p.requeue(store.ParkedFilter{}))
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				early := s.given()
				require.NotContains(t, early, "behind", "the delivery before it is not read yet")
				require.Equal(t, "dead", early[0])
				close(gate)
				time.Sleep(time.Hour)
				synctest.Wait()
				late := s.given()
				f.end()
				var ofKey []string
				for _, id := range late {
					if id == "head" || id == "behind" {
						ofKey = append(ofKey, id)
					}
				}
				if c.head == "k" {
					require.Equal(t, []string{"head", "behind"}, ofKey)
				}
				require.Subset(t, []string{"head", "behind", "x", "y"}, late, "each once, and none of them early")
				require.Len(t, late, 4)
				require.NotContains(t, o.parked(), "sink blocked behind")
			})
		})
	}
}
