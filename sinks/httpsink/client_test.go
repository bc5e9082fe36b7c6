package httpsink

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink/internal/signature"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// open are the settings of a client for the servers of tests.
var open = ClientConfig{AllowHTTP: true, Proxy: "none", Guard: Guard{Mode: GuardOff}}

func newTestClient(t *testing.T, c ClientConfig) *Client {
	t.Helper()
	client, err := NewClient(sinks.Instance{Name: "customers"}, c)
	require.NoError(t, err)
	client.bodyTime = time.Minute // so that a machine that stalls cuts off no answer
	t.Cleanup(client.Close)
	return client
}

func keysOf(t testing.TB, secrets ...string) Keys {
	t.Helper()
	keys, err := ParseSecrets(secrets)
	require.NoError(t, err)
	return keys
}

// newPost returns a request to a URL.
func newPost(t testing.TB, url string) Post {
	return Post{URL: url, ID: "msg_1", Body: []byte(`{"order":42}`), Keys: keysOf(t, vectorSecret)}
}

func TestAPostIsSignedAndHasTheEndpointsHeaders(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-Id", "r-7")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "thank you")
	})
	p := newPost(t, r.URL+"/hooks?shop=1")
	p.ID = "evt.42"
	p.Header = map[string]string{"x-shop": "1", "Authorization": "Token abc"}
	p.Keys = keysOf(t, vectorSecret, newSecret(), signature.PrivateKeyPrefix+base64.StdEncoding.EncodeToString(private.Seed()))

	x, receipt, err := newTestClient(t, open).Post(t.Context(), p)

	require.NoError(t, err)
	assert.Equal(t, notification.Receipt("http 201 r-7"), receipt)
	got := r.only(t)
	assert.Equal(t, "POST", got.Method)
	assert.Equal(t, "/hooks?shop=1", got.RequestURI)
	assert.Equal(t, `{"order":42}`, got.Body)
	verifySignature(t, vectorSecret, got)
	assert.True(t, verifyAsymmetric(t, public, got))
	assert.Regexp(t, `^v1,\S{44} v1,\S{44} v1a,\S{88}$`, got.Header.Get(webhook.HeaderWebhookSignature))
	assert.Equal(t, []string{"Authorization", "Content-Length", "Content-Type", "Idempotency-Key", "User-Agent",
		"Webhook-Id", "Webhook-Signature", "Webhook-Timestamp", "X-Shop"}, slices.Sorted(maps.Keys(got.Header)))
	assert.Equal(t, "application/json", got.Header.Get("Content-Type"))
	assert.Equal(t, userAgent, got.UserAgent())
	assert.Equal(t, "evt%2e42", got.Header.Get(webhook.HeaderWebhookID))
	assert.Equal(t, "evt.42", got.Header.Get(webhook.HeaderIdempotencyKey))
	assert.Equal(t, []string{"1", "Token abc"}, []string{got.Header.Get("X-Shop"), got.Header.Get("Authorization")})

	assert.Equal(t, 201, x.Status)
	assert.Equal(t, "r-7", x.Header.Get("X-Request-Id"))
	assert.Equal(t, "thank you", string(x.Body))
	assert.Positive(t, x.Duration)
	sent := got.Header.Clone()
	sent.Del("Content-Length")
	assert.Equal(t, sent, x.RequestHeader)
}

func TestAPostIsSignedForItsTime(t *testing.T) {
	r := newReceiver(t)
	p := newPost(t, r.URL)
	p.ID, p.Body, p.At = vectorID, []byte(vectorBody), time.Unix(vectorTimestamp, 999)
	_, _, err := newTestClient(t, open).Post(t.Context(), p)
	require.NoError(t, err)
	assert.Equal(t, vectorSignature, r.only(t).Header.Get(webhook.HeaderWebhookSignature))
}

func TestTheVerifierAcceptsAPost(t *testing.T) {
	verified := make(chan string, 1)
	handler, err := webhook.Receiver{Secrets: []string{vectorSecret}}.Verify(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		verified <- string(body)
	}))
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client := newTestClient(t, open)

	_, _, err = client.Post(t.Context(), newPost(t, server.URL))
	require.NoError(t, err)
	assert.Equal(t, `{"order":42}`, <-verified)

	p := newPost(t, server.URL)
	p.Keys = keysOf(t, newSecret())
	x, _, err := client.Post(t.Context(), p)
	requireClass(t, sinks.ClassTransient, err)
	assert.Equal(t, 401, x.Status)
}

