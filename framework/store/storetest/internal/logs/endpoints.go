package logs

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

// endpointFacts are about the endpoints of customers.
var endpointFacts = []kit.Fact{
	{"an endpoint is stored as it was added, with the database's times", endpointsAdd},
	{"a tenant has at most as many endpoints as it may have", endpointsLimit},
	{"a change replaces an endpoint that is as it was read", endpointsChange},
	{"of simultaneous changes one that commits holds", endpointsTogether},
	{"no tenant reads, changes or deletes what belongs to another", endpointsOfOthers},
	{"endpoints are selected by everything, in the order of tenants and ids", endpointsSelected},
	{"the endpoints of a thousand tenants are one question", endpointsOfMany},
	{"what is written to endpoints is part of the caller's transaction", endpointsInTransaction},
	{"a transaction with endpoints holds up neither other tenants nor attempts", endpointsHoldUpNoOne},
	{"tenants with an endpoint in trouble are counted", endpointsCounted},
	{"marks say since when an endpoint fails, and what is wrong with it", endpointsMarked},
	{"an endpoint that fails for too long is disabled once", endpointsDisabled},
	{"marks neither disable twice nor wait for a transaction that changes an endpoint", endpointsMarkedTogether},
}

// odd is a text that an encoding could change.
const odd = `käy "'` + "`" + `\ 👍` + "\n\t\u2028 <&> %_ $1 ? {now} "

// endpoint returns a plain endpoint.
func endpoint(tenant, id string) store.Endpoint {
	return store.Endpoint{ID: id, Tenant: tenant, URL: "https://example.com/" + id, Types: []string{"order.*"}}
}

func addEndpoints(t *testing.T, o *kit.Outbox, endpoints ...store.Endpoint) {
	t.Helper()
	for _, e := range endpoints {
		require.NoError(t, o.AddEndpoint(t.Context(), nil, e, 1000))
	}
}

// endpointOf returns the only endpoint with an ID.
func endpointOf(t *testing.T, o *kit.Outbox, id string) store.Endpoint {
	t.Helper()
	found, err := o.Endpoints(t.Context(), nil, store.EndpointQuery{IDs: []string{id}})
	require.NoError(t, err)
	require.Len(t, found, 1)
	return found[0]
}

// idsOf returns the IDs of what a query finds.
func idsOf(t *testing.T, o *kit.Outbox, q store.EndpointQuery) []string {
	t.Helper()
	found, err := o.Endpoints(t.Context(), nil, q)
	require.NoError(t, err)
	ids := []string{}
	for _, e := range found {
		ids = append(ids, e.ID)
	}
	return ids
}

// changeEndpoint changes an endpoint on its own, and reports whether it was as it was read.
func changeEndpoint(t *testing.T, o *kit.Outbox, e store.Endpoint) bool {
	t.Helper()
	changed, err := o.ChangeEndpoint(t.Context(), nil, e)
	require.NoError(t, err)
	return changed
}

// mark writes marks in a transaction, and returns what they disabled.
func mark(t *testing.T, o *kit.Outbox, m store.EndpointMarks) (disabled []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // nothing holds up marks
	defer cancel()
	require.NoError(t, o.Repeat(func() error {
		tx, err := o.DB.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // has no effect after the commit
		if disabled, err = o.MarkEndpoints(ctx, tx, m); err != nil {
			return err
		}
		return tx.Commit()
	}))
	slices.Sort(disabled)
	return disabled
}

