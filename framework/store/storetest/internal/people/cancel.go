package people

import (
	"database/sql"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// cancelFacts are about cancelling scheduled notifications.
var cancelFacts = []kit.Fact{
	{"a scheduled notification is cancelled by its id or its key, once", cancelScheduled},
	{"a reader passes over cancelled rows", readCancelled},
	{"a parked scheduled delivery is cancelled, even without its row, and falls due as cancelled", cancelParked},
	{"only scheduled notifications are cancelled", cancelOthers},
	{"a cancellation that rolls back has no effect", cancelRollback},
	{"a later notification with the same id and key is not cancelled, nor one in a log that was started again", cancelThenPublish},
	{"an uncommitted notification is not cancelled", cancelUncommitted},
	{"of simultaneous cancellations one counts", cancelTogether},
	{"a replay passes over cancelled rows", replayCancelled},
	{"cancelled deliveries are listed, counted and traced", lookAtCancelled},
	{"a cancellation is removed once nothing needs it", oldCancellationsGo},
}

// scheduledFor returns an envelope that is scheduled for a time.
func scheduledFor(key string, at time.Time) notification.Envelope {
	e := kit.Envelope("order.placed", key)
	e.DeliverAt = at
	return e
}

// cancel commits a cancellation and returns how many notifications it found.
func cancel(t *testing.T, o *kit.Outbox, s store.Scheduled) int {
	t.Helper()
	tx := o.Tx(t)
	n, err := o.Cancel(t.Context(), tx, s)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	return n
}

func byID(id string) store.Scheduled { return store.Scheduled{ID: id} }

func byKey(key string, types ...string) store.Scheduled {
	return store.Scheduled{Types: types, Key: key}
}

// parkScheduled parks the scheduled rows of a page, as the engine does.
func parkScheduled(t *testing.T, o *kit.Outbox) {
	t.Helper()
	lease := o.Hold(t, "mail")
	page := kit.NextPage(t, o.Reader(t, lease.Position, kit.All), o.Target(t), 1000)
	o.Write(t, lease, func(c *store.Checkpoint) {
		c.Position = page.End
		for _, e := range page.Envelopes {
			if !e.DeliverAt.IsZero() {
				c.Park = append(c.Park, store.Parked{Envelope: e, State: store.StateScheduled, DueAt: e.DeliverAt})
			}
		}
	})
}

func cancelScheduled(t *testing.T, o *kit.Outbox) {
	rows := []notification.Envelope{scheduledFor("a", kit.Later()), scheduledFor("a", kit.Later()), scheduledFor("b", kit.Later()), scheduledFor("a", kit.Later())}
	rows[3].Type = "order.was-placed"
	o.Publish(t, rows...)
	require.Equal(t, 1, cancel(t, o, byID(rows[0].ID)))
	require.Equal(t, 0, cancel(t, o, byID(rows[0].ID)), "it is cancelled already")
	require.Equal(t, 1, cancel(t, o, byKey("a", "order.placed")), "one of the two is cancelled already")
	require.Equal(t, 0, cancel(t, o, byKey("a", "order")))
	require.Equal(t, 1, cancel(t, o, byKey("a", "order.placed", "order.was-placed")), "it had another name")
	left, _ := o.Read(t, nil, kit.All, 10)
	require.Equal(t, []string{rows[2].ID}, kit.IDs(left))
}

func readCancelled(t *testing.T, o *kit.Outbox) {
	rows := []notification.Envelope{kit.Envelope("order.placed", "k"), scheduledFor("k", kit.Later()), kit.Envelope("order.placed", "k"), scheduledFor("k", kit.Later())}
	o.Publish(t, rows...)
	before := o.Target(t)
	require.Equal(t, 1, cancel(t, o, byID(rows[1].ID)))
	page := kit.NextPage(t, o.Reader(t, nil, kit.All), before, 10)
	require.Equal(t, []string{rows[0].ID, rows[2].ID, rows[3].ID}, kit.IDs(page.Envelopes), "also with a target that was probed before the cancellation")
	require.Equal(t, 1, cancel(t, o, byID(rows[3].ID)))
	left, _ := o.Read(t, nil, kit.All, 1)
	require.Equal(t, []string{rows[0].ID, rows[2].ID}, kit.IDs(left))
}

func cancelParked(t *testing.T, o *kit.Outbox) {
	rows := []notification.Envelope{scheduledFor("a", kit.Later()), scheduledFor("a", kit.Later()), scheduledFor("", kit.Later()), scheduledFor("b", kit.Later())}
	o.Publish(t, rows...)
	parkScheduled(t, o)
	require.Equal(t, 1, cancel(t, o, byID(rows[2].ID)), "the row and its parked delivery are one notification")
	o.Exec(t, `DELETE FROM outbox`)
	require.Equal(t, 2, cancel(t, o, byKey("a", "order.placed")))
	due, _ := o.DueAt(t, kit.Later().Add(time.Minute))
	states := make(map[string]store.State)
	for _, p := range due {
		states[p.Envelope.ID] = p.State
	}
	require.Equal(t, map[string]store.State{
		rows[0].ID: store.StateCancelled, rows[1].ID: store.StateCancelled, rows[2].ID: store.StateCancelled, rows[3].ID: store.StateScheduled,
	}, states)
}

func cancelOthers(t *testing.T, o *kit.Outbox) {
	past := scheduledFor("k", time.Now().Add(-time.Minute).UTC().Truncate(time.Millisecond))
	o.Publish(t, kit.Envelope("order.placed", "k"), past)
	o.Park(t, kit.Retrying(101, "k", kit.Later()), kit.Dead(102, "k"), kit.Blocked(103, "k"), kit.Scheduled(104, "k", time.Now().Add(-time.Minute)), kit.Scheduled(105, "", kit.Later()))
	require.Equal(t, 0, cancel(t, o, byKey("k", "order.placed")))
	require.Equal(t, 0, cancel(t, o, byKey("", "order.placed")))
	require.Equal(t, 0, cancel(t, o, byID(past.ID)))
	require.Equal(t, 0, cancel(t, o, byID("none")))
	require.Empty(t, o.Dump(t, `SELECT * FROM outbox_cancelled`))
}

func cancelRollback(t *testing.T, o *kit.Outbox) {
	row := scheduledFor("k", kit.Later())
	o.Publish(t, row)
	tx := o.Tx(t)
	n, err := o.Cancel(t.Context(), tx, byID(row.ID))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, tx.Rollback())
	left, _ := o.Read(t, nil, kit.All, 10)
	require.Len(t, left, 1)
	require.Equal(t, 1, cancel(t, o, byID(row.ID)))
}