func TestEveryStatusOfAPostIsOnlyAboutItsURL(t *testing.T) {
	code := 0
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
	client := newTestClient(t, open)
	for class, codes := range map[sinks.Class][]int{
		sinks.ClassTransient: append([]int{408, 409, 421, 423, 424, 425, 429, 500, 502, 503, 504, 599}, sinkStatuses...),
		sinks.ClassPermanent: {400, 406, 411, 412, 413, 415, 417, 418, 422, 431, 499},
	} {
		for _, code = range codes {
			x, receipt, err := client.Post(t.Context(), newPost(t, r.URL))
			assert.Equal(t, class, sinktest.Class(err), "%d: %v", code, err)
			assert.Empty(t, receipt)
			assert.Equal(t, code, x.Status)
			var response *ResponseError
			require.ErrorAs(t, err, &response)
			assert.Equal(t, code, response.Status)
		}
	}
}

func TestAPostIsThrottledUntilRetryAfter(t *testing.T) {
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "90")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	client := newTestClient(t, open)
	now := time.Now()
	client.now = func() time.Time { return now }
	p := newPost(t, r.URL)
	p.At = now.Add(-time.Hour) // the wait is from now, whatever the time of the signature
	x, _, err := client.Post(t.Context(), p)
	class, until := sinks.Classify(err)
	require.Equal(t, sinks.ClassThrottled, class)
	require.Equal(t, now.Add(90*time.Second), until)
	require.Equal(t, 429, x.Status)
}

func TestAPostFollowsNoRedirect(t *testing.T) {
	elsewhere := newReceiver(t)
	r := newReceiver(t, func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, elsewhere.URL+"/new", http.StatusPermanentRedirect)
	})
	x, _, err := newTestClient(t, open).Post(t.Context(), newPost(t, r.URL))
	requireClass(t, sinks.ClassTransient, err)
	require.ErrorContains(t, err, "308 Permanent Redirect to "+elsewhere.URL+"; redirects are not followed, set url to the final address: "+elsewhere.URL+"/new")
	require.Equal(t, elsewhere.URL+"/new", x.Header.Get("Location"))
	require.Empty(t, elsewhere.all())
}

func TestTheBodyOfAnAnswerIsCutOff(t *testing.T) {
	body := strings.Repeat("abcdefgh", 1<<17) // 1 MiB
	code := 0
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	})
	client := newTestClient(t, open)
	for _, code = range []int{200, 422} {
		x, _, err := client.Post(t.Context(), newPost(t, r.URL))
		require.Equal(t, body[:maxExchangeBody], string(x.Body))
		if code == 200 {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, body[:sinks.MaxAnswer], sinks.AnswerOf(err))
	}
}

// The timeout is much longer, so it does not end the request.
func TestAPostDoesNotWaitForABodyThatNeverEnds(t *testing.T) {
	t.Parallel()
	for _, code := range []int{200, 410} {
		r := newReceiver(t, func(w http.ResponseWriter, req *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, "begun")
			_ = http.NewResponseController(w).Flush()
			<-req.Context().Done()
		})
		c := open
		c.Timeout = time.Minute
		client := newTestClient(t, c)
		client.bodyTime = time.Second
		began := time.Now()
		x, _, err := client.Post(t.Context(), newPost(t, r.URL))
		all := time.Since(began)
		require.Equal(t, code, x.Status)
		require.Equal(t, "begun", string(x.Body))
		require.Equal(t, code == 200, err == nil, "%v", err)
		require.Less(t, x.Duration, all-client.bodyTime/2, "it is the time of the status")
	}
}

func TestAPostWithoutAnAnswerHasNoStatus(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		url     string
		timeout time.Duration
		class   sinks.Class
	}{
		"no answer in time": {newReceiver(t, silent).URL, time.Second, sinks.ClassTransient},
		"a lost connection": {newReceiver(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }).URL, time.Minute, sinks.ClassTransient},
		"no connection":     {"http://" + servertest.Unused, time.Minute, sinks.ClassUnavailable},
		"no such name":      {"http://nobody.invalid", time.Minute, sinks.ClassUnavailable},
	} {
		c := open
		c.Timeout = tt.timeout
		client := newTestClient(t, c)
		var x Exchange
		var receipt notification.Receipt
		var err error
		assert.EventuallyWithT(t, func(c *assert.CollectT) { // on a busy machine, connecting may take longer than the timeout
			x, receipt, err = client.Post(t.Context(), newPost(t, tt.url))
			assert.Equal(c, tt.class, sinktest.Class(err), "%s: %v", name, err)
		}, time.Minute, time.Millisecond)
		assert.Empty(t, receipt)
		assert.Zero(t, x.Status)
		assert.Empty(t, x.Body)
		assert.NotEmpty(t, x.RequestHeader)
	}
}

