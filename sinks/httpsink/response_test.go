package httpsink

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// discardLog discards what test servers log about broken connections.
var discardLog = log.New(io.Discard, "", 0)

// answering returns a receiver that answers with the status in the notification's key.
func answering(t *testing.T) *receiver {
	return newReceiver(t, func(w http.ResponseWriter, req *http.Request) {
		var status int
		_, _ = fmt.Sscan(req.Header.Get(webhook.HeaderKey), &status)
		w.WriteHeader(status)
	})
}

func deliverStatus(t *testing.T, sink *Sink, status int) (notification.Receipt, error) {
	d := newDelivery()
	d.Key = fmt.Sprint(status)
	return sink.Deliver(t.Context(), d)
}

// sinkStatuses are the statuses about the address, the credentials or the configuration.
var sinkStatuses = []int{300, 301, 302, 303, 304, 307, 308, 399, 401, 402, 403, 404, 405, 407, 410, 426, 428, 451, 501, 505, 511}

func TestEveryStatusHasItsClass(t *testing.T) {
	const delivered = sinks.Class(-1)
	classes := map[sinks.Class][]int{
		delivered:              {200, 201, 202, 204, 206, 226, 299},
		sinks.ClassTransient:   {408, 409, 421, 423, 424, 425, 429, 500, 502, 503, 504, 506, 507, 508, 599, 600, 999},
		sinks.ClassPermanent:   {400, 406, 411, 412, 413, 414, 415, 417, 418, 422, 431, 499},
		sinks.ClassThrottled:   nil, // see the test of Retry-After
		sinks.ClassCancelled:   nil,
		sinks.ClassUnavailable: sinkStatuses,
	}
	r := answering(t)
	sink := r.sink(t, Config{})
	for class, statuses := range classes {
		for _, status := range statuses {
			receipt, err := deliverStatus(t, sink, status)
			if class == delivered {
				assert.NoError(t, err, status)
				assert.Equal(t, notification.Receipt(fmt.Sprintf("http %d", status)), receipt)
				continue
			}
			assert.Empty(t, receipt, status)
			assert.Equal(t, class, sinktest.Class(err), "%d: %v", status, err)
			var response *ResponseError
			require.ErrorAs(t, err, &response)
			assert.Equal(t, status, response.Status)
			assert.Equal(t, "POST "+r.URL, response.Target)
		}
	}
}

