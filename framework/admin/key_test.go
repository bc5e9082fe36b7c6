package admin_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store"
)

// key asks why for a key, for at most limit notifications.
func (o *outbox) key(t *testing.T, key, typ string, before int64, limit int) admin.KeyAnswer {
	t.Helper()
	answer, err := o.WhyKey(t.Context(), admin.LogFilter{Key: key, Type: typ}, before, limit, routing(t))
	require.NoError(t, err)
	return answer
}

func ids(answers []admin.Answer) (ids []string) {
	for _, a := range answers {
		ids = append(ids, a.ID)
	}
	return ids
}

func TestTheLogShowsWhereEachRowIs(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		for _, id := range []string{"a", "b", "c"} {
			o.publish(t, id, "order.placed", "a-6")
		}
		o.publish(t, "lost", "parcel.lost", "")
		dead := delivery(2, "b", "a-6", store.StateDead)
		o.settle(t, "mail", func(c *store.Checkpoint) {
			c.Park = []store.Parked{dead}
			c.Receipts = []store.Receipt{{Offset: 1, ID: "a", Receipt: "250 ok", Attempt: 1, DeliveredAt: noon}}
		})
		o.publish(t, "a", "order.placed", "a-6") // the same id once more
		where := func(page admin.LogPage) (all [][]string) {
			for _, r := range page.Rows {
				row := []string{r.ID}
				for _, v := range r.Verdicts {
					row = append(row, v.Sink+" "+string(v.Where))
				}
				all = append(all, row)
			}
			return all
		}
		page, err := o.Log(t.Context(), admin.LogFilter{}, 0, 10, routing(t))
		require.NoError(t, err)
		require.Equal(t, [][]string{
			{"a", "mail waiting", "web unread"}, {"lost"}, {"c", "mail settled", "web unread"}, {"b", "mail dead", "web unread"}, {"a", "mail delivered", "web unread"},
		}, where(page))
		require.Zero(t, page.Next)

		page, err = o.Log(t.Context(), admin.LogFilter{Key: "a-6", Type: "order.*"}, 0, 2, routing(t))
		require.NoError(t, err)
		require.EqualValues(t, 3, page.Next)
		page, err = o.Log(t.Context(), admin.LogFilter{Key: "a-6"}, page.Next, 1, routing(t))
		require.NoError(t, err)
		require.Equal(t, [][]string{{"b", "mail dead", "web unread"}}, where(page))

		_, err = o.Log(t.Context(), admin.LogFilter{Key: "\x00"}, 0, 1, routing(t))
		require.ErrorIs(t, err, admin.ErrFilter)
	})
}

func TestTheNotificationsOfAKeyAreFoundInTheLogAndAmongParkedDeliveries(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		o.publish(t, "gone", "order.placed", "a-6")
		o.publish(t, "placed", "order.placed", "a-6")
		o.publish(t, "other", "order.placed", "b-7")
		o.publish(t, "paid", "order.paid", "a-6")
		o.park(t, "mail", delivery(1, "gone", "a-6", store.StateDead), delivery(2, "placed", "a-6", store.StateBlocked))
		answer := o.key(t, "a-6", "", 0, 10)
		require.Equal(t, []string{"paid", "placed", "gone"}, ids(answer.Answers))
		require.Equal(t, admin.Settled, answer.Answers[0].Verdicts[0].Where)
		require.Equal(t, "gone", answer.Answers[1].Verdicts[0].BlockedBy)

		_, err := o.db.ExecContext(t.Context(), `DELETE FROM outbox WHERE "offset" = 1`)
		require.NoError(t, err)
		answer = o.key(t, "a-6", "order.placed", 0, 10)
		require.Equal(t, []string{"placed", "gone"}, ids(answer.Answers), "what is parked needs no row")
		require.False(t, answer.Answers[1].InLog)

		answer = o.key(t, "a-6", "", 0, 2)
		require.Equal(t, []string{"paid", "placed"}, ids(answer.Answers))
		require.EqualValues(t, 2, answer.Next)
		require.Equal(t, []string{"gone"}, ids(o.key(t, "a-6", "", answer.Next, 2).Answers))
		require.Empty(t, o.key(t, "c-8", "", 0, 10).Answers)
		_, err = o.WhyKey(t.Context(), admin.LogFilter{}, 0, 1, routing(t))
		require.ErrorIs(t, err, admin.ErrFilter)
	})
}

func TestTheLatestOfAKeyAreFoundAmongManyParkedDeliveries(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		many := make([]store.Parked, 1201)
		for i := range many {
			many[i] = delivery(int64(i+1), fmt.Sprint("n", i+1), "a-6", store.StateBlocked)
		}
		many[0].State = store.StateDead
		o.park(t, "mail", many...)
		answer := o.key(t, "a-6", "", 0, 2)
		require.Equal(t, []string{"n1201", "n1200"}, ids(answer.Answers))
		require.Equal(t, []string{"n1199"}, ids(o.key(t, "a-6", "", answer.Next, 1).Answers))
		require.Equal(t, []string{"n2", "n1"}, ids(o.key(t, "a-6", "", 3, 5).Answers))
	})
}

// The log is searched in parts, of which a later one must not repeat what is parked from before.
func TestOldParkedDeliveriesOfAKeyAreInTheFirstAnswerOnly(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		o.publish(t, "old", "order.placed", "a-6")
		o.skipTo(t, 250_000)
		o.publish(t, "middle", "order.placed", "a-6")
		o.skipTo(t, 350_000)
		o.publish(t, "new", "order.placed", "a-6")
		o.park(t, "mail", delivery(1, "old", "a-6", store.StateDead))
		var answers [][]string
		for before := int64(0); ; {
			answer := o.key(t, "a-6", "", before, 10)
			answers = append(answers, ids(answer.Answers))
			if before = answer.Next; before == 0 {
				break
			}
		}
		require.Equal(t, [][]string{{"new", "old"}, {"middle"}, nil, {"old"}}, answers)
	})
}

// skipTo leaves a gap in the log: the next row has an offset.
func (o *outbox) skipTo(t *testing.T, offset int) {
	t.Helper()
	if _, err := o.db.ExecContext(t.Context(), `SELECT setval('outbox_offset_seq', $1)`, offset-1); err != nil { // SQLite
		_, err := o.db.ExecContext(t.Context(), `UPDATE sqlite_sequence SET seq = $1 WHERE name = 'outbox'`, offset-1)
		require.NoError(t, err)
	}
}

func TestStatusNamesTypesThatAForwarderDoesNotKnow(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		var parked []store.Parked
		for i, id := range []string{"a", "b", "c"} {
			o.publish(t, id, "order.placed", "")
			p := delivery(int64(i+1), id, "", store.StateRetrying)
			p.DueAt, p.LastError = time.Now().Add(time.Hour), `unknown: unknown notification type "order.placed": register it`
			switch id {
			case "b": // as forwarders write it since they keep attempts
				p.LastError, p.Attempts = `unknown notification type "order.placed": register it`, []store.PastAttempt{{Class: "unknown"}}
			case "c":
				p.LastError = "transient: an unknown: host"
			}
			parked = append(parked, p)
		}
		o.park(t, "mail", parked...)
		status, err := o.Status(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, []admin.Trouble{{
			Sink: "mail", What: admin.UnknownType, Count: 2, Forwarder: "f1", Cause: parked[0].LastError,
			Text: "2 deliveries of order.placed version 1, which forwarder f1 does not know: " + parked[0].LastError,
		}}, status.Troubles)
	})
}
