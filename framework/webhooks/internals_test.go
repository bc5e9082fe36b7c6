package webhooks

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

// A header takes much more memory than its bytes on the wire.
func TestManyHeadersOfAnAnswerAreNotKept(t *testing.T) {
	t.Parallel()
	few := http.Header{"A": {"1", "2"}, "B": {"\x00\xff"}}
	require.Equal(t, map[string][]string{"A": {"1", "2"}, "B": {"\uFFFD\uFFFD"}}, clean(few))
	require.Len(t, clean(http.Header{"A": make([]string, maxValues+1)}), 1)
	require.NotContains(t, clean(http.Header{"A": make([]string, maxValues+1)}), "A")
	require.NotContains(t, clean(http.Header{"A": {string(make([]byte, maxBody))}}), "A")
	require.Greater(t, sizeOf(store.Exchange{Header: clean(few), Body: "body"}), 3*headerBytes)
}

func TestAnAttemptThatRevealedPrivateValuesIsRecordedWithoutThem(t *testing.T) {
	t.Parallel()
	got := make(chan string, 4)
	customer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- string(body)
		w.Header().Set("X-Echo", string(body))
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = w.Write(body)
	}))
	t.Cleanup(customer.Close)
	db, s := outboxtest.SQLite(t, outboxtest.File(t), sqlite.Config{})
	sink, err := New(sinks.Instance{Name: "customers"}, Config{ClientConfig: httpsink.ClientConfig{AllowHTTP: true, Guard: httpsink.Guard{Mode: httpsink.GuardOff}}})
	require.NoError(t, err)
	hooks, err := sink.Reside("", s, nil)
	require.NoError(t, err)
	endpoints, err := sink.Endpoints(s, "")
	require.NoError(t, err)
	made, _, err := endpoints.Create(t.Context(), NewEndpoint{Tenant: "acme", Settings: Settings{URL: customer.URL}})
	require.NoError(t, err)
	for i, revealed := range []bool{true, false} {
		d := &notification.Delivery{Attempt: 1, Revealed: revealed, Envelope: &notification.Envelope{
			Offset: int64(i + 1), ID: fmt.Sprint("d", i), Type: Type, Payload: []byte(`{"email":"ada@shop.example"}`),
			Metadata: notification.Metadata{metadataEndpoint: made.ID, metadataType: "customer.moved"},
		}}
		_, err = sink.Deliver(t.Context(), d)
		require.Error(t, err)
		require.Contains(t, <-got, "ada@shop.example", "the customer gets it")
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, hooks.Parked(t.Context(), tx, []event.Parked{{Delivery: d, State: store.StateRetrying}}))
		require.NoError(t, tx.Commit())
		all, err := endpoints.Attempts(t.Context(), store.AttemptQuery{Tenant: "acme", Delivery: d.ID})
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.Equal(t, http.StatusUnprocessableEntity, all[0].Status)
		require.Equal(t, []string{d.ID}, all[0].Request.Header["Webhook-Id"])
		require.Equal(t, !revealed, strings.Contains(fmt.Sprint(all[0]), "ada@shop.example"))
	}
}

func TestARateOutlivesChangesOfItsEndpointAndForgetting(t *testing.T) {
	t.Parallel()
	l := NewLookup(t, nil)
	row := store.Endpoint{ID: "limited", Version: 1, Rate: "1/h", Private: `{"secrets":[]}`}
	asked := time.Now()
	learn := func() *known { return l.r.learn([]store.Endpoint{row}, asked, nil)[0] }
	first := learn()
	require.True(t, first.limiter.Allow())
	row.Version, row.Description = 2, "changed"
	require.Same(t, first.limiter, learn().limiter)
	for i := range maxKnown {
		l.r.known[fmt.Sprint(i)] = &known{readAt: asked}
	}
	asked = asked.Add(time.Minute)
	l.r.learn(nil, asked, nil)
	require.Len(t, l.r.known, 1)
	require.Same(t, first.limiter, learn().limiter)
	row.Version, row.Rate = 3, "2/h"
	require.NotSame(t, first.limiter, learn().limiter)
}

func TestAnOutboxThatIsNoLongerWorkedOnIsForgotten(t *testing.T) {
	t.Parallel()
	_, s := outboxtest.SQLite(t, outboxtest.File(t), sqlite.Config{})
	sink, err := New(sinks.Instance{Name: "customers"}, Config{})
	require.NoError(t, err)
	kept, err := sink.Reside("kept", s, nil)
	require.NoError(t, err)
	_, err = sink.Reside("left", s, nil)
	require.NoError(t, err)
	runtime.GC()
	_, err = sink.Reside("new", s, nil)
	require.NoError(t, err)
	require.Contains(t, sink.residences, "kept")
	require.NotContains(t, sink.residences, "left")
	runtime.KeepAlive(kept)
}

func TestATenantsConditionsTakeATenthOfAProcessor(t *testing.T) {
	t.Parallel()
	const most = 500 * time.Millisecond
	var of thinking
	now := time.Now()
	took := time.Duration(0)
	for range 1000 {
		if of.may("slow", most, now) {
			of.took("slow", now, now.Add(20*time.Millisecond))
			took += 20 * time.Millisecond
		}
		now = now.Add(20 * time.Millisecond)
	}
	require.InDelta(t, (most + 2*time.Second).Seconds(), took.Seconds(), 0.05, "in 20 s")
	require.True(t, of.may("other", most, now))
	require.False(t, of.may("slow", most, now))
	require.True(t, of.may("slow", most, now.Add(time.Second)))
}