// A refusal of one path or host does not affect the others.
func TestARefusalOfAURLFromDataAffectsOnlyThatURL(t *testing.T) {
	r := answering(t)
	for _, url := range []string{r.URL + "/{{.Type}}", strings.Replace(r.URL, "127.0.0.1", "{{.Metadata.host}}", 1)} {
		sink := newSink(t, Config{URL: url, Guard: Guard{Mode: "off"}})
		for _, status := range sinkStatuses {
			d := hosted("127.0.0.1")
			d.Key = fmt.Sprint(status)
			_, err := sink.Deliver(t.Context(), d)
			assert.Equal(t, sinks.ClassTransient, sinktest.Class(err), "%s %d: %v", url, status, err)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	in := func(d time.Duration) time.Time { return now.Add(d) }
	tests := []struct {
		value string
		until time.Time // zero: not throttled
	}{
		{"120", in(2 * time.Minute)},
		{"3600", in(time.Hour)},
		{"3601", in(time.Hour)},
		{"99999999999999999999999999", in(time.Hour)},
		{"18446744073709551615", in(time.Hour)},
		{"Sat, 01 Mar 2025 12:00:30 GMT", in(30 * time.Second)},
		{"Saturday, 01-Mar-25 12:00:30 GMT", in(30 * time.Second)},
		{"Sat Mar  1 12:00:30 2025", in(30 * time.Second)},
		{"Sun, 02 Mar 2025 12:00:00 GMT", in(time.Hour)},
		{"Sat, 01 Mar 2025 12:00:00 GMT", time.Time{}},
		{"Sat, 01 Mar 2025 11:59:59 GMT", time.Time{}},
		{"0", time.Time{}},
		{"-5", time.Time{}},
		{"1.5", in(1500 * time.Millisecond)},
		{"0.0", time.Time{}},
		{"1.2.3", time.Time{}},
		{".", time.Time{}},
		{"99999999999999.5", in(time.Hour)},
		{"1e3", time.Time{}},
		{"NaN", time.Time{}},
		{"Inf", time.Time{}},
		{"+5", time.Time{}},
		{"Fri, 31 Dec 9999 23:59:59 GMT", in(time.Hour)},
		{"soon", time.Time{}},
		{"", time.Time{}},
	}
	var status int
	var value string
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", value)
		w.WriteHeader(status)
	})
	sink := r.sink(t, Config{})
	sink.client.now = func() time.Time { return now }
	for _, status = range []int{408, 425, 429, 502, 503, 504} {
		for _, tt := range tests {
			value = tt.value
			_, err := sink.Deliver(t.Context(), newDelivery())
			class, until := sinks.Classify(err)
			if tt.until.IsZero() {
				assert.Equal(t, sinks.ClassTransient, class, "%d %q", status, value)
				continue
			}
			assert.Equal(t, sinks.ClassThrottled, class, "%d %q", status, value)
			assert.True(t, tt.until.Equal(until), "%d %q: %s", status, value, until)
		}
	}
	for _, status = range []int{301, 400, 500} {
		value = "120"
		_, err := sink.Deliver(t.Context(), newDelivery())
		assert.NotEqual(t, sinks.ClassThrottled, sinktest.Class(err), status)
	}
}

func TestTheReceiptHasTheDestinationsID(t *testing.T) {
	header := http.Header{}
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		maps.Copy(w.Header(), header)
		w.WriteHeader(201)
	})
	for _, tt := range []struct {
		header http.Header
		want   notification.Receipt
	}{
		{http.Header{}, "http 201"},
		{http.Header{"X-Request-Id": {"r-1"}}, "http 201 r-1"},
		{http.Header{"X-Message-Id": {"m-1"}, "Request-Id": {""}}, "http 201 m-1"},
		{http.Header{"X-Request-Id": {"r-1"}, "X-Message-Id": {"m-1"}}, "http 201 r-1"},
		{http.Header{"X-Request-Id": {strings.Repeat("é", 200)}}, notification.Receipt("http 201 " + strings.Repeat("é", 64))},
		{http.Header{"X-Request-Id": {"bearer-token"}}, "http 201 ***"},
	} {
		clear(header)
		maps.Copy(header, tt.header)
		receipt, err := r.sink(t, Config{Bearer: "bearer-token"}).Deliver(t.Context(), newDelivery())
		require.NoError(t, err)
		assert.Equal(t, tt.want, receipt)
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	elsewhere := newReceiver(t)
	r := newReceiver(t, func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, elsewhere.URL+"/new", http.StatusTemporaryRedirect)
	})
	_, err := r.sink(t, Config{}).Deliver(t.Context(), newDelivery())
	assert.Equal(t, sinks.ClassUnavailable, sinktest.Class(err))
	assert.ErrorContains(t, err, "307 Temporary Redirect to "+elsewhere.URL+"; redirects are not followed, set url to the final address: "+elsewhere.URL+"/new")
	assert.NotContains(t, sinks.Brief(err), "/new", "an address may repeat private data")
	assert.Empty(t, elsewhere.all())
}

func TestAnErrorQuotesTheBeginningOfTheBody(t *testing.T) {
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(422)
		_, _ = w.Write(bytes.Repeat([]byte("abcdefgh"), 1<<17)) // 1 MiB
	})
	_, err := r.sink(t, Config{}).Deliver(t.Context(), newDelivery())
	var response *ResponseError
	require.ErrorAs(t, err, &response)
	assert.Equal(t, strings.Repeat("abcdefgh", 1<<17)[:sinks.MaxAnswer], response.Body)
	assert.Equal(t, response.Body, sinks.AnswerOf(err))
	assert.Equal(t, "permanent: POST "+r.URL+": 422 Unprocessable Entity", sinks.Brief(err))
	assert.ErrorContains(t, err, "422 Unprocessable Entity: abcdefgh")
}

