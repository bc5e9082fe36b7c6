package logs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

// attemptFacts are about the attempts at the endpoints of customers.
var attemptFacts = []kit.Fact{
	{"an attempt is read as it was written", attemptsWritten},
	{"attempts are selected by everything, and paged newest first", attemptsSelected},
	{"attempts are counted by hour", attemptsByHour},
	{"attempts at a deleted endpoint are shown to no one", attemptsOfDeleted},
	{"many large attempts are written at once", attemptsLarge},
	{"attempts are removed after their time, at most as many as asked for", oldAttemptsGo},
}

// attemptID returns the nth of IDs that are in order.
func attemptID(n int) string { return fmt.Sprintf("019f0000-0000-7000-8000-%012d", n) }

// attempt returns the nth attempt, which succeeded.
func attempt(tenant, endpoint string, n int) store.Attempt {
	return store.Attempt{
		ID: attemptID(n), Endpoint: endpoint, Tenant: tenant, Delivery: "d", Notification: "n", Type: "order.placed", Number: n,
		At: kit.After(time.Duration(n) * time.Minute), Status: 200, Until: time.Now().Add(time.Hour),
	}
}

// addAttempts adds attempts at endpoints, which it adds before if they are not there.
func addAttempts(t *testing.T, o *kit.Outbox, attempts ...store.Attempt) {
	t.Helper()
	created := make(map[string]time.Time)
	for i, a := range attempts {
		if created[a.Endpoint].IsZero() {
			if len(idsOf(t, o, store.EndpointQuery{IDs: []string{a.Endpoint}})) == 0 {
				addEndpoints(t, o, endpoint(a.Tenant, a.Endpoint))
			}
			created[a.Endpoint] = endpointOf(t, o, a.Endpoint).CreatedAt
		}
		attempts[i].EndpointCreatedAt = created[a.Endpoint]
	}
	require.NoError(t, o.AddAttempts(t.Context(), nil, attempts))
}

func attemptsOf(t *testing.T, o *kit.Outbox, q store.AttemptQuery) []store.Attempt {
	t.Helper()
	found, err := o.Attempts(t.Context(), q)
	require.NoError(t, err)
	return found
}

func attemptIDs(t *testing.T, o *kit.Outbox, q store.AttemptQuery) []string {
	t.Helper()
	ids := []string{}
	for _, a := range attemptsOf(t, o, q) {
		ids = append(ids, a.ID)
	}
	return ids
}

func attemptsWritten(t *testing.T, o *kit.Outbox) {
	addAttempts(t, o)
	want := store.Attempt{
		ID: attemptID(1), Endpoint: odd, Tenant: odd, Delivery: odd, Notification: odd, Offset: 1 << 60, Type: odd, Number: 3, At: kit.Moment, Duration: 90*time.Minute + time.Microsecond,
		Status: 503, Error: odd, Until: kit.After(time.Hour),
		Request: store.Exchange{Header: map[string][]string{"Webhook-Id": {odd, ""}, "x\\\"'": {"\x01\x1f\x7f"}}, Body: odd + "\x01"},
		Answer:  store.Exchange{Body: strings.Repeat(`\"`, 4096)},
	}
	addAttempts(t, o, want)
	want.EndpointCreatedAt = endpointOf(t, o, odd).CreatedAt
	require.Equal(t, []store.Attempt{want}, attemptsOf(t, o, store.AttemptQuery{Tenant: odd, Endpoint: odd, Delivery: odd, Type: odd}))

	again := want
	again.Status = 200
	addAttempts(t, o, again, store.Attempt{ID: attemptID(2), Endpoint: odd, Tenant: odd})
	found := attemptsOf(t, o, store.AttemptQuery{Tenant: odd})
	require.Len(t, found, 2)
	require.Equal(t, want, found[1], "a repeat changes nothing")
	require.Equal(t, 1, found[0].At.Year(), "an unset time stops no one")
}

func attemptsSelected(t *testing.T, o *kit.Outbox) {
	var all []store.Attempt
	for n := range 8 {
		a := attempt("a", "e-1", n)
		if n%2 == 1 {
			a.Endpoint, a.Error = "e-2", "refused"
		}
		if n >= 6 {
			a.Delivery, a.Type = "other", "order.paid"
		}
		all = append(all, a)
	}
	addAttempts(t, o, append(all, attempt("b", "e-3", 8))...)
	for _, c := range []struct {
		q    store.AttemptQuery
		want []int
	}{
		{store.AttemptQuery{}, []int{7, 6, 5, 4, 3, 2, 1, 0}},
		{store.AttemptQuery{Endpoint: "e-2"}, []int{7, 5, 3, 1}},
		{store.AttemptQuery{ID: attemptID(4)}, []int{4}},
		{store.AttemptQuery{Delivery: "other"}, []int{7, 6}},
		{store.AttemptQuery{Type: "order.paid"}, []int{7, 6}},
		{store.AttemptQuery{Failed: true}, []int{7, 5, 3, 1}},
		{store.AttemptQuery{Succeeded: true, Type: "order.placed"}, []int{4, 2, 0}},
		{store.AttemptQuery{Succeeded: true, Failed: true}, []int{7, 6, 5, 4, 3, 2, 1, 0}},
		{store.AttemptQuery{Since: all[2].At, Before: all[5].At}, []int{4, 3, 2}},
		{store.AttemptQuery{Limit: 3}, []int{7, 6, 5}},
		{store.AttemptQuery{Limit: 3, After: attemptID(5)}, []int{4, 3, 2}},
		{store.AttemptQuery{Limit: 1, After: attemptID(5), Endpoint: "e-2"}, []int{3}},
		{store.AttemptQuery{After: attemptID(0)}, nil},
	} {
		want := []string{}
		for _, n := range c.want {
			want = append(want, attemptID(n))
		}
		c.q.Tenant = "a"
		require.Equal(t, want, attemptIDs(t, o, c.q), "%+v", c.q)
	}
}

