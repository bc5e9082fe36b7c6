package admin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
)

func member(offset int64, id, group, collection string) store.Parked {
	p := delivery(offset, id, "", store.StateCollecting)
	p.Group, p.Collection = group, collection
	return p
}

// collections has an open collection of cart-17, one of cart-18 that is tried again, one of cart-19 in
// delivery, a dead one of cart-20, and one of cart-21 that waits for the hours of the sink.
func (o *outbox) collections(t *testing.T) {
	t.Helper()
	first, second := member(4, "failed-1", "cart-18", "n1"), member(5, "failed-2", "cart-18", "n1")
	first.DueAt, first.Attempt, first.LastError = time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC), 2, "503"
	sent, dead := member(6, "sent", "cart-19", "n2"), delivery(7, "dead", "", store.StateDead)
	quiet := member(9, "quiet", "cart-21", "n4")
	quiet.DueAt = time.Date(2100, 1, 2, 8, 0, 0, 0, time.UTC)
	sent.DueAt, dead.Group, dead.Collection, dead.LastError = noon, "cart-20", "n3", "no such person"
	o.settle(t, "mail", func(c *store.Checkpoint) {
		c.Park = []store.Parked{first, second, sent, dead, quiet}
		c.Collect = []store.Parked{member(1, "open-1", "cart-17", ""), member(2, "open-2", "cart-17", ""), member(3, "open-3", "cart-17", "")}
		c.CollectTerms = store.CollectTerms{Wait: 24 * time.Hour, MaxWait: 48 * time.Hour}
		c.Receipts = []store.Receipt{{Offset: 8, ID: "older", Receipt: notification.SupersededBy("newer"), DeliveredAt: noon}}
	})
}

func TestWhyReportsMembersOfCollections(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		o.collections(t)
		for id, want := range map[string]struct {
			where admin.Whereabouts
			text  string
		}{
			"open-2":   {admin.Collecting, `^waits in collection cart-17 with 2 others, due at \S+ \S+$`},
			"failed-2": {admin.Retrying, `^in collection cart-18 with 1 other: retrying at 2100-01-02 03:04:05Z, after attempt 2 of 5: 503$`},
			"sent":     {admin.Collecting, `^in collection cart-19 with no others, which is being delivered$`},
			"quiet":    {admin.Collecting, `^in collection cart-21 with no others: outside of the hours of the sink, which begin at 2100-01-02 08:00:00Z$`},
			"dead":     {admin.Dead, `^dead since .*: no such person$`},
			"older":    {admin.Superseded, `^superseded by newer at 2026-01-02 12:00:00Z$`},
		} {
			v := o.why(t, id).Verdicts[0]
			require.Equal(t, want.where, v.Where, id)
			require.Regexp(t, want.text, v.Text, id)
		}
		v := o.why(t, "failed-2").Verdicts[0]
		require.Equal(t, []any{"cart-18", 2, 2, "503"}, []any{v.Group, v.Members, v.Attempt, v.LastError})
		require.Equal(t, "newer", o.why(t, "older").Verdicts[0].SupersededBy)
	})
}

func TestWhyReportsThatASinkCollectsInMemory(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		_, err := o.store.Cut(t.Context(), "mail", 1, store.StartOldest)
		require.NoError(t, err)
		o.publish(t, "a", "order.placed", "k")
		routing := routing(t)
		routing.Collect = func(string) settings.Collect {
			return settings.Collect{Keep: settings.KeepNewest, Wait: time.Second}.WithDefaults()
		}
		answer, err := o.Why(t.Context(), "a", routing)
		require.NoError(t, err)
		require.Contains(t, answer.Verdicts[0].Text, "; the sink collects: the newest of each key waits 1s, and at most 10s")
	})
}

func TestAPlanCountsOfCollectionsWhatItRequeues(t *testing.T) {
	for name, check := range map[string]struct {
		filter admin.Filter
		want   int64
	}{
		"dead members are the default": {admin.Filter{}, 1},
		"a collection that is tried":   {admin.Filter{Group: "cart-18", States: []store.State{store.StateCollecting}}, 1},
		"its first member":             {admin.Filter{ID: "failed-1"}, 1},
		"another member":               {admin.Filter{ID: "failed-2"}, 0},
		"an open collection":           {admin.Filter{Group: "cart-17", States: []store.State{store.StateCollecting}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, o *outbox) {
				o.collections(t)
				plan, err := o.Requeue(t.Context(), check.filter)
				require.NoError(t, err)
				require.Equal(t, check.want, plan.Total())
				examples, err := plan.Examples(t.Context(), 10)
				require.NoError(t, err)
				require.Len(t, examples, int(check.want))
				action, err := plan.Run(t.Context(), nil)
				require.NoError(t, err)
				require.Equal(t, check.want, action.Count)
			})
		})
	}
}

func TestMembersOfACollectionAreDiscarded(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		o.collections(t)
		plan, err := o.Discard(t.Context(), admin.Filter{Group: "cart-17", States: []store.State{store.StateCollecting}})
		require.NoError(t, err)
		require.EqualValues(t, 3, plan.Total())
		action, err := plan.Run(t.Context(), nil)
		require.NoError(t, err)
		require.EqualValues(t, 3, action.Count)
		left, err := o.Count(t.Context(), admin.Filter{Group: "cart-17"})
		require.NoError(t, err)
		require.Empty(t, left)
	})
}