func cancelThenPublish(t *testing.T, o *kit.Outbox) {
	first, second, third := scheduledFor("k", kit.Later()), scheduledFor("k", kit.Later()), scheduledFor("k", kit.Later())
	second.ID = first.ID // set by the publisher
	o.Publish(t, first)
	tx := o.Tx(t)
	_, err := o.Cancel(t.Context(), tx, byKey("k", "order.placed"))
	require.NoError(t, err)
	require.NoError(t, o.Append(t.Context(), tx, second))
	require.NoError(t, tx.Commit())
	left, _ := o.Read(t, nil, kit.All, 10)
	require.Equal(t, []string{second.ID}, kit.IDs(left))
	require.EqualValues(t, 2, left[0].Offset)

	o.Exec(t, o.Restart...)
	o.Publish(t, third)
	left, _ = o.Read(t, nil, kit.All, 10)
	require.Equal(t, []string{third.ID}, kit.IDs(left))
	require.EqualValues(t, 1, left[0].Offset, "the offset of the cancelled one")
}

func cancelUncommitted(t *testing.T, o *kit.Outbox) {
	if !o.Slots { // the database allows one writer at a time
		return
	}
	row := scheduledFor("k", kit.Later())
	publishing := o.Tx(t)
	require.NoError(t, o.Append(t.Context(), publishing, row))
	require.Equal(t, 0, cancel(t, o, byKey("k", "order.placed")))
	require.NoError(t, publishing.Commit())
	left, _ := o.Read(t, nil, kit.All, 10)
	require.Len(t, left, 1, "it was published later")
}

