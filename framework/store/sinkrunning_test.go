package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

func TestBoundSinksKeepsTheMostImportantSinks(t *testing.T) {
	t.Parallel()
	few := []store.SinkRunning{{Sink: "b"}, {Sink: "a"}}
	require.Equal(t, []store.SinkRunning{{Sink: "a"}, {Sink: "b"}}, store.BoundSinks(few))
	require.Empty(t, store.BoundSinks(nil))

	var many []store.SinkRunning
	for i := range store.RunningSinks + 3 {
		many = append(many, store.SinkRunning{Sink: fmt.Sprintf("%03d", i), Delivered: 1, Threshold: 2})
	}
	last := len(many) - 1
	many[last].BreakerOpen, many[last-1].PerSecond, many[last-2].Pending = true, 0.5, 7
	got := store.BoundSinks(many)
	require.Len(t, got, store.RunningSinks+1)
	require.Equal(t, many[last-2:], got[store.RunningSinks-3:store.RunningSinks])
	require.Equal(t, store.SinkRunning{Sink: store.SinkOthers, Delivered: 3, Threshold: 6}, got[store.RunningSinks])
}

func TestTheSinksOfAMembershipAreTheSumsOverItsForwarders(t *testing.T) {
	t.Parallel()
	m := store.Membership{Members: []store.Member{
		{Owner: "a", Running: store.Running{Sinks: []store.SinkRunning{
			{Sink: "events", Delivered: 5, PerSecond: 1.5, InFlight: 1, Threshold: 16, Pending: 2},
			{Sink: "mail", Failed: 1, Dead: 2, BreakerOpen: true, Cause: "refused"},
		}}},
		{Owner: "b", Running: store.Running{Sinks: []store.SinkRunning{{Sink: "mail", Delivered: 3, Failed: 4, Threshold: 4}}}},
		{Owner: "an old one"},
	}}
	require.Equal(t, []store.SinkRunning{
		{Sink: "events", Delivered: 5, PerSecond: 1.5, InFlight: 1, Threshold: 16, Pending: 2},
		{Sink: "mail", Delivered: 3, Failed: 5, Dead: 2, Threshold: 4, BreakerOpen: true, Cause: "refused"},
	}, m.Sinks())
}