func attemptsByHour(t *testing.T, o *kit.Outbox) {
	begins := kit.Moment.Truncate(time.Hour)
	for n, at := range []time.Time{begins.Add(-time.Microsecond), begins, begins.Add(time.Hour - time.Microsecond), begins.Add(time.Hour), begins.Add(5 * time.Hour)} {
		a := attempt("a", "e-1", n)
		if a.At = at; n%2 == 1 {
			a.Error = "refused"
		}
		addAttempts(t, o, a, attempt("a", "e-2", 10+n), attempt("b", "e-3", 20+n))
	}
	want := []store.AttemptHour{
		{Begins: begins.Add(-time.Hour), Succeeded: 1}, {Begins: begins, Succeeded: 1, Failed: 1},
		{Begins: begins.Add(time.Hour), Failed: 1}, {Begins: begins.Add(5 * time.Hour), Succeeded: 1},
	}
	hours, err := o.AttemptHours(t.Context(), "a", "e-1", time.Time{})
	require.NoError(t, err)
	require.Equal(t, want, hours)
	hours, err = o.AttemptHours(t.Context(), "a", "e-1", begins.Add(59*time.Minute))
	require.NoError(t, err)
	require.Equal(t, want[1:], hours)
}

func attemptsOfDeleted(t *testing.T, o *kit.Outbox) {
	addAttempts(t, o, attempt("a", "e-1", 1), attempt("a", "e-2", 2))
	late := attempt("a", "e-1", 3)
	late.EndpointCreatedAt = endpointOf(t, o, "e-1").CreatedAt
	shown := func(want ...string) {
		t.Helper()
		for _, q := range []store.AttemptQuery{{}, {Endpoint: "e-1"}, {ID: attemptID(1)}, {ID: attemptID(3)}, {Delivery: "d"}, {Type: "order.placed", After: attemptID(9), Limit: 9}} {
			q.Tenant = "a"
			for _, id := range attemptIDs(t, o, q) {
				require.Contains(t, want, id, "%+v", q)
			}
		}
		require.Equal(t, want, attemptIDs(t, o, store.AttemptQuery{Tenant: "a"}))
	}
	counted := func(want ...store.AttemptHour) {
		t.Helper()
		hours, err := o.AttemptHours(t.Context(), "a", "e-1", time.Time{})
		require.NoError(t, err)
		require.Equal(t, want, hours)
	}
	shown(attemptID(2), attemptID(1))
	deleted, err := o.DeleteEndpoint(t.Context(), nil, "a", "e-1")
	require.NoError(t, err)
	require.True(t, deleted)
	require.NoError(t, o.AddAttempts(t.Context(), nil, []store.Attempt{late})) // it was being made
	shown(attemptID(2))
	counted()

	time.Sleep(2 * time.Millisecond) // SQLite's clock has milliseconds
	addEndpoints(t, o, endpoint("a", "e-1"))
	shown(attemptID(2))
	counted()
	addAttempts(t, o, attempt("a", "e-1", 4))
	shown(attemptID(4), attemptID(2))
	counted(store.AttemptHour{Begins: late.At.Truncate(time.Hour), Succeeded: 1})

	for _, n := range []int{1, 2, 3} { // they go at their time
		o.Exec(t, `UPDATE outbox_attempts SET until = {2020-01-01T00:00:00Z} WHERE id = '`+attemptID(n)+`'`)
	}
	removed, err := o.PruneLeftovers(t.Context(), store.LeftoverAttempts, 0, 10)
	require.NoError(t, err)
	require.Equal(t, 3, removed)
}

func attemptsLarge(t *testing.T, o *kit.Outbox) {
	body := strings.Repeat("\u2028", 8<<10/3)
	var all []store.Attempt
	for n := range 1100 {
		a := attempt("a", "e-1", n)
		if n%10 == 0 {
			a.Request.Body, a.Answer.Body = body, body
		}
		all = append(all, a)
	}
	addAttempts(t, o, all...)
	found := attemptsOf(t, o, store.AttemptQuery{Tenant: "a"})
	require.Len(t, found, len(all))
	require.Equal(t, body, found[len(found)-1].Request.Body)
	require.Equal(t, body, found[len(found)-1].Answer.Body)
}

func oldAttemptsGo(t *testing.T, o *kit.Outbox) {
	for n := range 4 {
		a := attempt("a", "e-1", n)
		if n != 1 {
			a.Until = time.Now().Add(-time.Hour)
		}
		addAttempts(t, o, a)
	}
	for _, want := range []int{2, 1, 0} {
		removed, err := o.PruneLeftovers(t.Context(), store.LeftoverAttempts, 0, 2)
		require.NoError(t, err)
		require.Equal(t, want, removed)
	}
	require.Equal(t, []string{attemptID(1)}, attemptIDs(t, o, store.AttemptQuery{Tenant: "a"}))
}
