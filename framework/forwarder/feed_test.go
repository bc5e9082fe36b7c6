package forwarder_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
)

// readers is a store that counts the pages with rows that it returns for each filter.
type readers struct {
	appendable
	mu    sync.Mutex
	pages map[string]int
}

type countedReader struct {
	store.Reader
	counts *readers
	name   string
}

func (r *readers) NewReader(p json.RawMessage, f store.Filter) (store.Reader, error) {
	reader, err := r.appendable.NewReader(p, f)
	return countedReader{reader, r, fmt.Sprintf("%v %d-%d", f.Types.Names, f.Slots.First, f.Slots.Last)}, err
}

func (c countedReader) Next(ctx context.Context, t store.Target, limit int) (store.Page, error) {
	page, err := c.Reader.Next(ctx, t, limit)
	if len(page.Envelopes) > 0 {
		c.counts.mu.Lock()
		defer c.counts.mu.Unlock()
		c.counts.pages[c.name]++
	}
	return page, err
}

func TestSeveralSinksAndLanesEachGetExactlyTheirRowsInOrder(t *testing.T) {
	for _, lanes := range []int{1, 4} {
		t.Run(fmt.Sprint("lanes ", lanes), func(t *testing.T) {
			onEachStore(t, func(t *testing.T, o *outbox) {
				log := &readers{appendable: o.store, pages: make(map[string]int)}
				all := map[string]*script{"a": {}, "b": {}, "both": {}, "dear": {}, "slow": {}}
				all["slow"].answer = takes(100 * time.Millisecond)
				to := make(map[string]forwarder.Sink)
				for name, s := range all {
					to[name] = forwarder.Sink{Sink: s, Parallelism: forwarder.Parallelism{Threshold: 2}}
				}
				f := o.start(to, route.Routes{
					"a": route.To("a", "both", "slow"),
					"b": {{Sink: "b"}, {Sink: "both"}, {Sink: "dear", When: "payload.cost > 10"}},
				}, func(c *forwarder.Config) { c.Store = log; c.Lanes = lanes; c.Lease = 15 * time.Second })
				f.flush()
				time.Sleep(time.Minute) // the lanes join the feed
				f.flush()
				want := make(map[string]map[string][]string) // by sink and key
				note := func(sink, key, id string) {
					if want[sink] == nil {
						want[sink] = make(map[string][]string)
					}
					want[sink][key] = append(want[sink][key], id)
				}
				for round := range 20 {
					var rows []notification.Envelope
					for i := range 30 {
						e := notification.Envelope{ID: fmt.Sprintf("%02d-%02d", round, i), Type: []string{"a", "b", "c"}[i%3], Key: fmt.Sprint("key", i%7), Payload: fmt.Appendf(nil, `{"cost": %d}`, i)}
						rows = append(rows, e)
						switch e.Type {
						case "a":
							note("a", e.Key, e.ID)
							note("both", e.Key, e.ID)
							note("slow", e.Key, e.ID)
						case "b":
							note("b", e.Key, e.ID)
							note("both", e.Key, e.ID)
							if i > 10 {
								note("dear", e.Key, e.ID)
							}
						}
					}
					o.insert(rows...)
					f.flush()
				}
				pass(time.Minute)
				f.end()
				for name, s := range all {
					got := make(map[string][]string)
					for _, id := range s.given() {
						var round, i int
						_, err := fmt.Sscanf(id, "%d-%d", &round, &i)
						require.NoError(t, err)
						key := fmt.Sprint("key", i%7)
						got[key] = append(got[key], id)
					}
					require.Equal(t, want[name], got, name)
					require.Zero(t, s.overlaps, name)
				}
				require.Len(t, slices.DeleteFunc(o.parked(), func(p string) bool { return p[:9] == "_unrouted" }), 0)
				require.GreaterOrEqual(t, log.pages["[] 0-1023"], 15, "one reader reads for all lanes that have caught up")
				if lanes == 1 {
					require.GreaterOrEqual(t, log.pages["[b] 0-1023"], 15, "a sink with a condition reads by itself")
				}
			})
		})
	}
}

func TestALaneThatFallsBehindTheOthersCatchesUp(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		gate := make(chan struct{})
		quick, slow := &script{}, &script{answer: func(ctx context.Context, _ *notification.Delivery) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-gate:
				return nil
			}
		}}
		f := o.start(map[string]forwarder.Sink{"quick": {Sink: quick}, "slow": {Sink: slow, Timeout: time.Hour}}, route.Routes{"*": route.To("quick", "slow")})
		f.flush()
		const n = window + 3000
		ids := numbered("n", n)
		for chunk := range slices.Chunk(ids, 1000) {
			f.publish("t", "", chunk...)
		}
		require.Equal(t, int64(n), f.Stats()[0].Delivered, "the slow sink does not delay the other")
		require.Equal(t, window, f.Stats()[1].Pending, "its window is full")
		close(gate)
		pass(time.Minute)
		f.publish("t", "", "last")
		want := slices.Sorted(slices.Values(append(ids, "last")))
		for _, s := range []*script{quick, slow} {
			require.True(t, slices.Equal(want, slices.Sorted(slices.Values(s.given()))), "each once")
		}
	})
}
