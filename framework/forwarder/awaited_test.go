package forwarder_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/store"
)

const awaited = "waiting for lanes leased by another forwarder"

// A forwarder that starts after another one was killed delivers nothing until the leases expire.
func TestWaitingForLeasesIsLoggedOnce(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		_, err := o.store.Cut(t.Context(), "sink", 2, "")
		require.NoError(t, err)
		var dead []store.Lease
		for _, l := range store.Lanes("sink", 2) {
			lease, err := o.store.Acquire(t.Context(), l, "dead/1/abc", 30*time.Minute)
			require.NoError(t, err)
			dead = append(dead, lease)
		}
		o.append("t", "", "a")
		var s script
		var log lines
		began := time.Now()
		f := o.one(forwarder.Sink{Sink: &s}, named("a", 2), log.logging)
		for range 3 {
			settleDown()
		}
		require.Empty(t, s.given())
		logged := log.with(awaited)
		require.Len(t, logged, 1)
		require.Contains(t, logged[0], "owner=dead/1/abc sinks=[sink] lanes=2 leased_until="+began.Add(29*time.Minute).UTC().Format("2006-01-02T15"))

		for _, lease := range dead {
			require.NoError(t, o.store.Release(t.Context(), lease))
		}
		settleDown()
		require.Equal(t, []string{"a"}, s.given())
		require.Len(t, log.with(awaited), 1)
		f.end()
	})
}

func TestAHealthyFleetDoesNotLogLeases(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		var first, second lines
		a := o.one(forwarder.Sink{Sink: &s}, named("a", 2), first.logging)
		settleDown()
		b := o.one(forwarder.Sink{Sink: &s}, named("b", 2), second.logging)
		settleDown()
		settleDown()
		require.Equal(t, map[string]int{"a": 1, "b": 1}, o.owners())
		require.Empty(t, first.with(awaited))
		require.Len(t, second.with(awaited), 1, "while lanes are being distributed")
		a.end()
		b.end()
	})
}
