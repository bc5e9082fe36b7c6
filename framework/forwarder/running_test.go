package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// running returns the heartbeat of the only forwarder.
func (o *outbox) running() store.Running {
	o.t.Helper()
	m, err := o.store.Membership(o.t.Context())
	require.NoError(o.t, err)
	require.Len(o.t, m.Members, 1)
	return m.Members[0].Running
}

// Heartbeats show whether all forwarders have the same settings.
func TestHeartbeatsHaveTheSettingsOfAForwarder(t *testing.T) {
	onlyPostgres(t, func(t *testing.T, o *outbox) {
		figures := func(f *engine) store.Running {
			t.Helper()
			f.flush()
			defer f.end()
			return o.running()
		}
		one := figures(o.one(forwarder.Sink{Sink: &script{}}))
		same := figures(o.one(forwarder.Sink{Sink: &script{}}, func(c *forwarder.Config) { c.Name = "another name" }))
		require.NotEmpty(t, one.Version)
		require.Equal(t, one.Version, same.Version)
		require.Len(t, one.Settings, 12)
		require.Equal(t, one.Settings, same.Settings)
		for name, sink := range map[string]forwarder.Sink{
			"timeout": {Sink: &script{}, Timeout: time.Hour},
			"on_dead": {Sink: &script{}, OnDead: forwarder.OnDeadHalt},
		} {
			require.NotEqual(t, one.Settings, figures(o.one(sink)).Settings, name)
		}
	})
}

func TestHeartbeatsHaveTheDurationOfCheckpointsInTheLastMinute(t *testing.T) {
	onlyPostgres(t, func(t *testing.T, o *outbox) {
		var quick atomic.Bool
		h := &hooked{appendable: o.store, db: o.db}
		h.checkpoint = func(_ context.Context, _ store.Checkpoint, next func() error) error {
			if !quick.Load() {
				time.Sleep(3 * time.Second)
			}
			return next()
		}
		f := o.one(forwarder.Sink{Sink: &script{}}, func(c *forwarder.Config) { c.Store, c.Lease = h, 15*time.Second })
		f.publish("t", "k", "a")
		time.Sleep(20 * time.Second)
		quick.Store(true)
		require.GreaterOrEqual(t, o.running().Checkpoint, 3*time.Second)
		time.Sleep(2 * time.Minute)
		require.Less(t, o.running().Checkpoint, 3*time.Second)
	})
}

// figuresOf returns the sinks in the heartbeat of the only forwarder, one lease later.
func (o *outbox) figuresOf(lease time.Duration) map[string]store.SinkRunning {
	o.t.Helper()
	time.Sleep(lease / 2)
	figures := make(map[string]store.SinkRunning)
	for _, s := range o.running().Sinks {
		figures[s.Sink] = s
	}
	return figures
}

// Any process can show what all forwarders do.
func TestHeartbeatsHaveTheFiguresOfEachSink(t *testing.T) {
	const lease = 15 * time.Second
	onEachStore(t, func(t *testing.T, o *outbox) {
		mail := &script{answer: either(fails(sinks.Permanent(errors.New("no such address")), always, "dead"), fails(errors.New("try again"), 1, "later"))}
		hanging := &script{answer: takes(10 * time.Minute)}
		down := down(sinks.Unavailable(errors.New("no route to host: " + strings.Repeat("x", 1000))))
		f := o.start(map[string]forwarder.Sink{"mail": {Sink: mail, Parallelism: alone}, "hanging": {Sink: hanging, Timeout: time.Hour, Parallelism: forwarder.Parallelism{Threshold: 2}}, "down": {Sink: down}},
			route.Routes{"*": route.To("mail", "hanging", "down")}, leased(lease))
		require.Equal(t, store.SinkRunning{Sink: "mail", Threshold: 1}, o.figuresOf(lease)["mail"])
		f.publish("t", "", append(numbered("", 30), "dead", "later")...)
		time.Sleep(30 * time.Second)
		figures := o.figuresOf(lease)
		rate := figures["mail"].PerSecond
		require.InDelta(t, 31.0/45, rate, 0.2)
		require.Equal(t, store.SinkRunning{Sink: "mail", Threshold: 1, Delivered: 31, Failed: 1, Dead: 1, PerSecond: rate, Hour: []store.Done{{31, 2}}}, figures["mail"])
		require.Equal(t, store.SinkRunning{Sink: "hanging", Threshold: 2, InFlight: 2, Pending: 32}, figures["hanging"])
		require.True(t, figures["down"].BreakerOpen)
		require.Contains(t, figures["down"].Cause, "no route to host: xxx")
		require.LessOrEqual(t, len(figures["down"].Cause), 100)
		time.Sleep(2 * time.Minute)
		require.Zero(t, o.figuresOf(lease)["mail"].PerSecond, "nothing in the last minute")
		time.Sleep(10 * time.Minute)
		require.Equal(t, []store.Done{{}, {}, {31, 2}}, o.figuresOf(lease)["mail"].Hour)
		f.abandon()
	})
}

func TestHeartbeatsContinueToCountAfterAReload(t *testing.T) {
	const lease = 15 * time.Second
	onEachStore(t, func(t *testing.T, o *outbox) {
		every := route.Routes{"*": route.To("sink")}
		f := o.one(forwarder.Sink{Sink: &script{}}, leased(lease))
		f.publish("t", "", numbered("a", 20)...)
		require.Equal(t, int64(20), o.figuresOf(2 * lease)["sink"].Delivered)
		for i, total := range []int64{25, 30} {
			require.NoError(t, f.Reload(t.Context(), map[string]forwarder.Sink{"sink": {Sink: &script{}}}, every))
			f.publish("t", "", numbered(fmt.Sprint("b", i), 5)...)
			require.Equal(t, total, o.figuresOf(2 * lease)["sink"].Delivered)
		}
		require.Equal(t, int64(5), f.Stats()[0].Delivered)
	})
}

func TestAHeartbeatNamesTheBusiestOfManySinks(t *testing.T) {
	const lease, many = 15 * time.Second, store.RunningSinks + 8
	onEachStore(t, func(t *testing.T, o *outbox) {
		all, routes := make(map[string]forwarder.Sink), route.Routes{}
		for i, name := range numbered("sink", many) {
			all[name] = forwarder.Sink{Sink: &script{}, Parallelism: alone}
			routes[fmt.Sprint("t", i)] = route.To(name)
		}
		f := o.start(all, routes, leased(lease))
		f.flush()
		f.publish(fmt.Sprint("t", many-1), "", "a")
		figures := o.figuresOf(2 * lease)
		require.Len(t, figures, store.RunningSinks+1)
		require.Equal(t, int64(1), figures[fmt.Sprintf("sink%04d", many-1)].Delivered)
		require.Equal(t, 9, figures[store.SinkOthers].Threshold, "the rest")
	})
}
