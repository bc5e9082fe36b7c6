package inbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/inbox"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// answer is a server's response.
type answer struct {
	status int
	header http.Header
	body   string
}

// serve returns a function that posts requests to a handler behind an inbox. An empty id means none.
func (s *shop) serve(t *testing.T, next http.HandlerFunc) func(header, id string) answer {
	t.Helper()
	handler, err := inbox.Handler(s.config(), next)
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client := server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return func(header, id string) answer {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, nil)
		if err != nil {
			panic(err)
		}
		if id != "" {
			r.Header.Set(header, id)
		}
		w, err := client.Do(r)
		if err != nil {
			return answer{body: err.Error()}
		}
		defer w.Body.Close()
		body, _ := io.ReadAll(w.Body)
		return answer{w.StatusCode, w.Header, string(body)}
	}
}

// payFrom stores the effect of a request in the transaction of its inbox.
func payFrom(r *http.Request) {
	if err := pay(r.Context(), inbox.Tx[*sql.Tx](r.Context())); err != nil {
		panic(err)
	}
}

func TestARepeatedWebhookHasNoEffect(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		post := s.serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Payment", "17")
			payFrom(r)
			w.WriteHeader(http.StatusCreated)
			w.Header().Set("X-Late", "1")
			_, _ = io.WriteString(w, "paid")
			w.WriteHeader(http.StatusBadGateway) // too late
		})
		got := post("webhook-id", "n%2e1")
		require.Equal(t, http.StatusCreated, got.status)
		require.Equal(t, "paid", got.body)
		require.Equal(t, "17", got.header.Get("X-Payment"))
		require.Empty(t, got.header.Get("X-Late"))
		for _, header := range []string{"Webhook-Id", "Waybill-Id", "ce-id"} {
			got = post(header, "n%2e1")
			require.Equal(t, http.StatusOK, got.status)
			require.Empty(t, got.body)
		}
		require.Equal(t, 1, s.count(t, paid))
		require.Equal(t, 1, s.count(t, `outbox_inbox WHERE consumer = 'payments' AND id = 'n.1'`))
		require.Equal(t, http.StatusCreated, post("Waybill-Id", "n-2").status)
		require.Equal(t, 2, s.count(t, paid))
	})
}

func TestAResponseOtherThanSuccessRollsBack(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		var step atomic.Int32
		post := s.serve(t, func(w http.ResponseWriter, r *http.Request) {
			payFrom(r)
			switch step.Add(1) {
			case 1:
				w.Header().Set("Retry-After", "3")
				http.Error(w, "not now", http.StatusServiceUnavailable)
			case 2:
				http.Redirect(w, r, "/elsewhere", http.StatusFound)
			case 3:
				panic(http.ErrAbortHandler)
			}
		})
		got := post("webhook-id", "n-1")
		require.Equal(t, http.StatusServiceUnavailable, got.status)
		require.Equal(t, "3", got.header.Get("Retry-After"))
		require.Equal(t, "not now\n", got.body)
		require.Equal(t, http.StatusFound, post("webhook-id", "n-1").status)
		require.Zero(t, post("webhook-id", "n-1").status, "the server closes the connection after a panic")
		require.Zero(t, s.count(t, paid)+s.count(t, handled))
		require.Equal(t, http.StatusOK, post("webhook-id", "n-1").status)
		require.Equal(t, 1, s.count(t, paid))
	})
}

func TestARequestWithoutAnIDIsRefused(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		post := s.serve(t, func(http.ResponseWriter, *http.Request) { panic("called") })
		require.Equal(t, http.StatusBadRequest, post("", "").status)
		require.Equal(t, http.StatusBadRequest, post("webhook-id", "%zz").status)
		require.Equal(t, http.StatusBadRequest, post("webhook-id", fmt.Sprintf("%02000d", 1)).status)
		_, err := s.db.Exec(`DROP TABLE outbox_inbox`)
		require.NoError(t, err)
		got := post("webhook-id", "n-1")
		require.Equal(t, http.StatusServiceUnavailable, got.status)
		require.Equal(t, "10", got.header.Get("Retry-After"))
		require.NotContains(t, got.body, "inbox")
	})
}

// The first request fails, and exactly one of the others is handled instead.
func TestRequestsOfOneIDWaitForEachOther(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		var calls atomic.Int32
		inside, leave := make(chan struct{}), make(chan struct{})
		post := s.serve(t, func(w http.ResponseWriter, r *http.Request) {
			payFrom(r)
			if calls.Add(1) == 1 {
				close(inside)
				<-leave
				w.WriteHeader(http.StatusTeapot)
			}
		})
		var posts sync.WaitGroup
		statuses := make(chan int, 5)
		posts.Go(func() { statuses <- post("webhook-id", "n-1").status })
		<-inside
		for range 4 {
			posts.Go(func() { statuses <- post("webhook-id", "n-1").status })
		}
		close(leave)
		posts.Wait()
		close(statuses)
		count := make(map[int]int)
		for status := range statuses {
			count[status]++
		}
		require.Equal(t, map[int]int{http.StatusTeapot: 1, http.StatusOK: 4}, count)
		require.EqualValues(t, 2, calls.Load())
		require.Equal(t, 1, s.count(t, paid))
	})
}

