package portal_test

import (
	"context"
	"database/sql"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/waybilltest"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

func TestWhatHasFailedForGoodIsCountedAndDeliveredAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sink, err := webhooks.New(sinks.Instance{Name: "customers"}, s.endpoints.Config())
	require.NoError(t, err)
	forwarding := forwarder.Config{
		Store: s.store, Logger: slog.New(slog.DiscardHandler), Routes: route.Routes{"order.*": route.To("customers")},
		Sinks: map[string]forwarder.Sink{"customers": {Sink: sink}},
	}
	var status, requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(int(status.Load()))
	}))
	t.Cleanup(server.Close)
	e := s.create("acme", webhooks.Settings{URL: server.URL})
	other := s.create("acme", webhooks.Settings{URL: server.URL, Types: []string{"order.shipped"}})
	at := "/endpoints/" + e.ID
	publisher, err := outbox.New(registry.New(), s.store, outbox.Config{Announcer: outbox.Silent})
	require.NoError(t, err)
	require.NoError(t, publisher.RunInTx(t.Context(), s.db, nil, func(ctx context.Context, tx *sql.Tx) error {
		return publisher.Append(ctx, tx, notification.Envelope{Type: "order.placed", Payload: []byte(`{}`), OccurredOn: time.Now(), Metadata: notification.Metadata{"tenant": "acme"}})
	}))

	status.Store(http.StatusGone)
	waybilltest.Drain(t, forwarding, waybilltest.AllowDead())
	page := s.get(at)
	require.Contains(t, page.text, "<dt>Failed for good</dt><dd>1</dd>")
	require.Contains(t, page.text, "410 Gone")
	require.Len(t, attemptIDs(page.text), 1)
	require.Contains(t, s.get("/endpoints/"+other.ID).text, "<dt>Failed for good</dt><dd>0</dd>")
	require.Equal(t, map[string]any{"waiting": 0.0, "dead": 1.0}, s.call("GET", at, "").body["deliveries"])
	since := time.Now().Add(-time.Hour).UTC().Format("2006-01-02T15:04")
	require.Equal(t, http.StatusConflict, s.post(at+"/recover", url.Values{"since": {since}}).status, "it is disabled")

	require.Equal(t, http.StatusSeeOther, s.post(at+"/enable", nil).status)
	require.Contains(t, s.post(at+"/recover", url.Values{"since": {since}}).text, "Deliveries: 1.")
	status.Store(http.StatusOK)
	waybilltest.Drain(t, forwarding, waybilltest.AllowDead())
	require.EqualValues(t, 2, requests.Load())
	page = s.get(at)
	require.Contains(t, page.text, "<dt>Failed for good</dt><dd>0</dd>")
	attempts := attemptIDs(page.text)
	require.Len(t, attempts, 2)

	require.Equal(t, http.StatusNoContent, s.call("POST", "/attempts/"+attempts[0]+"/resend", "").status)
	require.Contains(t, s.post("/attempts/"+attempts[1]+"/resend", nil).text, "Sent again")
	waybilltest.Drain(t, forwarding, waybilltest.AllowDead())
	require.EqualValues(t, 3, requests.Load(), "both attempts are of one delivery")
}
