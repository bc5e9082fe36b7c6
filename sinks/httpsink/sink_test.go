package httpsink

import (
	"context"
	"crypto/tls"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
	"github.com/waybill-go/waybill/sinks/internal/certtest"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// received is a request that a receiver got, with its body.
type received struct {
	*http.Request
	Body string
}

// receiver is a real server that keeps every request, in order.
type receiver struct {
	*httptest.Server
	connections atomic.Int64

	mu       sync.Mutex
	requests []received
}

// newReceiver returns a receiver that answers with 202, or with answer.
func newReceiver(t *testing.T, answer ...http.HandlerFunc) *receiver {
	r := unstartedReceiver(answer...)
	r.Start()
	t.Cleanup(r.Close)
	return r
}

// status answers with a status.
func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// silent does not answer.
func silent(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func unstartedReceiver(answer ...http.HandlerFunc) *receiver {
	r := new(receiver)
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		r.requests = append(r.requests, received{req, string(body)})
		r.mu.Unlock()
		if len(answer) == 0 {
			w.WriteHeader(http.StatusAccepted)
		}
		for _, a := range answer {
			req.Body = io.NopCloser(strings.NewReader(string(body)))
			a(w, req)
		}
	}))
	r.Config.ErrorLog = discardLog
	r.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			r.connections.Add(1)
		}
	}
	return r
}

// newTLSReceiver returns a receiver with HTTP/2, and the file of its certificate.
func newTLSReceiver(t *testing.T, answer ...http.HandlerFunc) (r *receiver, caFile string) {
	return newStrictReceiver(t, func(*tls.Config) {}, answer...)
}

// newStrictReceiver returns a receiver with other TLS settings.
func newStrictReceiver(t *testing.T, configure func(*tls.Config), answer ...http.HandlerFunc) (r *receiver, caFile string) {
	r = unstartedReceiver(answer...)
	r.EnableHTTP2 = true
	r.TLS = new(tls.Config)
	configure(r.TLS)
	r.StartTLS()
	t.Cleanup(r.Close)
	return r, certtest.Write(t.TempDir(), r.Certificate())
}

// sink returns a sink for the receiver. It is closed before the receiver.
func (r *receiver) sink(t *testing.T, c Config) *Sink {
	t.Helper()
	if c.URL == "" {
		c.URL = r.URL
	}
	return newSink(t, c)
}

func newSink(t *testing.T, c Config) *Sink {
	t.Helper()
	sink, err := New(sinks.Instance{Name: "partner"}, c)
	require.NoError(t, err)
	sink.client.bodyTime = time.Minute // so that a machine that stalls cuts off no answer
	t.Cleanup(func() { assert.NoError(t, sink.Close(context.WithoutCancel(t.Context()))) })
	return sink
}

func (r *receiver) all() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

func (r *receiver) only(t *testing.T) received {
	t.Helper()
	all := r.all()
	require.Len(t, all, 1)
	return all[0]
}

// envelopes returns the envelopes of the requests, as a receiver reads them.
func (r *receiver) envelopes(t *testing.T) (es []notification.Envelope) {
	for _, req := range r.all() {
		if req.Header.Get(webhook.HeaderID) == "" {
			e, err := webhook.Receiver{Secrets: []string{vectorSecret}, MaxBytes: 64 << 20}.Envelope(req.again())
			require.NoError(t, err)
			es = append(es, *e)
			continue
		}
		e := notification.Envelope{Payload: []byte(req.Body), Metadata: notification.Metadata{
			notification.MetadataContentType: req.Header.Get("Content-Type"),
		}}
		var err error
		e.ID, err = url.PathUnescape(req.Header.Get(webhook.HeaderID))
		require.NoError(t, err)
		e.Type, err = url.PathUnescape(req.Header.Get(webhook.HeaderType))
		require.NoError(t, err)
		e.Key, err = url.PathUnescape(req.Header.Get(webhook.HeaderKey))
		require.NoError(t, err)
		e.OccurredOn, err = time.Parse(time.RFC3339Nano, req.Header.Get(webhook.HeaderOccurredOn))
		require.NoError(t, err)
		for name, values := range req.Header {
			if meta, ok := strings.CutPrefix(name, webhook.HeaderMetaPrefix); ok {
				text, err := url.PathUnescape(values[0])
				require.NoError(t, err)
				e.Metadata[strings.ToLower(meta)] = text
			}
		}
		es = append(es, e)
	}
	return es
}

