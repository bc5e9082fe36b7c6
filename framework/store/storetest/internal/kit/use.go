package kit

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Use is documented in package storetest.
func Use(t *testing.T, d Dialect, applications ...*sql.DB) {
	t.Helper()
	o := Open(t, d)
	lease := o.Hold(t, "mail")
	r := o.Reader(t, lease.Position, All)

	// The rows of a transaction that commits late are read afterwards.
	late := o.Tx(t)
	rows := make([]notification.Envelope, 300)
	for i := range rows {
		rows[i] = Envelope("Order.Placed", `käy "'\`+"👍")
		rows[i].Metadata, rows[i].Payload = notification.Metadata{"m": `\'"NULL`}, []byte(`{"text": "\\\"''👍"}`)
	}
	rows[0].Key, rows[0].DeliverAt = "", Later()
	require.NoError(t, o.Append(t.Context(), late, rows...))
	published := len(rows)
	if o.Slots { // otherwise the database allows one writer at a time
		early := Envelope("t", "")
		o.Publish(t, early)
		published++
		got, _ := Drain(t, r, o.Target(t), 10)
		require.Equal(t, []string{early.ID}, IDs(got))
	}
	require.NoError(t, late.Commit())
	got, end := Drain(t, r, o.Target(t), 1000)
	require.Equal(t, IDs(rows), IDs(got), "in the order of offsets")
	RequireSame(t, rows[0], got[0])
	RequireSame(t, rows[1], got[1])

	// What is parked is listed, found, requeued and settled.
	parked := make([]store.Parked, len(got))
	for i, e := range got {
		parked[i] = store.Parked{Envelope: e, State: store.StateRetrying, Attempt: 1, DueAt: Moment, LastError: `'\"`, Attempts: Attempts()}
	}
	o.Write(t, lease, func(c *store.Checkpoint) { c.Number, c.Position, c.Park = 1, end, parked })
	due, _ := o.DueAt(t, time.Now())
	require.Len(t, due, len(rows))
	RequireSame(t, rows[1], due[1].Envelope)
	find := func(f store.ParkedFilter) []store.ParkedDelivery {
		found, err := o.FindParked(t.Context(), f, store.ParkedPlace{}, 1000)
		require.NoError(t, err)
		return found
	}
	require.Len(t, find(store.ParkedFilter{Sink: "mail", Key: rows[1].Key}), len(rows)-1)
	require.Equal(t, len(rows), o.RequeueAll(t, store.ParkedFilter{Sink: "mail", Error: `'\"`}, 200))
	o.Write(t, lease, func(c *store.Checkpoint) {
		c.Number, c.Unpark = 2, Refs(parked...)
		c.Receipts = []store.Receipt{{Offset: got[1].Offset, ID: got[1].ID, Receipt: "r", Attempt: 1, DeliveredAt: Moment}}
	})
	require.Empty(t, find(store.ParkedFilter{}))
	require.Zero(t, o.Counted(t, nil).Sinks[0].Pending)

	// What publishers write in their own transactions counts once.
	tx := o.Tx(t)
	cancelled, err := o.Cancel(t.Context(), tx, store.Scheduled{ID: rows[0].ID})
	require.NoError(t, err)
	require.Equal(t, 1, cancelled)
	for _, want := range []bool{true, false} {
		free, err := o.Claim(t.Context(), tx, store.Claim{Type: "t", Key: "k", Period: time.Hour})
		require.NoError(t, err)
		require.Equal(t, want, free)
		first, err := o.First(t.Context(), tx, "c", "1")
		require.NoError(t, err)
		require.Equal(t, want, first)
	}
	require.NoError(t, tx.Commit())

	// A forwarder shows itself, moves a schedule and removes what is old.
	require.NoError(t, o.Heartbeat(t.Context(), store.Member{Owner: "w1", Sinks: []string{"mail"}}, time.Hour))
	require.Len(t, o.Members(t).Members, 1)
	require.NoError(t, o.AddSchedule(t.Context(), `da'ily`))
	schedules, err := o.Schedules(t.Context())
	require.NoError(t, err)
	require.Len(t, schedules, 1)
	for _, want := range []bool{true, false} {
		moved, err := o.MoveSchedule(t.Context(), o.DB, schedules[0])
		require.NoError(t, err)
		require.Equal(t, want, moved)
	}
	o.useEndpoints(t)
	pruned, err := o.Prune(t.Context(), store.Pruning{Age: time.Second, Limit: 1000, Sinks: []string{"mail"}})
	require.NoError(t, err)
	require.Contains(t, []int{published, 0}, pruned.Removed, "of a log with partitions whole ones go")

	for _, application := range applications {
		o.publishIn(t, application, end)
	}
	for _, column := range []string{"type", "id"} {
		values := map[string]string{"type": "t", "id": "i", column: ""}
		_, err := o.DB.ExecContext(t.Context(), fmt.Sprintf(`INSERT INTO outbox (type, id, payload) VALUES ('%s', '%s', '{}')`, values["type"], values["id"]))
		require.Error(t, err, "an empty %s", column)
	}
}

// useEndpoints lets an endpoint fail for good.
func (o *Outbox) useEndpoints(t *testing.T) {
	t.Helper()
	e := store.Endpoint{ID: `e '"\` + "`", Tenant: "käy 👍", URL: "https://example.com", Types: []string{`'"\`}}
	require.NoError(t, o.AddEndpoint(t.Context(), nil, e, 1))
	require.ErrorIs(t, o.AddEndpoint(t.Context(), nil, e, 1), store.ErrTooManyEndpoints)
	found, err := o.Endpoints(t.Context(), nil, store.EndpointQuery{IDs: []string{e.ID}})
	require.NoError(t, err)
	require.Len(t, found, 1)
	marks := store.EndpointMarks{Failing: []string{e.ID}, Trouble: map[string]string{e.ID: `'"\`}, Disable: []store.EndpointDisabling{{ID: e.ID, Reason: `\"'`}}}
	for _, want := range [][]string{{e.ID}, nil} {
		tx := o.Tx(t)
		disabled, err := o.MarkEndpoints(t.Context(), tx, marks)
		require.NoError(t, err)
		require.Equal(t, want, disabled)
		require.NoError(t, o.AddAttempts(t.Context(), tx, []store.Attempt{{ID: "1", Endpoint: e.ID, EndpointCreatedAt: found[0].CreatedAt, Tenant: e.Tenant, Error: `'"\`, At: Moment, Until: Moment}}))
		require.NoError(t, tx.Commit())
	}
	found, err = o.Endpoints(t.Context(), nil, store.EndpointQuery{Tenants: []string{e.Tenant}, Troubled: true})
	require.NoError(t, err)
	require.Len(t, found, 1)
	for _, want := range []bool{true, false} {
		changed, err := o.ChangeEndpoint(t.Context(), nil, found[0])
		require.NoError(t, err)
		require.Equal(t, want, changed)
	}
	counts, err := o.EndpointCounts(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, []store.EndpointCount{{Tenant: e.Tenant, All: 1, Disabled: 1, Failing: 1, Troubled: 1}}, counts)
	hours, err := o.AttemptHours(t.Context(), e.Tenant, e.ID, time.Time{})
	require.NoError(t, err)
	require.Equal(t, []store.AttemptHour{{Begins: Moment.Truncate(time.Hour), Failed: 1}}, hours)
	deleted, err := o.DeleteEndpoint(t.Context(), nil, e.Tenant, e.ID)
	require.NoError(t, err)
	require.True(t, deleted)
}

// publishIn does in a transaction of another handle what publishers do.
func (o *Outbox) publishIn(t *testing.T, application *sql.DB, end json.RawMessage) {
	t.Helper()
	rows := []notification.Envelope{Envelope("Order.Placed", `käy "'\`+"👍 "), Envelope("t", ""), Envelope("t", "gone"), Envelope("t", "gone")}
	rows[0].Payload, rows[0].Metadata = []byte(`{"text": "\\\"''👍"}`), notification.Metadata{"": `\'"`}
	rows[0].DeliverAt, rows[2].DeliverAt, rows[3].DeliverAt = notification.MinTime, Later(), Later()
	require.NoError(t, o.publishAllIn(t, application, rows))
	got, _ := o.Read(t, end, All, 1000)
	require.Len(t, got, 3, "without what is cancelled")
	plain := got[len(got)-1]
	require.Equal(t, IDs(rows[:2]), IDs(got[:len(got)-1]))
	RequireSame(t, rows[0], got[0])
	RequireSame(t, rows[1], got[1])
	require.Equal(t, []any{"plain", "", 1, `{"a": "\\"}`}, []any{plain.Type, plain.Key, plain.Version, string(plain.Payload)})
	require.WithinDuration(t, time.Now(), plain.OccurredOn, time.Hour)
}

func (o *Outbox) publishAllIn(t *testing.T, application *sql.DB, rows []notification.Envelope) error {
	tx, err := application.BeginTx(t.Context(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := o.Append(t.Context(), tx, rows...); err != nil {
		return err
	}
	if _, err := tx.ExecContext(t.Context(), `INSERT INTO outbox (type, payload) VALUES ('plain', concat('{"a": "', char(92), char(92), '"}'))`); err != nil {
		return err
	}
	cancelled, err := o.Cancel(t.Context(), tx, store.Scheduled{Key: "gone", Types: []string{"t"}})
	if err != nil {
		return err
	}
	require.Equal(t, 2, cancelled)
	for _, want := range []bool{true, false} {
		free, err := o.Claim(t.Context(), tx, store.Claim{Type: "t", Key: "other", Period: time.Hour})
		if err != nil {
			return err
		}
		require.Equal(t, want, free)
		first, err := o.First(t.Context(), tx, "other", "1")
		if err != nil {
			return err
		}
		require.Equal(t, want, first)
	}
	e := store.Endpoint{ID: "e", Tenant: "käy", URL: "https://example.com", Types: []string{"t"}, Version: 1}
	if err := o.AddEndpoint(t.Context(), tx, e, 1); err != nil {
		return err
	}
	changed, err := o.ChangeEndpoint(t.Context(), tx, e)
	if err != nil {
		return err
	}
	require.True(t, changed)
	deleted, err := o.DeleteEndpoint(t.Context(), tx, e.Tenant, e.ID)
	if err != nil {
		return err
	}
	require.True(t, deleted)
	return tx.Commit()
}