func TestAPostEndsWithItsContext(t *testing.T) {
	arrived := make(chan struct{})
	r := newReceiver(t, func(_ http.ResponseWriter, req *http.Request) {
		close(arrived)
		<-req.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	_, _, err := newTestClient(t, open).Post(ctx, newPost(t, r.URL))
	requireClass(t, sinks.ClassCancelled, err)
}

func TestAClosedClientIsUnavailable(t *testing.T) {
	r := newReceiver(t)
	client := newTestClient(t, open)
	client.Close()
	_, _, err := client.Post(t.Context(), newPost(t, r.URL))
	requireClass(t, sinks.ClassUnavailable, err)
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestTheGuardOfAClientIsOn(t *testing.T) {
	r := newReceiver(t)
	_, port, err := net.SplitHostPort(r.Listener.Addr().String())
	require.NoError(t, err)
	for _, mode := range []string{"", GuardAuto, GuardOn} {
		client := newTestClient(t, ClientConfig{AllowHTTP: true, Proxy: "none", Guard: Guard{Mode: mode}})
		for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "169.254.169.254"} {
			_, _, err := client.Post(t.Context(), newPost(t, "http://"+host+":"+port))
			requireClass(t, sinks.ClassInvalid, err)
			require.ErrorContains(t, err, "which the guard refuses")
		}
	}
	require.Zero(t, r.connections.Load())
	allowing := newTestClient(t, ClientConfig{AllowHTTP: true, Proxy: "none", Guard: Guard{Allow: []string{"127.0.0.0/8"}}})
	for _, host := range []string{"127.0.0.1", "localhost"} {
		_, _, err = allowing.Post(t.Context(), newPost(t, "http://"+host+":"+port))
		require.NoError(t, err)
	}
}

// The name's address is known only when it is dialled.
func TestTheGuardOfAClientChecksTheAddressOfAName(t *testing.T) {
	client := newTestClient(t, ClientConfig{AllowHTTP: true, Proxy: "none"})
	u, err := urlRules{schemes: anyScheme}.parse("http://localhost:1/")
	require.NoError(t, err)
	r, err := client.requestOf(newPost(t, "http://partner.example"))
	require.NoError(t, err)
	r.to = newEndpoint(http.MethodPost, u)
	x, _, err := client.send(t.Context(), time.Now().Add(time.Minute), r)
	requireClass(t, sinks.ClassInvalid, err)
	require.ErrorAs(t, err, new(*guardError))
	require.Zero(t, x.Status)
}

func TestWhatCannotBePostedIsInvalid(t *testing.T) {
	client := newTestClient(t, open)
	for want, change := range map[string]func(*Post){
		`url: scheme "ftp" is not offered`:            func(p *Post) { p.URL = "ftp://partner.example" },
		"url: is missing":                             func(p *Post) { p.URL = "" },
		"there is no secret to sign the request with": func(p *Post) { p.Keys = Keys{} },
		"the id is empty":                             func(p *Post) { p.ID = "" },
	} {
		p := newPost(t, "http://partner.example")
		change(&p)
		x, _, err := client.Post(t.Context(), p)
		requireClass(t, sinks.ClassInvalid, err)
		require.ErrorContains(t, err, want)
		require.Empty(t, x.RequestHeader)
	}
	p := newPost(t, "http://partner.example")
	p.Header = map[string]string{"Host": "x", "Webhook-Id": "x"}
	_, _, err := client.Post(t.Context(), p)
	requireClass(t, sinks.ClassInvalid, err)
	require.ErrorContains(t, err, "headers.Host: comes from url\nheaders.Webhook-Id: is written by the sink")
}

func TestNoErrorOfAPostRepeatsASecret(t *testing.T) {
	secret := strings.TrimPrefix(vectorSecret, signature.SecretPrefix)
	r := newReceiver(t, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("X-Request-Id", secret)
		if req.Header.Get("X-Good") != "" {
			return
		}
		w.WriteHeader(422)
		fmt.Fprintf(w, "%s %v %s", req.RequestURI, req.Header, secret)
	})
	client := newTestClient(t, open)
	p := newPost(t, r.URL+"/path-token?query-token")
	p.Header = map[string]string{"X-Api-Key": "header-token"}
	x, _, err := client.Post(t.Context(), p)
	require.ErrorContains(t, err, "422 Unprocessable Entity: ***")
	for _, text := range []string{"path-token", "query-token", "header-token", secret} {
		assert.NotContains(t, err.Error(), text)
		assert.Contains(t, string(x.Body), text, "the exchange is for the endpoint's owner")
	}
	p.Header["X-Good"] = "1"
	_, receipt, err := client.Post(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, notification.Receipt("http 200 ***"), receipt)
}

func TestAPostThatWasLostWithAStaleConnectionIsRepeated(t *testing.T) {
	var requests atomic.Int64
	r := newReceiver(t, func(http.ResponseWriter, *http.Request) {
		if requests.Add(1) == 2 {
			panic(http.ErrAbortHandler)
		}
	})
	client := newTestClient(t, open)
	for range 2 {
		_, _, err := client.Post(t.Context(), newPost(t, r.URL))
		require.NoError(t, err)
	}
	require.Len(t, r.all(), 3)
}

func TestAClientUsesTheProgramsClient(t *testing.T) {
	r := newReceiver(t)
	c := ClientConfig{AllowHTTP: true, Guard: Guard{Mode: GuardOff}}
	client, err := NewClient(sinks.Instance{HTTPClient: programsClient(t, nil)}, c)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	_, _, err = client.Post(t.Context(), newPost(t, r.URL))
	require.NoError(t, err)
	r.only(t)

	client, err = NewClient(sinks.Instance{HTTPClient: programsClient(t, nil)}, ClientConfig{AllowHTTP: true})
	require.NoError(t, err)
	_, _, err = client.Post(t.Context(), newPost(t, r.URL))
	requireClass(t, sinks.ClassInvalid, err)
	require.ErrorContains(t, err, "127.0.0.1 is this host, which the guard refuses")
}

func TestAClientUsesTheProgramsDial(t *testing.T) {
	r := newReceiver(t)
	own := &dialed{to: r.Listener.Addr().String()}
	client, err := NewClient(sinks.Instance{Dial: own.dial}, open)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	_, _, err = client.Post(t.Context(), newPost(t, "http://partner.example/hooks"))
	require.NoError(t, err)
	require.Equal(t, []string{"partner.example:80"}, own.addresses)
}

func TestTheSettingsOfAClientAreChecked(t *testing.T) {
	c := ClientConfig{
		Timeout: -time.Second, Proxy: "ftp://proxy", Guard: Guard{Mode: "maybe", Allow: []string{"10.0.0.1"}},
		TLS: TLS{CAFile: "/does/not/exist.pem"},
	}
	_, err := NewClient(sinks.Instance{}, c)
	for _, err := range []error{c.Validate(), err} {
		for _, want := range []string{
			"timeout: -1s is negative", `proxy: scheme "ftp" is not offered`, `guard.mode: "maybe" is not offered`,
			`guard.allow[0]: "10.0.0.1" is not a network`, "tls.ca_file: open /does/not/exist.pem",
		} {
			require.ErrorContains(t, err, want)
		}
	}
	proxied := ClientConfig{Proxy: "http://proxy.example:3128"}
	require.ErrorContains(t, proxied.Validate(), "proxy: the guard cannot check the connections of http://proxy.example:3128")
	require.ErrorContains(t, c.CheckURL("https://partner.example"), "guard.mode")
	require.NoError(t, new(ClientConfig).Validate())
	_, err = NewClient(sinks.Instance{HTTPClient: http.DefaultClient}, ClientConfig{Guard: Guard{Mode: "maybe"}})
	require.ErrorContains(t, err, "guard.mode")
}

// An error of the program's transport can quote what it likes.
func TestNoErrorOfTheProgramsTransportRepeatsASecret(t *testing.T) {
	secret := strings.TrimPrefix(vectorSecret, signature.SecretPrefix)
	in := sinks.Instance{HTTPClient: &http.Client{Transport: failing{errors.New("cannot send " + secret)}}}
	client, err := NewClient(in, ClientConfig{})
	require.NoError(t, err)
	_, _, err = client.Post(t.Context(), newPost(t, "https://partner.example"))
	requireClass(t, sinks.ClassUnavailable, err)
	require.NotContains(t, err.Error(), secret)
}