func newDelivery() *notification.Delivery {
	d := sinktest.NewDelivery(1)
	d.Metadata = notification.Metadata{}
	return d
}

func TestConformance(t *testing.T) {
	broken := map[sinks.Class]func(*testing.T) sinks.Sink{
		sinks.ClassUnavailable: func(t *testing.T) sinks.Sink { return newSink(t, Config{URL: "http://" + servertest.Unused}) },
		sinks.ClassTransient:   func(t *testing.T) sinks.Sink { return newReceiver(t, status(500)).sink(t, Config{}) },
		sinks.ClassThrottled: func(t *testing.T) sinks.Sink {
			return newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "30")
				w.WriteHeader(429)
			}).sink(t, Config{})
		},
		sinks.ClassPermanent: func(t *testing.T) sinks.Sink { return newReceiver(t, status(422)).sink(t, Config{}) },
	}
	stuck := func(t *testing.T) sinks.Sink { return newReceiver(t, silent).sink(t, Config{}) }
	for name, start := range map[string]func(*testing.T) (*receiver, Config){
		"http/1.1": func(t *testing.T) (*receiver, Config) {
			return newReceiver(t), Config{Format: FormatJSON, Secret: vectorSecret}
		},
		"envelope": func(t *testing.T) (*receiver, Config) { return newReceiver(t), Config{Secret: vectorSecret} },
		"http/2": func(t *testing.T) (*receiver, Config) {
			r, ca := newTLSReceiver(t)
			return r, Config{TLS: TLS{CAFile: ca}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var r *receiver
			sinktest.Run(t, sinktest.Subject{
				New: func(t *testing.T) sinks.Sink {
					var c Config
					r, c = start(t)
					c.URL, c.Metadata = r.URL, everything
					sink, err := New(sinks.Instance{}, c)
					require.NoError(t, err)
					return sink
				},
				Received:  func(t *testing.T) []notification.Envelope { return r.envelopes(t) },
				Collected: func(t *testing.T) []sinktest.Collected { return r.collections(t) },
				Broken:    broken,
				Stuck:     stuck,
				Receipts:  true,
			})
		})
	}
}