func TestADisconnectedSenderRollsBack(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		paidNow, ended := make(chan struct{}), make(chan struct{})
		handler, err := inbox.Handler(s.config(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			payFrom(r)
			close(paidNow)
			<-r.Context().Done()
		}))
		require.NoError(t, err)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(ended)
			handler.ServeHTTP(w, r)
		}))
		defer server.Close()
		ctx, hangUp := context.WithCancel(t.Context())
		go func() { <-paidNow; hangUp() }()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, nil)
		require.NoError(t, err)
		r.Header.Set("webhook-id", "n-1")
		w, err := server.Client().Do(r)
		if err == nil {
			require.NoError(t, w.Body.Close())
		}
		require.Error(t, err)
		<-ended
		require.Zero(t, s.count(t, paid)+s.count(t, handled))
	})
}

// The http sink sends each notification twice.
func TestASignedWebhookIsVerifiedAndHandledOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		receiver := webhook.Receiver{Secrets: []string{secret}}
		once, err := inbox.Handler(s.config(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			e, err := receiver.Envelope(r)
			if err != nil || e.ID != "order.17" {
				http.Error(w, fmt.Sprint(e, err), http.StatusBadRequest)
				return
			}
			tx := inbox.Tx[*sql.Tx](r.Context())
			if err := pay(r.Context(), tx); err != nil {
				panic(err)
			}
			if err := s.publisher.Publish(notification.WithCause(r.Context(), e), tx, paymentDue{"o-1"}); err != nil {
				panic(err)
			}
		}))
		require.NoError(t, err)
		handler, err := receiver.Verify(once)
		require.NoError(t, err)
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)

		sink, err := httpsink.New(sinks.Instance{Name: "partner"}, httpsink.Config{URL: server.URL, Secret: secret})
		require.NoError(t, err)
		t.Cleanup(func() { _ = sink.Close(context.Background()) })
		for range 2 {
			receipt, err := sink.Deliver(t.Context(), s.delivery(t, "order.17"))
			require.NoError(t, err)
			require.EqualValues(t, "http 200", receipt)
		}
		require.Equal(t, 1, s.count(t, paid))
		require.Equal(t, 1, s.count(t, due))

		forged, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, nil)
		require.NoError(t, err)
		forged.Header.Set("webhook-id", "order-18")
		forged.Header.Set("webhook-timestamp", fmt.Sprint(time.Now().Unix()))
		forged.Header.Set("webhook-signature", "v1,AAAA")
		w, err := server.Client().Do(forged)
		require.NoError(t, err)
		require.NoError(t, w.Body.Close())
		require.Equal(t, http.StatusUnauthorized, w.StatusCode)
		require.Equal(t, 1, s.count(t, handled), "a request that is not verified stores no id")
	})
}

func TestMiddlewaresRequireTheirConfig(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		for _, c := range []inbox.Config{{}, {Inbox: s.box, DB: s.db}, {Inbox: s.box, Consumer: "a"}, {DB: s.db, Consumer: "a"}} {
			_, err := inbox.Handler(c, next)
			require.ErrorIs(t, err, inbox.ErrConfig)
			_, err = inbox.Middleware(c)
			require.ErrorIs(t, err, inbox.ErrConfig)
		}
		_, err := inbox.Handler(inbox.Config{Inbox: s.box, DB: s.db, Consumer: "a"}, nil)
		require.ErrorIs(t, err, inbox.ErrConfig)
	})
}

// At the database's default isolation level, a transaction that waited for another one fails.
func TestUnderSerializableIsolationACollidingRequestMustBeRepeated(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		if _, err := s.db.Exec(`SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE`); err != nil {
			t.Skip("the database has only one isolation level")
		}
		s.db.SetMaxIdleConns(0)
		var name string
		require.NoError(t, s.db.QueryRow(`SELECT current_database()`).Scan(&name))
		_, err := s.db.Exec(`ALTER DATABASE "` + name + `" SET default_transaction_isolation = 'serializable'`)
		require.NoError(t, err)
		inside, leave := make(chan struct{}), make(chan struct{})
		var calls atomic.Int32
		post := s.serve(t, func(_ http.ResponseWriter, r *http.Request) {
			payFrom(r)
			if calls.Add(1) == 1 {
				close(inside)
				<-leave
			}
		})
		statuses := make(chan int, 2)
		go func() { statuses <- post("webhook-id", "n-1").status }()
		<-inside
		go func() { statuses <- post("webhook-id", "n-1").status }()
		require.Eventually(t, func() bool { // the second request waits for the first
			return s.count(t, `pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
		}, time.Minute, time.Millisecond)
		close(leave)
		require.ElementsMatch(t, []int{http.StatusOK, http.StatusInternalServerError}, []int{<-statuses, <-statuses})
		require.Equal(t, http.StatusOK, post("webhook-id", "n-1").status)
		require.EqualValues(t, 1, calls.Load())
		require.Equal(t, 1, s.count(t, paid))
	})
}
