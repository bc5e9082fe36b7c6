package forwarder_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
)

// TestLittleMemoryStopsNoLane has many sinks, each with several times the pending deliveries that fit
// into memory for all sinks together. In all sinks except one a delivery hangs.
func TestLittleMemoryStopsNoLane(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, o *outbox) {
		const n, page = 5000, 2000
		payload := []byte(`"` + strings.Repeat("x", 1000) + `"`)
		for chunk := range slices.Chunk(numbered("n", n), 1000) {
			rows := make([]notification.Envelope, len(chunk))
			for i, id := range chunk {
				rows[i] = notification.Envelope{ID: id, Type: "t", Payload: payload}
			}
			o.insert(rows...)
		}
		released := make(chan struct{})
		names := numbered("s", 6)
		to := make(map[string]forwarder.Sink)
		for i, name := range names {
			to[name] = forwarder.Sink{Timeout: time.Hour, Parallelism: forwarder.Parallelism{Threshold: 64}, Sink: &script{answer: func(ctx context.Context, d *notification.Delivery) error {
				if d.ID == "n0000" && i > 0 {
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-released:
					}
				}
				return takesTime(ctx, 20*time.Millisecond)
			}}}
		}
		f := o.start(to, route.Routes{"*": route.To(names...)}, func(c *forwarder.Config) {
			c.Memory = 1 << 20
			c.Unrouted = forwarder.UnroutedIgnore
		})
		f.Wake()
		for range 10 {
			time.Sleep(time.Second)
			synctest.Wait()
			for _, s := range f.Stats() {
				require.LessOrEqual(t, s.Pending, page, "at most one page of each lane")
			}
		}
		for i, s := range f.Stats() {
			if i == 0 {
				require.Equal(t, int64(n), s.Delivered, "the deliveries that hang do not stop this sink")
				continue
			}
			require.GreaterOrEqual(t, s.Delivered, int64(page-1), "the rest of its page is delivered")
		}
		close(released)
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, s := range f.Stats() {
			require.Equal(t, int64(n), s.Delivered, s.Sink)
			require.Zero(t, s.Pending)
		}
		f.end()
	})
}