func TestAnOversizedBodyDoesNotUndoADelivery(t *testing.T) {
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 4*drainLimit)) })
	_, err := r.sink(t, Config{}).Deliver(t.Context(), newDelivery())
	assert.NoError(t, err)
}

// The timeout is much longer, so it does not end the delivery.
func TestADeliveryDoesNotWaitForABodyThatNeverEnds(t *testing.T) {
	const timeout, soon = time.Minute, 30 * time.Second
	silent := func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }
	trickling := func(w http.ResponseWriter, req *http.Request) {
		for req.Context().Err() == nil {
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(5 * time.Millisecond) // so that the body arrives slowly
		}
	}
	for name, rest := range map[string]http.HandlerFunc{"silent": silent, "trickling": trickling} {
		for _, status := range []int{200, 422} {
			answer := func(w http.ResponseWriter, req *http.Request) {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, "begun")
				_ = http.NewResponseController(w).Flush()
				rest(w, req)
			}
			secure, ca := newTLSReceiver(t, answer)
			for protocol, sink := range map[string]*Sink{
				"HTTP/1.1": newReceiver(t, answer).sink(t, Config{Timeout: timeout}),
				"HTTP/2":   secure.sink(t, Config{Timeout: timeout, TLS: TLS{CAFile: ca}}),
			} {
				t.Run(fmt.Sprint(name, " ", status, " ", protocol), func(t *testing.T) {
					t.Parallel()
					sink.client.bodyTime = 2 * time.Second
					ctx, cancel := context.WithTimeout(t.Context(), soon)
					defer cancel()
					receipt, err := sink.Deliver(ctx, newDelivery())
					require.NoError(t, ctx.Err())
					if status == 200 {
						require.NoError(t, err)
						assert.Equal(t, notification.Receipt("http 200"), receipt)
						return
					}
					assert.Equal(t, sinks.ClassPermanent, sinktest.Class(err), "%v", err)
					assert.ErrorContains(t, err, "422 Unprocessable Entity: begun")
				})
			}
		}
	}
}

func TestABrokenBodyKeepsItsStatus(t *testing.T) {
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(400)
		_, _ = io.WriteString(w, "half of")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	_, err := r.sink(t, Config{}).Deliver(t.Context(), newDelivery())
	assert.Equal(t, sinks.ClassPermanent, sinktest.Class(err))
	assert.ErrorContains(t, err, "400 Bad Request: half of")
}

func TestASlowServerIsTransient(t *testing.T) {
	r := newReceiver(t, func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() })
	sink := r.sink(t, Config{Timeout: 2 * time.Second})
	var err error
	assert.EventuallyWithT(t, func(c *assert.CollectT) { // on a busy machine, connecting may take longer than the timeout
		_, err = sink.Deliver(t.Context(), newDelivery())
		assert.Equal(c, sinks.ClassTransient, sinktest.Class(err))
	}, time.Minute, time.Millisecond)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "POST "+r.URL+": no response within 2s")
}