func TestARequestContainsTheWholeNotification(t *testing.T) {
	r := newReceiver(t)
	sink := r.sink(t, Config{URL: r.URL + "/hooks?shop=1", Metadata: everything, Headers: map[string]string{"x-shop": "1"}})
	d := &notification.Delivery{
		Envelope: &notification.Envelope{
			ID:         "0198c0de-0000-7000-8000-000000000001",
			Type:       "order.placed",
			Version:    3,
			Key:        "customer-7",
			OccurredOn: time.Date(2025, 6, 1, 14, 30, 0, 123456789, time.FixedZone("", 7200)),
			Metadata: notification.Metadata{
				"content-type":   "application/cloudevents+json; charset=utf-8",
				"traceparent":    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
				"tracestate":     "vendor=50%",
				"correlation-id": "c-1",
				"größe":          "10 €",
			},
			Payload: []byte("{\"a\": 1}\n\x00\xff"),
		},
		Attempt: 12,
	}

	receipt, err := sink.Deliver(t.Context(), d)

	require.NoError(t, err)
	assert.Equal(t, notification.Receipt("http 202"), receipt)
	got := r.only(t)
	assert.Equal(t, "POST", got.Method)
	assert.Equal(t, "/hooks?shop=1", got.RequestURI)
	assert.Regexp(t, `^waybill/(devel|v\d\S+)$`, got.UserAgent())
	assert.Equal(t, "{\"a\": 1}\n\x00\xff", got.Body)
	assert.Equal(t, http.Header{
		"Content-Type":                 {"application/cloudevents+json; charset=utf-8"},
		"Content-Length":               {"11"},
		"User-Agent":                   {userAgent},
		"Waybill-Id":                   {"0198c0de-0000-7000-8000-000000000001"},
		"Idempotency-Key":              {"0198c0de-0000-7000-8000-000000000001"},
		"Waybill-Type":                 {"order.placed"},
		"Waybill-Version":              {"3"},
		"Waybill-Key":                  {"customer-7"},
		"Waybill-Occurred-On":          {"2025-06-01T12:30:00.123456Z"},
		"Waybill-Attempt":              {"12"},
		"Traceparent":                  {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		"Tracestate":                   {"vendor=50%"},
		"Waybill-Meta-Correlation-Id":  {"c-1"},
		"Waybill-Meta-Gr%c3%b6%c3%9fe": {"10 %e2%82%ac"},
		"X-Shop":                       {"1"},
	}, got.Header)
}

func TestEmptyFieldsAreNotSent(t *testing.T) {
	r := newReceiver(t)
	_, err := r.sink(t, Config{Method: "PUT"}).Deliver(t.Context(), &notification.Delivery{
		Envelope: &notification.Envelope{ID: "1", Type: "t", Version: 1, Metadata: notification.Metadata{"traceparent": ""}},
		Attempt:  1,
	})
	require.NoError(t, err)
	got := r.only(t)
	assert.Equal(t, "PUT", got.Method)
	assert.Equal(t, "", got.Body)
	assert.Equal(t, "application/json", got.Header.Get("Content-Type"))
	names := slices.Sorted(maps.Keys(got.Header))
	assert.Equal(t, []string{"Content-Length", "Content-Type", "Idempotency-Key", "User-Agent",
		"Waybill-Attempt", "Waybill-Id", "Waybill-Type", "Waybill-Version"}, names)
}

func TestCredentialsGoIntoTheAuthorizationHeader(t *testing.T) {
	r := newReceiver(t)
	withUser := strings.Replace(r.URL, "http://", "http://shop:p%40ss@", 1)
	for name, c := range map[string]Config{
		"Basic c2hvcDpwQHNz": {URL: withUser},
		"Bearer t0k3n":       {Bearer: "t0k3n"},
		"Token abc":          {Headers: map[string]string{"authorization": "Token abc"}},
	} {
		_, err := r.sink(t, c).Deliver(t.Context(), newDelivery())
		require.NoError(t, err)
		all := r.all()
		assert.Equal(t, name, all[len(all)-1].Header.Get("Authorization"))
	}
}

func TestTheUserAgentCanBeConfigured(t *testing.T) {
	r := newReceiver(t)
	_, err := r.sink(t, Config{Headers: map[string]string{"User-Agent": "shop/1"}}).Deliver(t.Context(), newDelivery())
	require.NoError(t, err)
	assert.Equal(t, "shop/1", r.only(t).Header.Get("User-Agent"))
}

func TestConnectionsAreReused(t *testing.T) {
	const inFlight, deliveries = 16, 500
	answers := map[string]http.HandlerFunc{
		"without a body":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) },
		"with a body":      func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"ok":true}`) },
		"with a large one": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 64<<10)) },
		"with an error":    func(w http.ResponseWriter, _ *http.Request) { http.Error(w, strings.Repeat("no ", 4000), 400) },
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			r := newReceiver(t, answer)
			deliverAll(t, r.sink(t, Config{}), deliveries, inFlight)
			assert.Len(t, r.all(), deliveries)
			// net/http may dial for a request and then use another connection that has become
			// free, so a busy machine has some more connections than requests in flight.
			// Without reuse there would be one for each delivery.
			assert.LessOrEqual(t, r.connections.Load(), int64(deliveries/4))
		})
	}
	t.Run("over HTTP/2", func(t *testing.T) {
		r, ca := newTLSReceiver(t)
		deliverAll(t, r.sink(t, Config{TLS: TLS{CAFile: ca}}), deliveries, inFlight)
		for _, req := range r.all() {
			require.Equal(t, "HTTP/2.0", req.Proto)
		}
		assert.LessOrEqual(t, r.connections.Load(), int64(inFlight))
	})
}

// deliverAll ignores errors, because only the number of requests matters.
func deliverAll(t *testing.T, sink *Sink, deliveries, inFlight int) {
	var workers errgroup.Group
	workers.SetLimit(inFlight)
	for range deliveries {
		workers.Go(func() error {
			_, _ = sink.Deliver(t.Context(), newDelivery())
			return nil
		})
	}
	require.NoError(t, workers.Wait())
}

// The receiver reads the second request and closes the connection without an answer, like a
// server whose keep-alive ends at that moment.
func TestARequestThatWasLostWithAStaleConnectionIsRepeated(t *testing.T) {
	var hangUp atomic.Int64
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		if hangUp.Add(1) == 2 {
			panic(http.ErrAbortHandler)
		}
	})
	sink := r.sink(t, Config{})
	for range 2 {
		_, err := sink.Deliver(t.Context(), newDelivery())
		require.NoError(t, err)
	}
	all := r.all()
	require.Len(t, all, 3)
	assert.Equal(t, all[1].Header.Get(webhook.HeaderID), all[2].Header.Get(webhook.HeaderID))
	assert.Equal(t, all[1].Body, all[2].Body)
}

// net/http may read the body of a cancelled request after Deliver has returned. Then the engine
// may change the payload.
func TestARequestHasItsOwnCopyOfThePayload(t *testing.T) {
	d := newDelivery()
	want := string(d.Payload)
	sink := newSink(t, Config{URL: "http://partner.example"})
	req := sink.client.attempt(t.Context(), sink.request(d, sink.destination.fixed))
	clear(d.Payload)
	again, err := req.GetBody()
	require.NoError(t, err)
	for _, body := range []io.Reader{req.Body, again} {
		got, err := io.ReadAll(body)
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
	}
}

func TestCheckHealthConnectsAndSendsNothing(t *testing.T) {
	plain := newReceiver(t)
	secure, ca := newTLSReceiver(t)
	for _, sink := range []*Sink{plain.sink(t, Config{}), secure.sink(t, Config{TLS: TLS{CAFile: ca}})} {
		require.NoError(t, sink.CheckHealth(t.Context()))
	}
	for _, r := range []*receiver{plain, secure} { // which accept a connection after the sink has it
		require.Eventually(t, func() bool { return r.connections.Load() > 0 }, time.Minute, time.Millisecond)
		assert.Equal(t, int64(1), r.connections.Load())
	}
	assert.Empty(t, plain.all())
	assert.Empty(t, secure.all())

	for name, sink := range map[string]*Sink{
		"connection refused":  newSink(t, Config{URL: "http://" + servertest.Unused}),
		"unknown certificate": secure.sink(t, Config{}),
	} {
		err := sink.CheckHealth(t.Context())
		assert.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%s: %v", name, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, plain.sink(t, Config{}).CheckHealth(ctx), context.Canceled)
}

// A connection that is dialled during Close must be closed too.
func TestAfterCloseNoConnectionIsKept(t *testing.T) {
	r := newReceiver(t)
	sink := r.sink(t, Config{})
	require.NoError(t, sink.Close(t.Context()))
	_, err := ownOf(sink).dialer.dial(t.Context(), nil, "tcp", r.Listener.Addr().String())
	assert.ErrorIs(t, err, net.ErrClosed)
	assert.ErrorIs(t, sink.CheckHealth(t.Context()), net.ErrClosed)
}
