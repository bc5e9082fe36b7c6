package waybilltest

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// digests is a sink that records what it gets, alone or together.
type digests struct {
	mu  sync.Mutex
	all []string
}

func (d *digests) add(text string) (notification.Receipt, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, text)
	return "", nil
}

func (d *digests) Deliver(_ context.Context, of *notification.Delivery) (notification.Receipt, error) {
	return d.add(string(of.Payload))
}

func (*digests) CollectionSize() int { return 0 }

func (d *digests) DeliverCollection(_ context.Context, c *sinks.Collection) (notification.Receipt, error) {
	texts := make([]string, len(c.Members))
	for i, m := range c.Members {
		texts[i] = string(m.Payload)
	}
	return d.add(strings.Join(texts, " "))
}

func TestCollectionsAreDueAsTimeAdvances(t *testing.T) {
	t.Parallel()
	first, second, third := `{"Number":1}`, `{"Number":2}`, `{"Number":3}`
	for name, check := range map[string]struct {
		collect forwarder.Collect
		onDead  forwarder.OnDead
		drained []string // after a drain
		want    []string // after a minute
	}{
		"all of a group":              {collect: forwarder.Collect{By: "type", Wait: time.Minute}, want: []string{first + " " + second}},
		"the newest of a key":         {collect: forwarder.Collect{Keep: forwarder.KeepNewest, Wait: time.Minute}, want: []string{second}},
		"the newest of a key in turn": {collect: forwarder.Collect{Keep: forwarder.KeepNewest, Wait: time.Minute}, onDead: forwarder.OnDeadHalt, drained: []string{second}, want: []string{second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			types := registry.New()
			require.NoError(t, registry.Register[left](types, "left", registry.Key(func(left) string { return "k" })))
			o, sink := New(t, types), &digests{}
			publish := func(numbers ...int) {
				require.NoError(t, o.Publisher.RunInTx(t.Context(), o.DB, nil, func(ctx context.Context, tx *sql.Tx) error {
					for _, n := range numbers {
						if err := o.Publisher.Publish(ctx, tx, left{n}); err != nil {
							return fmt.Errorf("number %d: %w", n, err)
						}
					}
					return nil
				}))
			}
			c := forwarder.Config{Store: o.Store, Types: types, Routes: route.Routes{"*": route.To("digest")},
				Sinks: map[string]forwarder.Sink{"digest": {Sink: sink, Collect: check.collect, OnDead: check.onDead}}}
			publish(1, 2)
			Drain(t, c)
			require.Equal(t, check.drained, sink.all)
			Advance(t, c, 30*time.Second)
			require.Equal(t, check.drained, sink.all, "half of the time")
			Advance(t, c, 31*time.Second)
			require.Equal(t, check.want, sink.all)
			publish(3)
			Advance(t, c, 2*time.Minute)
			require.Equal(t, append(check.want, third), sink.all)
		})
	}
}