func TestALostConnectionIsTransient(t *testing.T) {
	r := newReceiver(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, err := r.sink(t, Config{}).Deliver(t.Context(), newDelivery())
	assert.Equal(t, sinks.ClassTransient, sinktest.Class(err))
	assert.ErrorIs(t, err, io.EOF)
}

func TestTheErrorOfTheEnginesContextIsReturned(t *testing.T) {
	arrived := make(chan struct{}, 2)
	r := newReceiver(t, func(_ http.ResponseWriter, req *http.Request) {
		arrived <- struct{}{}
		<-req.Context().Done()
	})
	sink := r.sink(t, Config{})

	cause := fmt.Errorf("the lease is lost")
	cancelled, cancel := context.WithCancelCause(t.Context())
	go func() { <-arrived; cancel(cause) }()
	_, err := sink.Deliver(cancelled, newDelivery())
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, sinks.ClassCancelled, sinktest.Class(err))

	assert.EventuallyWithT(t, func(c *assert.CollectT) {
		late, cancelLate := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancelLate()
		_, err = sink.Deliver(late, newDelivery())
		assert.Equal(c, sinks.ClassTransient, sinktest.Class(err))
	}, time.Minute, time.Millisecond)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

// Many servers repeat an unknown path in the answer.
func TestNoErrorRepeatsThePath(t *testing.T) {
	r := newReceiver(t, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Location", "https://elsewhere.example"+req.RequestURI)
		w.WriteHeader(308)
		fmt.Fprintf(w, "Cannot POST %s: no %s there, and %q is no token", req.RequestURI, req.URL.Path, req.URL.Query().Get("token"))
	})
	for _, url := range []string{"/hooks/T17/hunter2", "/hooks/hunter2?token=hunter2", "/{{.Type}}/hunter2?token=hunter2", "/hunter%322/x?token=hunter2"} {
		_, err := r.sink(t, Config{URL: r.URL + url}).Deliver(t.Context(), newDelivery())
		require.ErrorContains(t, err, "308 Permanent Redirect to https://elsewhere.example***")
		assert.NotContains(t, err.Error(), "hunter2")
	}
}

// Servers in debug mode repeat the request in the answer.
func TestNoErrorRepeatsACredential(t *testing.T) {
	r := newReceiver(t, func(w http.ResponseWriter, req *http.Request) {
		user, password, _ := req.BasicAuth()
		w.Header().Set("Location", "/?"+req.Header.Get("Authorization"))
		w.WriteHeader(302)
		fmt.Fprintf(w, "%q %s %s %v %s", req.RequestURI, user, password, req.Header, strings.TrimPrefix(vectorSecret, "whsec_"))
	})
	configs := map[string]Config{
		"bearer-token": {Bearer: "bearer-token"},
		"header-token": {Headers: map[string]string{"X-Api-Key": "header-token"}},
		"url-password": {URL: strings.Replace(r.URL, "http://", "http://user:url-password@", 1)},
		"query-token":  {URL: r.URL + "/path-token?query-token"},
		"path-token":   {URL: r.URL + "/path-token?query-token"},
		strings.TrimPrefix(vectorSecret, "whsec_"): {Secrets: []string{vectorSecret}},
		"basic-password": {User: "user", Password: "basic-password"},
		"template-token": {URL: r.URL + "/template-token/{{.Type}}?template-token"},
	}
	for credential, c := range configs {
		_, err := r.sink(t, c).Deliver(t.Context(), newDelivery())
		require.ErrorContains(t, err, "302 Found")
		assert.NotContains(t, err.Error(), credential)
	}
}

func TestAnExcerptIsShortTextWithoutCredentials(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		credential := rapid.StringMatching(`[a-c]{6,12}`).Draw(t, "credential")
		parts := rapid.SliceOf(rapid.OneOf(
			rapid.Just(credential), rapid.StringMatching(`[a-c]{0,4}`), rapid.String(),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		)).Draw(t, "parts")
		limit := rapid.IntRange(1, 64).Draw(t, "limit")
		body := strings.Join(parts, "")

		got := newExcerpt(limit, []string{credential}).clean(body)

		assert.LessOrEqual(t, len(got), limit)
		assert.True(t, utf8.ValidString(got), "%q", got)
		assert.False(t, strings.ContainsFunc(got, unicode.IsControl), "%q", got)
		assert.NotContains(t, got, credential)
		if len(body) >= limit && strings.HasSuffix(body[:limit], credential[:len(credential)-1]) {
			assert.False(t, strings.HasSuffix(got, credential[:len(credential)-1]), "%q of %q", got, body)
		}
	})
}
