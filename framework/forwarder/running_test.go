package forwarder_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/store"
)

// heard is what the heartbeat of the only forwarder says.
func (o *outbox) heard() store.Running {
	o.t.Helper()
	m, err := o.store.Membership(o.t.Context())
	require.NoError(o.t, err)
	require.Len(o.t, m.Members, 1)
	return m.Members[0].Running
}

// By what heartbeats say others see whether all forwarders work alike.
func TestHeartbeatsSayHowAForwarderWorks(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, o *outbox) {
		said := func(f *engine) store.Running {
			t.Helper()
			f.flush()
			defer f.end()
			return o.heard()
		}
		one := said(o.one(forwarder.Sink{Sink: &script{}}))
		same := said(o.one(forwarder.Sink{Sink: &script{}}, func(c *forwarder.Config) { c.Name = "another name" }))
		require.NotEmpty(t, one.Version)
		require.Equal(t, one.Version, same.Version)
		require.Len(t, one.Settings, 12)
		require.Equal(t, one.Settings, same.Settings)
		for name, sink := range map[string]forwarder.Sink{
			"timeout": {Sink: &script{}, Timeout: time.Hour},
			"on_dead": {Sink: &script{}, OnDead: forwarder.OnDeadHalt},
		} {
			require.NotEqual(t, one.Settings, said(o.one(sink)).Settings, name)
		}
	})
}

func TestHeartbeatsSayHowLongCheckpointsTookInTheLastMinute(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, o *outbox) {
		var quick atomic.Bool
		h := &hooked{appendable: o.store, db: o.db}
		h.checkpoint = func(_ context.Context, _ store.Checkpoint, next func() error) error {
			if !quick.Load() {
				time.Sleep(3 * time.Second)
			}
			return next()
		}
		f := o.one(forwarder.Sink{Sink: &script{}}, func(c *forwarder.Config) { c.Store, c.Lease = h, 15*time.Second })
		o.append("t", "k", "a")
		f.flush()
		time.Sleep(20 * time.Second)
		quick.Store(true)
		require.GreaterOrEqual(t, o.heard().Checkpoint, 3*time.Second)
		time.Sleep(2 * time.Minute)
		require.Less(t, o.heard().Checkpoint, 3*time.Second)
		f.end()
	})
}
