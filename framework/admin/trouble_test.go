package admin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store"
)

func TestWhatIsTroubleOfASink(t *testing.T) {
	t.Parallel()
	now := time.Now()
	usual := admin.Usual
	dead := store.SinkSample{Parked: store.ParkedFigures{States: []store.ParkedState{{State: store.StateDead, Count: 2}}}}
	state := func(s store.SinkState) store.Membership {
		return store.Membership{Members: []store.Member{{Owner: "f1", States: map[string]store.SinkState{"mail": s}}}}
	}
	free := func(since time.Duration, paused bool) store.Membership {
		return store.Membership{Lanes: []store.LaneState{{Lane: store.Lane{Sink: "mail"}, Free: since, Paused: paused}}}
	}
	did := func(hour ...store.Done) admin.Look {
		return admin.Look{Membership: store.Membership{Members: []store.Member{{Owner: "f1", Running: store.Running{Sinks: []store.SinkRunning{{Sink: "mail", Hour: hour}}}}}}}
	}
	for name, c := range map[string]struct {
		look      admin.Look
		sample    store.SinkSample
		tolerance admin.Tolerance
		want      []string
	}{
		"nothing":              {tolerance: usual},
		"paused":               {sample: store.SinkSample{Paused: true}, look: admin.Look{Membership: free(time.Hour, true)}, tolerance: usual, want: []string{admin.Paused}},
		"just resumed":         {look: admin.Look{Membership: free(2*time.Second, false)}, tolerance: usual},
		"resumed, not taken":   {look: admin.Look{Membership: free(store.Handover, false)}, tolerance: usual, want: []string{admin.LanesUnowned}},
		"no forwarder":         {look: admin.Look{Sample: store.Sample{Forwarders: -1}, Membership: free(time.Hour, false)}, tolerance: usual, want: []string{admin.NoForwarder}},
		"breaker":              {look: admin.Look{Membership: state(store.SinkState{BreakerOpen: true, OpenSince: now})}, tolerance: usual, want: []string{admin.BreakerOpen}},
		"breaker, not sampled": {look: admin.Look{Sinks: map[string]store.SinkRunning{"mail": {BreakerOpen: true}}}, tolerance: usual, want: []string{admin.BreakerOpen}},
		"throttled":            {look: admin.Look{Membership: state(store.SinkState{ThrottledUntil: now.Add(time.Hour)})}, tolerance: usual, want: []string{admin.Throttled}},
		"throttled before":     {look: admin.Look{Membership: state(store.SinkState{ThrottledUntil: now.Add(-time.Hour)})}, tolerance: usual},
		"a destination": {
			look:      admin.Look{Membership: state(store.SinkState{Destinations: []store.DestinationState{{Destination: "a", OpenSince: now}}, AllDestinations: 12})},
			tolerance: usual, want: []string{admin.Destinations, admin.BreakerOpen},
		},
		"late":            {sample: store.SinkSample{Lag: admin.LateAfter + time.Second}, tolerance: usual, want: []string{admin.Late}},
		"late enough":     {sample: store.SinkSample{Lag: time.Hour}, tolerance: admin.Tolerance{Lag: 2 * time.Hour}},
		"dead":            {sample: dead, tolerance: usual, want: []string{admin.DeadLetters}},
		"only errors":     {look: did(store.Done{0, 2}, store.Done{0, 3}, store.Done{9, 0}), tolerance: usual, want: []string{admin.Failing}},
		"few errors":      {look: did(store.Done{0, 4}), tolerance: usual},
		"some delivered":  {look: did(store.Done{0, 30}, store.Done{1, 0}), tolerance: usual},
		"few dead":        {sample: dead, tolerance: admin.Tolerance{Lag: time.Hour, Dead: 2}},
		"a hook fails":    {sample: store.SinkSample{Parked: store.ParkedFigures{Hooks: 1, HookError: "no such table"}}, tolerance: usual, want: []string{admin.HookFails}},
		"overdue":         {sample: store.SinkSample{Parked: store.ParkedFigures{Overdue: 1}}, tolerance: usual, want: []string{admin.Overdue}},
		"paused, overdue": {sample: store.SinkSample{Paused: true, Parked: store.ParkedFigures{Overdue: 1}}, look: admin.Look{Membership: free(0, true)}, tolerance: usual, want: []string{admin.Paused}},
	} {
		c.sample.Sink = "mail"
		c.look.Sample.Forwarders++
		var found []string
		for _, trouble := range c.look.Troubles(&c.sample, c.tolerance) {
			found = append(found, trouble.What)
		}
		require.Equal(t, c.want, found, name)
	}
}

func TestACountThatStoppedAtItsLimitSaysSo(t *testing.T) {
	t.Parallel()
	sample := store.SinkSample{Sink: "mail", Parked: store.ParkedFigures{States: []store.ParkedState{{State: store.StateDead, Count: store.ParkedLimit}}}}
	look := admin.Look{Sample: store.Sample{Forwarders: 1}}
	require.Equal(t, "at least 10,000 deliveries dead", look.Troubles(&sample, admin.Usual)[0].Text)
}

func TestTheBreakerThatOpenedFirstIsTheTrouble(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	open := func(owner string, since time.Time) store.Member {
		return store.Member{Owner: owner, States: map[string]store.SinkState{"mail": {BreakerOpen: true, OpenSince: since}}}
	}
	look := admin.Look{Membership: store.Membership{Members: []store.Member{open("f1", at.Add(time.Minute)), open("f2", at), open("f3", at.Add(time.Hour))}}}
	all := look.Holding("mail")
	require.Len(t, all, 1)
	require.Equal(t, "f2", all[0].Forwarder)
}

func TestATransactionThatHoldsTheLogIsATroubleOfTheLog(t *testing.T) {
	t.Parallel()
	look := admin.Look{At: time.Now(), Sample: store.Sample{Held: admin.HeldAfter}}
	require.Empty(t, look.Held(time.Minute))
	require.Empty(t, look.Held(0))
	troubles := look.Status(nil).Troubles
	require.Len(t, troubles, 1)
	require.Equal(t, admin.HeldTransaction, troubles[0].What)
	require.Equal(t, "a transaction that has written to the log has been open for 10s", troubles[0].Text)
}

func TestRowsMayStaySomeTimeAfterTheirRetention(t *testing.T) {
	t.Parallel()
	require.False(t, admin.KeptTooLong(time.Hour, 0))
	require.False(t, admin.KeptTooLong(72*time.Hour+8*time.Hour, 72*time.Hour))
	require.True(t, admin.KeptTooLong(72*time.Hour+9*time.Hour, 72*time.Hour))
}