func cancelTogether(t *testing.T, o *kit.Outbox) {
	rows := []notification.Envelope{scheduledFor("k", kit.Later()), scheduledFor("k", kit.Later()), scheduledFor("k", kit.Later())}
	o.Publish(t, rows...)
	require.Len(t, rows, o.Together(t, func(tx *sql.Tx) (int, error) { return o.Cancel(t.Context(), tx, byKey("k", "order.placed")) }))
}

func replayCancelled(t *testing.T, o *kit.Outbox) {
	rows := []notification.Envelope{kit.Envelope("order.placed", "k"), scheduledFor("k", kit.Later())}
	o.Publish(t, rows...)
	cancel(t, o, byID(rows[1].ID))
	o.Passed(t, "mail")
	require.EqualValues(t, 1, countReplay(t, o, replayed(t, o)).Rows)
	require.Equal(t, 1, replay(t, o, replayed(t, o), 10))
	require.Equal(t, []int64{1}, find(t, o, store.ParkedFilter{Sink: "mail"}))
}

func lookAtCancelled(t *testing.T, o *kit.Outbox) {
	rows := []notification.Envelope{scheduledFor("a", kit.Later()), scheduledFor("b", kit.Later())}
	o.Publish(t, rows...)
	parkScheduled(t, o)
	cancel(t, o, byID(rows[0].ID))
	states := func(of ...store.State) store.ParkedFilter { return store.ParkedFilter{Sink: "mail", States: of} }
	require.Equal(t, []int64{1}, find(t, o, states(store.StateCancelled)))
	require.Equal(t, []int64{2}, find(t, o, states(store.StateScheduled)))
	require.Equal(t, []int64{1, 2}, find(t, o, states()))
	counts, _, err := o.CountParked(t.Context(), store.ParkedFilter{})
	require.NoError(t, err)
	require.Equal(t, []store.ParkedCount{{Sink: "mail", State: store.StateCancelled, Count: 1}, {Sink: "mail", State: store.StateScheduled, Count: 1}}, counts)
	trace := traceOf(t, o, rows[0].ID)
	require.Equal(t, store.StateCancelled, trace.Parked[0].State)
	require.Len(t, trace.Cancelled, 1)
	require.EqualValues(t, 1, trace.Cancelled[0].Offset)
	require.WithinDuration(t, time.Now(), trace.Cancelled[0].At, time.Minute)
	require.Empty(t, traceOf(t, o, rows[1].ID).Cancelled)
}

func oldCancellationsGo(t *testing.T, o *kit.Outbox) {
	rows := []notification.Envelope{scheduledFor("a", kit.Later()), scheduledFor("b", kit.Later())}
	o.Publish(t, rows...)
	parkScheduled(t, o)
	for _, row := range rows {
		require.Equal(t, 1, cancel(t, o, byID(row.ID)))
	}
	prune := func(age time.Duration, want int) {
		t.Helper()
		removed, err := o.PruneLeftovers(t.Context(), store.LeftoverCancellations, age, 10)
		require.NoError(t, err)
		require.Equal(t, want, removed)
	}
	prune(0, 0)
	o.Exec(t, `DELETE FROM outbox_parked`)
	prune(0, 0)
	o.Exec(t, `DELETE FROM outbox WHERE {offset} = 1`)
	prune(time.Hour, 0)
	prune(0, 1)
	o.Exec(t, `DELETE FROM outbox`)
	prune(0, 1)
}
