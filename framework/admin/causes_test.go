package admin_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store"
)

func TestErrorsThatDifferInIDsNumbersAndTimesHaveOneCause(t *testing.T) {
	t.Parallel()
	for want, texts := range map[string][]string{
		"https://partner.example/hook: 422 missing field email": {"https://partner.example/hook: 422 missing field email"},
		"422: order … is unknown":                               {"422: order 17 is unknown", "422: order 0198c2f1-7d2e-7c55-9d6f-0f4d1f2a3b4c is unknown", "422: order ORD-00x9 is unknown"},
		"503: try again at …":                                   {"503: try again at 2026-01-02T03:04:05.678Z", "503:  try again\n at 1999-12-31T23:59:59+01:00"},
		"dial tcp …: connect: connection refused":               {"dial tcp 127.0.0.1:5432: connect: connection refused", "dial tcp 10.1.2.3:80: connect: connection refused"},
		`unknown country "…", it is no "…"`:                     {`unknown country "Narnia", it is no "country"`, `unknown country "", it is no "?"`},
		`invalid value: '…' (` + "`…`)":                         {"invalid value: 'a' (`b`)", "invalid value: 'x' (`y z`)"},
		`422: {"error": "missing field email", "n":…}`:          {`422: {"error": "missing field email", "n":1}`, `422: {"error": "missing field email", "n":23}`},
		`422: {"error":"missing field name","of":"…"}`:          {`422: {"error":"missing field name","of":"a1"}`, `422: {"error":"missing field name","of":"b-2"}`},
		"550 … …: no such person":                               {"550 5.1.1 ada@example.org: no such person", "550 5.1.0 bob.b@example.org: no such person"},
		"can't find what isn't there":                           {"can't find what isn't there"},
		strings.Repeat("x ", 150):                               {strings.Repeat("x ", 151), strings.Repeat("x  ", 1000)},
	} {
		for _, text := range texts {
			require.Equal(t, want, admin.CauseOf(text), text)
		}
	}
}

func failed(offset int64, state store.State, class, text string) store.Parked {
	p := delivery(offset, fmt.Sprint("n", offset), "", state)
	p.LastError, p.Attempt = text, 1
	p.Attempts = []store.PastAttempt{{Class: class, Error: text, Number: 1}}
	return p
}

func TestFailedDeliveriesAreGroupedByCause(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		older := failed(5, store.StateRetrying, "permanent", "422: order 5 has no email")
		older.FirstParkedAt = noon.Add(-1)
		older.DueAt = noon
		other := failed(6, store.StateDead, "permanent", "422: order 6 has no email")
		other.Envelope.Type = "order.paid"
		o.park(t, "mail",
			failed(1, store.StateDead, "permanent", "422: order 1 has no email"), failed(2, store.StateDead, "transient", "422: order 2 has no email"),
			failed(3, store.StateDead, "permanent", "422: order 3 has no email"), failed(4, store.StateDead, "permanent", "422: order 4 has no name"),
			older, other, delivery(7, "never", "", store.StateDead), delivery(8, "blocked", "k", store.StateBlocked))
		o.park(t, "web", failed(1, store.StateDead, "permanent", "permanent: 422: order 1 has no email"))
		got, err := o.Causes(t.Context(), admin.Filter{})
		require.NoError(t, err)
		require.Len(t, got.Causes, 5)
		require.False(t, got.More)
		require.Equal(t, 7, got.Examined)
		first := got.Causes[0]
		require.Equal(t, admin.Cause{
			ID: first.ID, Sink: "mail", Type: "order.placed", Class: "permanent", Error: "422: order … has no email", Count: 3, Dead: 2,
			Oldest: older.FirstParkedAt.UTC().Truncate(1000), Example: "n5",
		}, withTime(first, older.FirstParkedAt.UTC().Truncate(1000)))

		filtered, err := o.Causes(t.Context(), admin.Filter{Sink: "web", States: []store.State{store.StateDead}})
		require.NoError(t, err)
		require.Len(t, filtered.Causes, 1)
		require.Equal(t, "permanent", filtered.Causes[0].Class, "an older version wrote it into the text")
		_, err = o.Causes(t.Context(), admin.Filter{States: []store.State{"ded"}})
		require.ErrorIs(t, err, admin.ErrFilter)
	})
}

// withTime forgives what the database does not store of a time.
func withTime(c admin.Cause, t time.Time) admin.Cause {
	if d := c.Oldest.Sub(t).Abs(); d < time.Microsecond {
		c.Oldest = t
	}
	return c
}

func TestAnActOnACauseChangesExactlyItsDeliveries(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		parked := func(n int64, text string) store.Parked { return failed(n, store.StateDead, "permanent", text) }
		o.park(t, "mail", parked(1, "order 1 has no email"), parked(2, "order 2 has no name"), parked(3, "order 3 has no email"), parked(4, "order 4 has no email"))
		o.park(t, "web", parked(1, "order 1 has no email"))
		causes, err := o.Causes(t.Context(), admin.Filter{Sink: "mail"})
		require.NoError(t, err)
		cause := causes.Causes[0].ID
		left := func() (ids []string) {
			found, err := o.Parked(t.Context(), admin.Filter{States: []store.State{store.StateDead}}, store.ParkedPlace{}, 10)
			require.NoError(t, err)
			for _, d := range found {
				ids = append(ids, d.Sink+" "+d.Envelope.ID)
			}
			return ids
		}
		listed, err := o.Count(t.Context(), admin.Filter{Cause: cause})
		require.NoError(t, err)
		require.EqualValues(t, 3, listed[0].Count)

		plan, err := o.Requeue(t.Context(), admin.Filter{Cause: cause})
		require.NoError(t, err)
		require.EqualValues(t, 3, plan.Total())
		time.Sleep(2 * time.Millisecond) // SQLite's clock has milliseconds
		o.park(t, "mail", parked(3, "the server has burned down"), parked(5, "order 5 has no email"))
		action, err := plan.Run(t.Context(), nil)
		require.NoError(t, err)
		require.EqualValues(t, 2, action.Count)
		require.Contains(t, string(action.Filter), cause)
		require.Equal(t, []string{"mail n2", "mail n3", "mail n5", "web n1"}, left(), "but what has failed for another cause since, or is new")

		plan, err = o.Discard(t.Context(), admin.Filter{Cause: cause, States: []store.State{store.StateDead}})
		require.NoError(t, err)
		_, err = plan.Run(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, []string{"mail n2", "mail n3", "web n1"}, left())
		plan, err = o.Discard(t.Context(), admin.Filter{Cause: "unknown"})
		require.NoError(t, err)
		require.Zero(t, plan.Total(), "not everything")
	})
}

func TestCausesAreThoseOfTheFirstDeliveries(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		many := make([]store.Parked, admin.CauseRows+1)
		for i := range many {
			many[i] = failed(int64(i+1), store.StateDead, "permanent", fmt.Sprint("order ", i, " is odd"))
		}
		o.park(t, "mail", many...)
		causes, err := o.Causes(t.Context(), admin.Filter{})
		require.NoError(t, err)
		require.True(t, causes.More)
		require.Equal(t, admin.CauseRows, causes.Examined)
		require.Equal(t, admin.CauseRows, causes.Causes[0].Count)
		plan, err := o.Requeue(t.Context(), admin.Filter{Cause: causes.Causes[0].ID})
		require.NoError(t, err)
		require.EqualValues(t, admin.CauseRows, plan.Total())
		require.True(t, plan.More)
		action, err := plan.Run(t.Context(), nil)
		require.NoError(t, err)
		require.EqualValues(t, admin.CauseRows, action.Count)
	})
}
