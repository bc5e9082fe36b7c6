package admin_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// outbox is a migrated outbox with an Admin.
type outbox struct {
	*admin.Admin
	store outboxStore
	db    *sql.DB
}

// outboxStore has the methods that Admin and a forwarder need.
type outboxStore interface {
	admin.Store
	store.Log
	store.Leases
	store.Deliveries
}

// onEach runs a test on each dialect.
func onEach(t *testing.T, test func(t *testing.T, o *outbox)) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		db, s := outboxtest.PostgreSQL(t, outboxtest.DSN(t), postgres.Config{Receipts: true})
		test(t, newOutbox(t, s, db))
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		db, s := outboxtest.SQLite(t, outboxtest.File(t), sqlite.Config{Receipts: true})
		test(t, newOutbox(t, s, db))
	})
}

func newOutbox(t *testing.T, s outboxStore, db *sql.DB) *outbox {
	t.Helper()
	return &outbox{admin.New(s, "ada"), s, db}
}

// publish inserts a row as any program would.
func (o *outbox) publish(t *testing.T, id, typ, key string) {
	t.Helper()
	_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox (id, type, key, payload) VALUES ($1, $2, $3, '{}')`, id, typ, key)
	require.NoError(t, err)
}

// settle settles everything for a sink, in a checkpoint that fill can extend. It keeps the lease.
func (o *outbox) settle(t *testing.T, sink string, fill func(c *store.Checkpoint)) {
	t.Helper()
	_, err := o.store.Cut(t.Context(), sink, 1, store.StartOldest)
	require.NoError(t, err)
	require.NoError(t, o.store.Heartbeat(t.Context(), store.Member{Owner: "f1", Sinks: []string{sink}}, time.Hour))
	lane := store.Lanes(sink, 1)[0]
	lease, err := o.store.Acquire(t.Context(), lane, "f1", time.Hour)
	require.NoError(t, err)
	r, err := o.store.NewReader(lease.Position, store.Filter{Slots: lane.Slots, Types: notification.AllTypes})
	require.NoError(t, err)
	target, err := o.store.Probe(t.Context())
	require.NoError(t, err)
	for {
		page, err := r.Next(t.Context(), target, 1000)
		require.NoError(t, err)
		if !page.CaughtUp {
			continue
		}
		c := store.Checkpoint{Lease: lease, TTL: time.Hour, Position: page.End}
		fill(&c)
		require.NoError(t, o.store.Checkpoint(t.Context(), c))
		return
	}
}

func nothing(*store.Checkpoint) {}

// park settles everything for a sink, and parks deliveries.
func (o *outbox) park(t *testing.T, sink string, parked ...store.Parked) {
	t.Helper()
	o.settle(t, sink, func(c *store.Checkpoint) { c.Park = parked })
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func delivery(offset int64, id, key string, state store.State) store.Parked {
	return store.Parked{
		Envelope:      notification.Envelope{Offset: offset, ID: id, Type: "order.placed", Version: 1, Key: key, OccurredOn: noon, Payload: []byte(`{}`)},
		State:         state,
		FirstParkedAt: noon,
	}
}

// routing routes order.* to mail and web, with 5 attempts.
func routing(t *testing.T) admin.Routing {
	t.Helper()
	routes, err := route.New(route.Routes{"order.*": route.To("mail", "web")}, []string{"mail", "web", "other"}, nil)
	require.NoError(t, err)
	return admin.Routing{Routes: routes, MaxAttempts: func(string, string) int { return 5 }}
}

func (o *outbox) why(t *testing.T, id string) admin.Answer {
	t.Helper()
	answer, err := o.Why(t.Context(), id, routing(t))
	require.NoError(t, err)
	return answer
}

func TestWhyNamesEachSinkOfTheRoutesAndNoOther(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		o.publish(t, "a", "order.placed", "k")
		o.settle(t, "mail", func(c *store.Checkpoint) {
			c.Receipts = []store.Receipt{{Offset: 1, ID: "a", Receipt: "smtp 250", Attempt: 2, DeliveredAt: noon}}
		})
		o.settle(t, "other", nothing)
		answer := o.why(t, "a")
		require.True(t, answer.Known)
		require.True(t, answer.InLog)
		require.Equal(t, []admin.Verdict{
			{Sink: "mail", Where: admin.Delivered, Text: "delivered at 2026-01-02 12:00:00Z on attempt 2: smtp 250", Receipt: "smtp 250",
				DeliveredAt: noon, Attempt: 2, MaxAttempts: 5},
			{Sink: "web", Where: admin.Unread, Text: "not read yet: no forwarder has started with this sink", MaxAttempts: 5},
		}, answer.Verdicts)

		answer, err := o.Why(t.Context(), "a", admin.Routing{})
		require.NoError(t, err)
		require.Len(t, answer.Verdicts, 2)
		require.Equal(t, admin.Verdict{Sink: "other", Where: admin.Settled, Text: "delivered, or not for this sink", Forwarder: "f1"}, answer.Verdicts[1])
	})
}

// A program with handlers works beside another configuration, which has order.* only.
func TestTheSinksOfOtherConfigurationsAreKnown(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		o.publish(t, "a", "mail.sent", "k")
		for _, sink := range []string{"mail", "handler", store.SinkUnrouted} {
			_, err := o.store.Cut(t.Context(), sink, 1, store.StartOldest)
			require.NoError(t, err)
		}
		takes := map[string]notification.TypeFilter{"mail": {Prefixes: []string{"order."}}, "handler": {Names: []string{"mail.sent"}}}
		done, err := o.store.Route(t.Context(), takes)
		require.NoError(t, err)
		require.True(t, done)
		for _, routing := range []admin.Routing{routing(t), {}} {
			answer, err := o.Why(t.Context(), "a", routing)
			require.NoError(t, err)
			require.Len(t, answer.Verdicts, 1)
			require.Equal(t, "handler", answer.Verdicts[0].Sink)
		}
		beside, err := o.Beside(t.Context(), routing(t))
		require.NoError(t, err)
		require.Equal(t, []admin.Type{{Type: "mail.sent", Versions: []admin.TypeVersion{}, Sinks: []admin.TypeRoute{{Sink: "handler", Routes: []admin.RouteRule{}}}}},
			admin.Types(nil, beside, nil, "mail.sent"))
	})
}

func TestWhyReportsADeliveryWithoutAReceipt(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		o.publish(t, "a", "order.placed", "k")
		o.settle(t, "mail", func(c *store.Checkpoint) {
			c.Receipts = []store.Receipt{{Offset: 1, ID: "a", Attempt: 1, DeliveredAt: noon}}
		})
		require.Equal(t, "delivered at 2026-01-02 12:00:00Z on attempt 1: no receipt", o.why(t, "a").Verdicts[0].Text)
	})
}

func TestWhyReportsASinkThatANotificationPassesBy(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		o.publish(t, "a", "order.placed", "k")
		o.settle(t, "mail", nothing)
		o.settle(t, "web", nothing)
		routes, err := route.New(route.Routes{
			"order.*":      {{Sink: "mail", When: `key == "other"`}},
			"order.placed": {{Sink: "web", When: `key == "k"`}},
		}, []string{"mail", "web"}, nil)
		require.NoError(t, err)
		answer, err := o.Why(t.Context(), "a", admin.Routing{Routes: routes})
		require.NoError(t, err)
		require.Equal(t, admin.Verdict{Sink: "mail", Where: admin.PassedBy, Text: "not for this sink: no condition of its routes holds"}, answer.Verdicts[0])
		require.Equal(t, admin.Settled, answer.Verdicts[1].Where)
	})
}

func TestWhyReportsParkedDeliveries(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		for _, id := range []string{"retrying", "blocked", "dead", "scheduled", "requeued", "settling", "unknown", "known", "quiet", "behind", "again", "missing", "found"} {
			o.publish(t, id, "order.placed", "")
		}
		const unknownText = "waits, with no attempt spent: order.placed version 1 is not known to forwarder f1; deploy a program that knows it, or it is dead at 2026-01-05 12:00:00Z"
		later := time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC)
		retrying, dead := delivery(1, "retrying", "k", store.StateRetrying), delivery(3, "dead", "", store.StateDead)
		retrying.DueAt, retrying.Attempt, retrying.LastError = later, 3, "timeout"
		dead.Attempt, dead.LastError = 5, "410 Gone"
		scheduled, requeued := delivery(4, "scheduled", "", store.StateScheduled), delivery(5, "requeued", "", store.StateRetrying)
		scheduled.DueAt, requeued.DueAt = later, noon
		settling := delivery(6, "settling", "", store.StateSettling)
		settling.Attempt, settling.Receipt, settling.HookError, settling.DueAt = 1, "250 ok", "deadlock", later
		dead.HookError, dead.DueAt = "no such table", later
		unknown, known := delivery(7, "unknown", "", store.StateRetrying), delivery(8, "known", "", store.StateRetrying)
		unknown.DueAt, unknown.LastError = later, "unknown: no program knows version 9 of order.placed"
		known.DueAt, known.LastError = noon, "no program knows version 9 of order.placed"
		known.Attempts = []store.PastAttempt{{Class: "unknown"}}
		missing, found := delivery(12, "missing", "", store.StateRetrying), delivery(13, "found", "", store.StateRetrying)
		missing.DueAt, missing.LastError, found.DueAt, found.LastError = later, "invalid: no secret", noon, "invalid: no secret"
		quiet, behind, again := delivery(9, "quiet", "q", store.StateQuiet), delivery(10, "behind", "q", store.StateBlocked), delivery(11, "again", "", store.StateQuiet)
		quiet.DueAt, again.DueAt, again.Attempt, again.LastError = later, noon, 2, "timeout"
		o.park(t, "mail", quiet, behind, again, unknown, known, missing, found, settling, retrying, delivery(2, "blocked", "k", store.StateBlocked), dead, scheduled, requeued)
		for id, want := range map[string]string{
			"retrying":  "retrying at 2100-01-02 03:04:05Z, after attempt 3 of 5: timeout",
			"blocked":   "blocked by retrying of its key k, which is retrying: timeout",
			"scheduled": "scheduled for 2100-01-02 03:04:05Z",
			"requeued":  "requeued or replayed, due since 2026-01-02 12:00:00Z",
			"missing":   "waits until 2100-01-02 03:04:05Z, with no attempt spent: invalid: no secret",
			"found":     "waits with no attempt spent, due since 2026-01-02 12:00:00Z: invalid: no secret",
			"unknown":   unknownText + "; next attempt at 2100-01-02 03:04:05Z: unknown: no program knows version 9 of order.placed",
			"known":     unknownText + "; due since 2026-01-02 12:00:00Z: unknown: no program knows version 9 of order.placed",
			"quiet":     "outside of the hours of the sink, which begin at 2100-01-02 03:04:05Z",
			"behind":    "blocked by quiet of its key q, which is quiet: it waits for the hours of the sink, until 2100-01-02 03:04:05Z",
			"again":     "waited for the hours of the sink, due since 2026-01-02 12:00:00Z, after attempt 2 of 5: timeout",
			"settling":  "the sink accepted it on attempt 1: 250 ok; a hook failed: deadlock; it is called again at 2100-01-02 03:04:05Z",
		} {
			require.Equal(t, want, o.why(t, id).Verdicts[0].Text, id)
		}
		v := o.why(t, "dead").Verdicts[0]
		require.Equal(t, admin.Dead, v.Where)
		require.Regexp(t, `^dead since \S+ \S+ after attempt 5 of 5: 410 Gone; a hook failed: no such table; it is called again at \S+ \S+$`, v.Text)
		require.Equal(t, "retrying", o.why(t, "blocked").Verdicts[0].BlockedBy)
	})
}

func TestWhyReportsWhatHoldsUpASink(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		o.settle(t, "mail", nothing)
		o.publish(t, "first", "order.placed", "")
		o.publish(t, "a", "order.placed", "k")
		require.Equal(t, "in flight or waiting at f1, 1 row before it", o.why(t, "a").Verdicts[0].Text)
		require.NoError(t, o.store.Heartbeat(t.Context(), store.Member{Owner: "f1", Sinks: []string{"mail"}, States: map[string]store.SinkState{
			"mail": {BreakerOpen: true, OpenSince: noon, Cause: "connection refused", ThrottledUntil: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}}}, time.Hour))
		changed, err := o.Pause(t.Context(), "mail")
		require.NoError(t, err)
		require.Equal(t, []string{"mail"}, changed)
		v := o.why(t, "a").Verdicts[0]
		require.Regexp(t, `^in flight or waiting at f1, 1 row before it; the sink is paused since \S+ \S+Z by ada; `+
			`breaker open since 2026-01-02 12:00:00Z at f1: connection refused; throttled until 2100-01-01 00:00:00Z at f1: connection refused$`, v.Text)
		require.Len(t, v.Troubles, 3)
	})
}

func TestWhyDistinguishesRemovedFromUnknownNotifications(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		require.Contains(t, o.why(t, "a").Text, "the log is empty: it was rolled back, is not committed yet")
		o.publish(t, "b", "order.placed", "")
		o.publish(t, "u", "parcel.lost", "")
		require.Contains(t, o.why(t, "a").Text, "it was rolled back")
		old := "01900000-0000-7000-8000-000000000000" // an id of June 2024
		answer := o.why(t, old)
		require.False(t, answer.Known)
		require.Contains(t, answer.Text, "its id was made at 2024-06-10")
		require.Equal(t, "no route matches its type, and nothing of it is parked", o.why(t, "u").Text)

		o.settle(t, "mail", func(c *store.Checkpoint) {
			c.Receipts = []store.Receipt{{Offset: 1, ID: old, Receipt: "smtp 250", Attempt: 1, DeliveredAt: noon}}
		})
		answer = o.why(t, old)
		require.True(t, answer.Known)
		require.False(t, answer.InLog)
		require.Contains(t, answer.Text, "retention removed it")
		require.Equal(t, admin.Delivered, answer.Verdicts[0].Where)
	})
}

func TestAnInterruptedPlanReportsWhatItHasDone(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		var parked []store.Parked
		for i := range 1200 {
			parked = append(parked, delivery(int64(i+1), notification.NewID(), "", store.StateDead))
		}
		o.park(t, "mail", parked...)
		plan, err := o.Discard(t.Context(), admin.Filter{Sink: "mail"})
		require.NoError(t, err)
		require.EqualValues(t, 1200, plan.Total())
		ctx, interrupt := context.WithCancel(t.Context())
		action, err := plan.Run(ctx, func(a store.Action) {
			if a.Count > 0 {
				interrupt()
			}
		})
		require.ErrorIs(t, err, context.Canceled)
		require.EqualValues(t, 500, action.Count)
		require.True(t, action.EndedAt.IsZero())
		counts, err := o.Count(t.Context(), admin.Filter{})
		require.NoError(t, err)
		require.Equal(t, []store.ParkedCount{{Sink: "mail", State: store.StateDead, Count: 700}}, counts)
		recorded, err := o.Actions(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, recorded, 1)
		require.Equal(t, "ada", recorded[0].Who)
		require.EqualValues(t, 500, recorded[0].Count)

		action, err = plan.Run(t.Context(), nil)
		require.NoError(t, err)
		require.EqualValues(t, 700, action.Count)
	})
}

func TestAPlanChangesOnlyTheCountedDeliveries(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		o.park(t, "mail", delivery(1, "a", "", store.StateDead), delivery(2, "b", "", store.StateDead), delivery(3, "c", "", store.StateRetrying))
		plan, err := o.Discard(t.Context(), admin.Filter{Sink: "mail"})
		require.NoError(t, err)
		require.EqualValues(t, 2, plan.Total())
		time.Sleep(2 * time.Millisecond) // SQLite's clock has milliseconds
		o.park(t, "mail", delivery(0, "before", "", store.StateDead), delivery(3, "c", "", store.StateDead), delivery(4, "d", "", store.StateDead))
		action, err := plan.Run(t.Context(), nil)
		require.NoError(t, err)
		require.EqualValues(t, 2, action.Count)
		left, err := o.Parked(t.Context(), admin.Filter{}, store.ParkedPlace{}, 10)
		require.NoError(t, err)
		require.Len(t, left, 3)
		require.Equal(t, []string{"before", "c", "d"}, []string{left[0].Envelope.ID, left[1].Envelope.ID, left[2].Envelope.ID})
	})
}

// There are more keys than rows in a batch, each with two dead deliveries. The second of a key becomes its
// head once the first is discarded.
func TestSkipDiscardsOnlyTheHeads(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		var parked []store.Parked
		for i := range 1400 {
			parked = append(parked, delivery(int64(i+1), notification.NewID(), fmt.Sprint("k", i%700), store.StateDead))
		}
		o.park(t, "mail", parked...)
		plan, err := o.Skip(t.Context(), admin.Filter{Sink: "mail"})
		require.NoError(t, err)
		require.EqualValues(t, 700, plan.Total())
		action, err := plan.Run(t.Context(), nil)
		require.NoError(t, err)
		require.EqualValues(t, 700, action.Count)
		left, err := o.Parked(t.Context(), admin.Filter{}, store.ParkedPlace{}, 1)
		require.NoError(t, err)
		require.EqualValues(t, 701, left[0].Envelope.Offset)
	})
}

func TestAnInterruptedReplayContinuesWhereItStopped(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		for range 500 {
			o.publish(t, notification.NewID(), "order.placed", "")
		}
		o.settle(t, "mail", nothing)
		plan, err := o.Replay(t.Context(), admin.ReplayRequest{Sink: "mail", Routed: routing(t).Routes.Filter("mail")})
		require.NoError(t, err)
		require.EqualValues(t, 500, plan.Total())
		require.False(t, plan.Gone())
		ctx, interrupt := context.WithCancel(t.Context())
		action, err := plan.Run(ctx, func(a store.Action) {
			if a.Count > 0 {
				interrupt()
			}
		})
		require.ErrorIs(t, err, context.Canceled)
		require.EqualValues(t, 200, action.Count)
		rest, err := o.ContinueReplay(t.Context(), action.ID)
		require.NoError(t, err)
		require.EqualValues(t, 300, rest.Total())
		var shown []int64
		action, err = rest.Run(t.Context(), func(a store.Action) { shown = append(shown, a.Count) })
		require.NoError(t, err)
		require.EqualValues(t, 500, action.Count)
		require.Equal(t, []int64{200, 400, 500}, shown)
		_, err = o.ContinueReplay(t.Context(), action.ID)
		require.ErrorIs(t, err, store.ErrActionEnded)
	})
}

func TestMetadataIsParsedFromNamesAndValues(t *testing.T) {
	t.Parallel()
	none, err := admin.ParseMetadata(nil)
	require.NoError(t, err)
	require.Nil(t, none)
	got, err := admin.ParseMetadata([]string{"tenant=acme, inc", "query=a=b", "empty=", "tenant=acme, inc"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"tenant": "acme, inc", "query": "a=b", "empty": ""}, got)
	for _, pairs := range [][]string{{"tenant"}, {"tenant=acme", "tenant=other"}} {
		_, err := admin.ParseMetadata(pairs)
		require.ErrorIs(t, err, admin.ErrFilter)
	}
}

func TestFiltersOfActionsAreRecordedAsRequested(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(admin.Filter{Sink: "mail", Type: "order.*", States: []store.State{store.StateDead}, OlderThan: 90 * time.Minute})
	require.NoError(t, err)
	require.JSONEq(t, `{"sink": "mail", "type": "order.*", "states": ["dead"], "older_than": "1h30m0s"}`, string(raw))
	raw, err = json.Marshal(admin.Filter{Metadata: map[string]string{"tenant": "acme"}})
	require.NoError(t, err)
	require.JSONEq(t, `{"metadata": {"tenant": "acme"}}`, string(raw))
	var read admin.Filter
	require.NoError(t, json.Unmarshal(raw, &read))
	require.Equal(t, admin.Filter{Metadata: map[string]string{"tenant": "acme"}}, read)
	err = admin.Filter{Metadata: map[string]string{"": "acme", "a": "\x00"}}.Validate()
	require.ErrorContains(t, err, "metadata needs a name")
	require.ErrorContains(t, err, "contains a NUL byte")
	err = admin.Filter{Type: "a b", States: []store.State{"ded"}, OlderThan: -1}.Validate()
	require.ErrorIs(t, err, admin.ErrFilter)
	require.ErrorContains(t, err, `type "a b"`)
	require.ErrorContains(t, err, `unknown state "ded"`)
	require.ErrorContains(t, err, "an age is negative")
}