func endpointsAdd(t *testing.T, o *kit.Outbox) {
	require.Empty(t, idsOf(t, o, store.EndpointQuery{}))
	want := store.Endpoint{
		ID: "e-1", Tenant: odd, URL: "https://example.com/?a=" + odd, Description: odd, Types: []string{"order.*", odd}, When: `payload.total > 5 && "'\` + odd,
		Private: odd, Rate: "10/s", DisabledReason: odd, DisabledAt: kit.Moment, FailingSince: kit.After(time.Hour), Trouble: odd,
	}
	addEndpoints(t, o, want)
	got := endpointOf(t, o, "e-1")
	require.WithinDuration(t, time.Now(), got.CreatedAt, time.Hour)
	require.WithinDuration(t, got.CreatedAt, got.ChangedAt, time.Second)
	want.Version, want.CreatedAt, want.ChangedAt = 1, got.CreatedAt, got.ChangedAt
	require.Equal(t, want, got)

	addEndpoints(t, o, endpoint("", "e-2"))
	got = endpointOf(t, o, "e-2")
	require.Equal(t, store.Endpoint{ID: "e-2", URL: "https://example.com/e-2", Types: []string{"order.*"}, Version: 1, CreatedAt: got.CreatedAt, ChangedAt: got.ChangedAt}, got)
	require.Error(t, o.AddEndpoint(t.Context(), nil, endpoint("other", "e-2"), 10), "an id is there once")
}

func endpointsLimit(t *testing.T, o *kit.Outbox) {
	for _, tenant := range []string{"a", "b"} {
		for i := range 2 {
			require.NoError(t, o.AddEndpoint(t.Context(), nil, endpoint(tenant, fmt.Sprint(tenant, i)), 2))
		}
		require.ErrorIs(t, o.AddEndpoint(t.Context(), nil, endpoint(tenant, "more"), 2), store.ErrTooManyEndpoints)
	}
	require.ErrorIs(t, o.AddEndpoint(t.Context(), nil, endpoint("c", "none"), 0), store.ErrTooManyEndpoints)
	require.Equal(t, []string{"a0", "a1", "b0", "b1"}, idsOf(t, o, store.EndpointQuery{}))

	tx := o.Tx(t)
	require.NoError(t, o.AddEndpoint(t.Context(), tx, endpoint("c", "c0"), 1))
	require.ErrorIs(t, o.AddEndpoint(t.Context(), tx, endpoint("c", "c1"), 1), store.ErrTooManyEndpoints, "within one transaction too")
	require.NoError(t, o.AddEndpoint(t.Context(), tx, endpoint("d", "d0"), 1), "the transaction goes on")
	require.NoError(t, tx.Commit())
	require.Equal(t, []string{"c0", "d0"}, idsOf(t, o, store.EndpointQuery{Tenants: []string{"c", "d"}}))
}

func endpointsChange(t *testing.T, o *kit.Outbox) {
	failing := endpoint("a", "e-1")
	failing.FailingSince = kit.Moment
	addEndpoints(t, o, failing, endpoint("a", "e-2"))
	read := endpointOf(t, o, "e-1")
	to := read
	to.URL, to.Description, to.Types, to.When, to.Private, to.Rate = "https://example.org", odd, []string{"a", "b"}, "true", odd, "5/m"
	to.DisabledReason, to.DisabledAt, to.Trouble = store.DisabledByPerson, kit.Moment, odd
	require.True(t, changeEndpoint(t, o, to))
	got := endpointOf(t, o, "e-1")
	require.False(t, got.ChangedAt.Before(read.ChangedAt))
	to.Version, to.ChangedAt = 2, got.ChangedAt
	require.Equal(t, to, got)

	require.False(t, changeEndpoint(t, o, read), "it has changed since")
	require.Equal(t, got, endpointOf(t, o, "e-1"))
	to.DisabledReason, to.DisabledAt, to.Trouble = "", time.Time{}, ""
	mark(t, o, store.EndpointMarks{Recovered: []string{"e-1"}})
	require.True(t, changeEndpoint(t, o, to))
	require.Zero(t, endpointOf(t, o, "e-1").FailingSince, "it has recovered since it was read")
	mark(t, o, store.EndpointMarks{Failing: []string{"e-1"}})
	to.Version, to.FailingSince = 3, time.Time{}
	require.True(t, changeEndpoint(t, o, to))
	require.True(t, changeEndpoint(t, o, endpointOf(t, o, "e-1")), "the same values are a change")
	got = endpointOf(t, o, "e-1")
	require.Equal(t, int64(5), got.Version)
	require.Zero(t, got.DisabledAt)
	require.Zero(t, got.FailingSince)
	require.Equal(t, int64(1), endpointOf(t, o, "e-2").Version)
	require.False(t, changeEndpoint(t, o, endpoint("a", "e-3")))
}

func endpointsTogether(t *testing.T, o *kit.Outbox) {
	addEndpoints(t, o, endpoint("a", "e-1"))
	for range 4 {
		read := endpointOf(t, o, "e-1")
		require.Equal(t, 1, o.Together(t, func(tx *sql.Tx) (int, error) { return one(o.ChangeEndpoint(t.Context(), tx, read)) }))
		require.Equal(t, read.Version+1, endpointOf(t, o, "e-1").Version)
	}
	require.Equal(t, 1, o.Together(t, func(tx *sql.Tx) (int, error) { return one(o.DeleteEndpoint(t.Context(), tx, "a", "e-1")) }))
}

func endpointsOfOthers(t *testing.T, o *kit.Outbox) {
	addEndpoints(t, o, endpoint("a", "e-1"), endpoint("A", "e-2"), endpoint("a ", "e-3"))
	addAttempts(t, o, attempt("a", "e-1", 1), attempt("A", "e-2", 2))
	require.Equal(t, []string{"e-2"}, idsOf(t, o, store.EndpointQuery{Tenants: []string{"A"}}))
	require.Empty(t, idsOf(t, o, store.EndpointQuery{Tenants: []string{"A"}, IDs: []string{"e-1"}}))

	read := endpointOf(t, o, "e-1")
	foreign := read
	foreign.Tenant = "A"
	require.False(t, changeEndpoint(t, o, foreign))
	deleted, err := o.DeleteEndpoint(t.Context(), nil, "A", "e-1")
	require.NoError(t, err)
	require.False(t, deleted)
	require.Equal(t, read, endpointOf(t, o, "e-1"))

	for _, q := range []store.AttemptQuery{{}, {Endpoint: "e-1"}, {ID: attemptID(1)}, {Delivery: "d"}} {
		q.Tenant = "A"
		require.NotContains(t, attemptIDs(t, o, q), attemptID(1))
	}
	require.Equal(t, []string{attemptID(1)}, attemptIDs(t, o, store.AttemptQuery{Tenant: "a"}))
	hours, err := o.AttemptHours(t.Context(), "A", "e-1", time.Time{})
	require.NoError(t, err)
	require.Empty(t, hours)
}

func endpointsSelected(t *testing.T, o *kit.Outbox) {
	disabled := func(e store.Endpoint, reason string) store.Endpoint { e.DisabledReason = reason; return e }
	failing, troubled := endpoint("c", "6"), endpoint("c", "7")
	failing.FailingSince, troubled.Trouble = kit.Moment, "the condition fails"
	both := disabled(failing, store.DisabledByPerson)
	both.ID = "8"
	addEndpoints(t, o, endpoint("b", "1"), endpoint("a", "5"), endpoint("a", "2"), disabled(endpoint("a", "3"), store.DisabledByPerson+": misuse"),
		disabled(endpoint("b", "4"), "failing for 5 days"), failing, troubled, both, endpoint("B", "9"))

	for _, c := range []struct {
		q    store.EndpointQuery
		want []string
	}{
		{store.EndpointQuery{}, []string{"9", "2", "3", "5", "1", "4", "6", "7", "8"}},
		{store.EndpointQuery{Tenants: []string{"b", "a", "none"}}, []string{"2", "3", "5", "1", "4"}},
		{store.EndpointQuery{IDs: []string{"4", "2", "none"}}, []string{"2", "4"}},
		{store.EndpointQuery{Tenants: []string{"a"}, IDs: []string{"4", "2"}}, []string{"2"}},
		{store.EndpointQuery{Enabled: true}, []string{"9", "2", "5", "1", "6", "7"}},
		{store.EndpointQuery{Troubled: true}, []string{"4", "6", "7", "8"}},
		{store.EndpointQuery{Troubled: true, Enabled: true}, []string{"6", "7"}},
		{store.EndpointQuery{Troubled: true, Tenants: []string{"b"}}, []string{"4"}},
		{store.EndpointQuery{Limit: 3}, []string{"9", "2", "3"}},
		{store.EndpointQuery{Limit: 3, After: store.EndpointPlace{Tenant: "a", ID: "3"}}, []string{"5", "1", "4"}},
		{store.EndpointQuery{After: store.EndpointPlace{Tenant: "c", ID: "6"}, Troubled: true}, []string{"7", "8"}},
		{store.EndpointQuery{After: store.EndpointPlace{Tenant: "c", ID: "8"}}, []string{}},
	} {
		require.Equal(t, c.want, idsOf(t, o, c.q), "%+v", c.q)
	}
}

func endpointsOfMany(t *testing.T, o *kit.Outbox) {
	var tenants, want []string
	for i := range 1000 {
		tenants = append(tenants, fmt.Sprintf("tenant %04d", i))
	}
	tx := o.Tx(t)
	for i := 0; i < 1000; i += 100 {
		e := endpoint(tenants[i], fmt.Sprintf("e-%d", i))
		want = append(want, e.ID)
		require.NoError(t, o.AddEndpoint(t.Context(), tx, e, 1))
	}
	require.NoError(t, o.AddEndpoint(t.Context(), tx, endpoint("other", "other"), 1))
	require.NoError(t, tx.Commit())
	require.Equal(t, want, idsOf(t, o, store.EndpointQuery{Tenants: tenants}))
	require.Equal(t, want[:1], idsOf(t, o, store.EndpointQuery{Tenants: tenants, IDs: append(tenants, "e-0", "other")}))
}

func endpointsInTransaction(t *testing.T, o *kit.Outbox) {
	addEndpoints(t, o, endpoint("a", "changed"), endpoint("a", "deleted"))
	addAttempts(t, o, attempt("a", "deleted", 1), attempt("a", "changed", 2))
	at := attempt("a", "changed", 3)
	at.EndpointCreatedAt = endpointOf(t, o, "changed").CreatedAt
	for _, commit := range []bool{false, true} {
		tx := o.Tx(t)
		read := func() (ids []string) {
			found, err := o.Endpoints(t.Context(), tx, store.EndpointQuery{Tenants: []string{"a"}})
			require.NoError(t, err)
			for _, e := range found {
				ids = append(ids, fmt.Sprint(e.ID, " ", e.Version))
			}
			return ids
		}
		require.NoError(t, o.AddEndpoint(t.Context(), tx, endpoint("a", "added"), 10))
		before := endpoint("a", "changed")
		before.Version = 1
		changed, err := o.ChangeEndpoint(t.Context(), tx, before)
		require.NoError(t, err)
		require.True(t, changed)
		deleted, err := o.DeleteEndpoint(t.Context(), tx, "a", "deleted")
		require.NoError(t, err)
		require.True(t, deleted)
		require.NoError(t, o.AddAttempts(t.Context(), tx, []store.Attempt{at}))
		require.Equal(t, []string{"added 1", "changed 2"}, read())
		if o.Slots { // otherwise a reader may wait for the writer
			require.Equal(t, []string{"changed", "deleted"}, idsOf(t, o, store.EndpointQuery{}), "others do not see it yet")
		}
		if commit {
			require.NoError(t, tx.Commit())
			continue
		}
		require.NoError(t, tx.Rollback())
		require.Equal(t, []string{"changed", "deleted"}, idsOf(t, o, store.EndpointQuery{}))
		require.Equal(t, int64(1), endpointOf(t, o, "changed").Version)
		require.Equal(t, []string{attemptID(2), attemptID(1)}, attemptIDs(t, o, store.AttemptQuery{Tenant: "a"}))
	}
	require.Equal(t, []string{"added", "changed"}, idsOf(t, o, store.EndpointQuery{}))
	require.Equal(t, []string{attemptID(3), attemptID(2)}, attemptIDs(t, o, store.AttemptQuery{Tenant: "a"}), "none at the deleted endpoint")
	deleted, err := o.DeleteEndpoint(t.Context(), nil, "a", "deleted")
	require.NoError(t, err)
	require.False(t, deleted)
}

func endpointsHoldUpNoOne(t *testing.T, o *kit.Outbox) {
	if !o.Slots { // the database allows one writer at a time
		return
	}
	for n, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
		id := func(name string) string { return fmt.Sprint(n, name) }
		addEndpoints(t, o, endpoint("b", id("changed")), endpoint("b", id("deleted")), endpoint("b", id("other")), endpoint("d", id("d")))
		for i, e := range []string{"changed", "deleted", "other"} {
			addAttempts(t, o, attempt("b", id(e), 100*n+i), attempt("b", id(e), 100*n+10+i))
		}
		tx, err := o.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }() // has no effect after the commit
		require.NoError(t, o.AddEndpoint(t.Context(), tx, endpoint("b", id("added")), 100))
		require.NoError(t, o.AddEndpoint(t.Context(), tx, endpoint(id("new"), id("new")), 1))
		require.ErrorIs(t, o.AddEndpoint(t.Context(), tx, endpoint("d", id("more")), 1), store.ErrTooManyEndpoints)
		changed := endpointOf(t, o, id("changed"))
		done, err := o.ChangeEndpoint(t.Context(), tx, changed)
		require.NoError(t, err)
		require.True(t, done)
		done, err = o.DeleteEndpoint(t.Context(), tx, "b", id("deleted"))
		require.NoError(t, err)
		require.True(t, done)

		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // nothing waits for tx
		defer cancel()
		for i, tenant := range []string{"a", "b", "c", "d", "e", id("new")} {
			require.NoError(t, o.AddEndpoint(ctx, nil, endpoint(tenant, id("by others")+tenant), 100), "%s of %s", level, tenant)
			for k, e := range []string{"changed", "deleted", "other", "by others"} {
				require.NoError(t, o.AddAttempts(ctx, nil, []store.Attempt{attempt(tenant, id(e), 100*n+20+10*i+k)}), "%s of %s", level, tenant)
			}
		}
		done, err = o.DeleteEndpoint(ctx, nil, "b", id("other"))
		require.NoError(t, err, level)
		require.True(t, done)
		require.NoError(t, tx.Commit())
	}
}

func endpointsCounted(t *testing.T, o *kit.Outbox) {
	counts := func(limit int) []store.EndpointCount {
		t.Helper()
		counts, err := o.EndpointCounts(t.Context(), limit)
		require.NoError(t, err)
		return counts
	}
	byPerson, disabled, failing, troubled := endpoint("a", "1"), endpoint("b", "2"), endpoint("b", "3"), endpoint("c", "4")
	byPerson.DisabledReason, disabled.DisabledReason, failing.FailingSince, troubled.Trouble = store.DisabledByPerson, "failing for 5 days", kit.Moment, "the condition fails"
	disabled.FailingSince = kit.Moment
	addEndpoints(t, o, byPerson, endpoint("a", "5"), endpoint("b", "6"))
	require.Empty(t, counts(10), "a person has disabled it")
	addEndpoints(t, o, disabled, failing, troubled)
	b := store.EndpointCount{Tenant: "b", All: 3, Disabled: 1, Failing: 2}
	require.Equal(t, []store.EndpointCount{b, {Tenant: "c", All: 1, Troubled: 1}}, counts(10))
	require.Equal(t, []store.EndpointCount{b}, counts(1))
}

func endpointsMarked(t *testing.T, o *kit.Outbox) {
	addEndpoints(t, o, endpoint("a", "1"), endpoint("b", "2"), endpoint("c", "3"))
	require.Empty(t, mark(t, o, store.EndpointMarks{}))
	require.Empty(t, mark(t, o, store.EndpointMarks{Failing: []string{"1", "2", "none", "1"}, Trouble: map[string]string{"2": odd, "3": odd, "none": "x"}}))
	first := endpointOf(t, o, "1")
	require.WithinDuration(t, first.ChangedAt, first.FailingSince, time.Minute)
	require.Equal(t, int64(1), first.Version)
	require.Empty(t, first.Trouble)
	require.NotZero(t, endpointOf(t, o, "2").FailingSince)
	require.Equal(t, odd, endpointOf(t, o, "2").Trouble)
	third := endpointOf(t, o, "3")
	require.Zero(t, third.FailingSince)
	require.Equal(t, odd, third.Trouble)

	require.Empty(t, mark(t, o, store.EndpointMarks{Failing: []string{"1"}, Recovered: []string{"2", "3"}, Trouble: map[string]string{"3": ""}}))
	require.Equal(t, first, endpointOf(t, o, "1"), "it has been failing since the first attempt that failed")
	require.Zero(t, endpointOf(t, o, "2").FailingSince)
	require.Empty(t, endpointOf(t, o, "3").Trouble)
	require.Empty(t, mark(t, o, store.EndpointMarks{Failing: []string{"2"}, Recovered: []string{"2", "1"}}))
	require.Zero(t, endpointOf(t, o, "2").FailingSince, "an attempt has succeeded meanwhile")
	require.Zero(t, endpointOf(t, o, "1").FailingSince)
	require.True(t, changeEndpoint(t, o, first), "marks are no changes")

	var many []string
	for i := range 1200 {
		many = append(many, fmt.Sprint("none", i))
	}
	require.Empty(t, mark(t, o, store.EndpointMarks{Failing: append(many, "1", "3")}))
	require.NotZero(t, endpointOf(t, o, "3").FailingSince)
}

func endpointsDisabled(t *testing.T, o *kit.Outbox) {
	failing := func(tenant, id string, since time.Duration) store.Endpoint {
		e := endpoint(tenant, id)
		e.FailingSince = time.Now().Add(-since)
		return e
	}
	byPerson := failing("c", "5", 72*time.Hour)
	byPerson.DisabledReason, byPerson.DisabledAt = store.DisabledByPerson, kit.Moment
	addEndpoints(t, o, failing("a", "1", 49*time.Hour), failing("a", "2", 47*time.Hour), endpoint("a", "3"), failing("b", "4", 72*time.Hour), byPerson, endpoint("b", "6"))
	byPerson = endpointOf(t, o, "5")
	m := store.EndpointMarks{Failing: []string{"1", "2", "3", "4", "5"}, Recovered: []string{"4"}}
	for _, id := range []string{"1", "2", "3", "4", "5", "none"} {
		m.Disable = append(m.Disable, store.EndpointDisabling{ID: id, Reason: "failing for 2 days", After: 48 * time.Hour})
	}
	m.Disable = append(m.Disable, store.EndpointDisabling{ID: "6", Reason: odd}, store.EndpointDisabling{ID: "1", Reason: "again"})
	require.Equal(t, []string{"1", "6"}, mark(t, o, m))
	first := endpointOf(t, o, "1")
	require.Equal(t, "failing for 2 days", first.DisabledReason)
	require.WithinDuration(t, first.CreatedAt, first.DisabledAt, time.Minute)
	require.WithinDuration(t, first.DisabledAt, first.ChangedAt, time.Second)
	require.Equal(t, int64(2), first.Version, "disabling is a change")
	require.NotZero(t, first.FailingSince)
	require.Equal(t, odd, endpointOf(t, o, "6").DisabledReason)
	require.Equal(t, byPerson, endpointOf(t, o, "5"))
	require.Equal(t, []string{"2", "3", "4"}, idsOf(t, o, store.EndpointQuery{Enabled: true}))
	require.Empty(t, mark(t, o, m), "they are disabled already")
}

func endpointsMarkedTogether(t *testing.T, o *kit.Outbox) {
	addEndpoints(t, o, endpoint("a", "1"), endpoint("a", "2"))
	gone := store.EndpointMarks{Disable: []store.EndpointDisabling{{ID: "1", Reason: "gone"}, {ID: "2", Reason: "gone"}}}
	disabling := func(tx *sql.Tx) (int, error) {
		disabled, err := o.MarkEndpoints(t.Context(), tx, gone)
		return len(disabled), err
	}
	require.LessOrEqual(t, o.Together(t, disabling), 2, "each at most once")
	mark(t, o, gone)
	require.Empty(t, idsOf(t, o, store.EndpointQuery{Enabled: true}))
	if !o.Slots { // the database allows one writer at a time
		return
	}
	tx := o.Tx(t)
	e := endpointOf(t, o, "1")
	changed, err := o.ChangeEndpoint(t.Context(), tx, e)
	require.NoError(t, err)
	require.True(t, changed)
	mark(t, o, store.EndpointMarks{Failing: []string{"1", "2"}})
	require.NotZero(t, endpointOf(t, o, "2").FailingSince)
	require.NoError(t, tx.Commit())
	require.Zero(t, endpointOf(t, o, "1").FailingSince, "the next attempt marks it")
}
