package kit

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Parked returns a delivery of a new envelope.
func Parked(offset int64, key string, state store.State, dueAt time.Time) store.Parked {
	e := Envelope("order.placed", key)
	e.Offset = offset
	return store.Parked{Envelope: e, State: state, DueAt: dueAt, FirstParkedAt: Moment}
}

// Retrying returns a delivery of a new envelope that is tried again at a time.
func Retrying(offset int64, key string, dueAt time.Time) store.Parked {
	return Parked(offset, key, store.StateRetrying, dueAt)
}

// Scheduled returns a delivery of a new envelope that is scheduled for a time.
func Scheduled(offset int64, key string, dueAt time.Time) store.Parked {
	return Parked(offset, key, store.StateScheduled, dueAt)
}

// Blocked returns a delivery of a new envelope that waits behind others of its key.
func Blocked(offset int64, key string) store.Parked {
	return Parked(offset, key, store.StateBlocked, time.Time{})
}

// Dead returns a dead delivery of a new envelope.
func Dead(offset int64, key string) store.Parked {
	return Parked(offset, key, store.StateDead, time.Time{})
}

// After returns a time after Moment.
func After(d time.Duration) time.Time { return Moment.Add(d) }

// Park parks deliveries of the sink "mail" and returns its lease.
func (o *Outbox) Park(t *testing.T, deliveries ...store.Parked) store.Lease {
	t.Helper()
	return o.ParkFor(t, "mail", deliveries...)
}

// ParkFor parks deliveries of a sink and returns its lease.
func (o *Outbox) ParkFor(t *testing.T, sink string, deliveries ...store.Parked) store.Lease {
	t.Helper()
	lease := o.Hold(t, sink)
	o.Write(t, lease, func(c *store.Checkpoint) { c.Park = deliveries })
	return lease
}

// DueAt returns what is due for the sink "mail" at a time, and when the next delivery is.
func (o *Outbox) DueAt(t *testing.T, now time.Time) (due []store.Parked, next time.Time) {
	t.Helper()
	due, next, err := o.Due(t.Context(), store.DueQuery{Lane: Lane("mail"), Now: now, Limit: 1000})
	require.NoError(t, err)
	return due, next
}

// DueOffsets returns the offsets that are due for the sink "mail" at moment.
func (o *Outbox) DueOffsets(t *testing.T, change func(q *store.DueQuery)) ([]int64, time.Time) {
	t.Helper()
	q := store.DueQuery{Lane: Lane("mail"), Now: Moment, Limit: 100}
	if change != nil {
		change(&q)
	}
	due, next, err := o.Due(t.Context(), q)
	require.NoError(t, err)
	return Offsets(due), next
}

// Later is a time that is not due soon.
func Later() time.Time { return time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond) }

// Refs returns the references of deliveries.
func Refs(deliveries ...store.Parked) []store.Ref {
	list := make([]store.Ref, len(deliveries))
	for i := range deliveries {
		list[i] = store.RefOf(&deliveries[i].Envelope)
	}
	return list
}

// Offsets returns the offsets of deliveries.
func Offsets(deliveries []store.Parked) []int64 {
	list := []int64{}
	for i := range deliveries {
		list = append(list, deliveries[i].Envelope.Offset)
	}
	return list
}

// RequireTime compares times of any zone.
func RequireTime(t *testing.T, want, got time.Time) {
	t.Helper()
	require.True(t, want.Equal(got), "want %s, got %s", want, got)
}

// BeginAction records an action.
func (o *Outbox) BeginAction(t *testing.T, id string) {
	t.Helper()
	require.NoError(t, o.Begin(t.Context(), store.Action{ID: id, Who: "ada", Name: "test", Filter: json.RawMessage(`{"sink": "mail"}`)}))
}

// RequeueAll requeues in batches and returns how many deliveries changed.
func (o *Outbox) RequeueAll(t *testing.T, f store.ParkedFilter, limit int) (changed int) {
	t.Helper()
	o.BeginAction(t, "requeue")
	b := store.ParkedBatch{Action: "requeue", Filter: f, Limit: limit}
	for {
		result, err := o.Requeue(t.Context(), b)
		require.NoError(t, err)
		require.LessOrEqual(t, result.Changed, limit)
		changed += result.Changed
		if result.Done {
			return changed
		}
		b.After = result.Last
	}
}

// Occurring returns envelopes with the given times.
func Occurring(times ...time.Time) []notification.Envelope {
	envelopes := Several(len(times))
	for i := range envelopes {
		envelopes[i].OccurredOn = times[i]
	}
	return envelopes
}

// Report returns the status.
func (o *Outbox) Report(t *testing.T) store.Status {
	t.Helper()
	holders, err := o.Holders(t.Context(), nil)
	require.NoError(t, err)
	sample := o.Counted(t, nil)
	return sample.Status(holders)
}

// Counted samples until store.CountTime was enough to count all pending rows or to reach the limit.
func (o *Outbox) Counted(t *testing.T, types map[string]notification.TypeFilter) store.Sample {
	t.Helper()
	for begun := time.Now(); ; {
		require.Less(t, time.Since(begun), 5*time.Minute, "pending rows are not counted")
		sample, err := o.Sample(t.Context(), store.SampleQuery{Types: types})
		require.NoError(t, err)
		if !slices.ContainsFunc(sample.Sinks, func(s store.SinkSample) bool { return s.Estimated && s.Pending < store.PendingLimit }) {
			return sample
		}
	}
}
