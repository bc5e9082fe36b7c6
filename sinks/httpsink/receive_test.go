package httpsink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/function"
	"github.com/waybill-go/waybill/sinks/httpsink/internal/signature"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
)

const sharedSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// receive serves a sink, and returns an http sink that sends to it, and the log.
func receive(t *testing.T, to sinks.Sink) (*Sink, *strings.Builder) {
	t.Helper()
	log := new(strings.Builder)
	handler, err := webhook.Receive(webhook.Receiver{Secrets: []string{sharedSecret}, Logger: slog.New(slog.NewTextHandler(log, nil))}, to)
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return newSink(t, Config{URL: server.URL, Secret: sharedSecret, Metadata: everything}), log
}

func TestTheSenderGetsTheClassOfTheReceiversError(t *testing.T) {
	cause := errors.New("no such table: customers")
	until := time.Now().Add(time.Minute)
	for name, c := range map[string]struct {
		err  error
		want sinks.Class
	}{
		"transient":   {cause, sinks.ClassTransient},
		"permanent":   {sinks.Permanent(cause), sinks.ClassPermanent},
		"throttled":   {sinks.Throttled(until, cause), sinks.ClassThrottled},
		"no time yet": {sinks.Throttled(time.Time{}, cause), sinks.ClassThrottled},
		"unavailable": {sinks.Unavailable(cause), sinks.ClassThrottled},
		"unknown":     {sinks.Unknown(cause), sinks.ClassTransient},
		"cancelled":   {context.Canceled, sinks.ClassTransient},
	} {
		sink, log := receive(t, sinks.Func(func(context.Context, *notification.Delivery) (notification.Receipt, error) { return "", c.err }))
		_, err := sink.Deliver(t.Context(), newDelivery())
		requireClass(t, c.want, err)
		require.NotContains(t, err.Error(), "customers", "the answer does not contain the error")
		require.Contains(t, log.String(), c.err.Error())
		if name == "throttled" {
			_, wait := sinks.Classify(err)
			require.WithinDuration(t, until, wait, 5*time.Second)
		}
	}
}

type renamed struct {
	Number int `json:"number"`
}

func TestAReceivedNotificationIsDecodedByTheRegistry(t *testing.T) {
	types := registry.New()
	require.NoError(t, registry.Register[renamed](types, "order.placed", registry.Aliases("order.created")))
	var got []renamed
	var deliveries []*notification.Delivery
	sink, _ := receive(t, function.Mux(types, function.OnDelivery(func(_ context.Context, d *notification.Delivery, v renamed) error {
		got, deliveries = append(got, v), append(deliveries, d)
		return nil
	})))
	d := newDelivery()
	d.Type, d.Payload, d.Version, d.Attempt = "order.created", []byte(`{"number":7}`), 1, 3
	receipt, err := sink.Deliver(t.Context(), d)
	require.NoError(t, err)
	require.Equal(t, notification.Receipt("http 204"), receipt)
	require.Equal(t, []renamed{{7}}, got)
	require.Equal(t, d.ID, deliveries[0].ID)
	require.Equal(t, 3, deliveries[0].Attempt)

	d.Type = "order.shipped"
	_, err = sink.Deliver(t.Context(), d)
	requireClass(t, sinks.ClassTransient, err)
	d.Type, d.Payload = "order.placed", []byte(`"no order"`)
	_, err = sink.Deliver(t.Context(), d)
	requireClass(t, sinks.ClassPermanent, err)
}

func TestTheStatusesOfRefusedRequests(t *testing.T) {
	handler, err := webhook.Receive(webhook.Receiver{Secrets: []string{sharedSecret}, MaxBytes: 1000}, sinks.Func(
		func(context.Context, *notification.Delivery) (notification.Receipt, error) {
			t.Error("the request reached the sink")
			return "", nil
		}))
	require.NoError(t, err)
	signed := func(c Config, payload string) *http.Request {
		d := newDelivery()
		d.Payload = []byte(payload)
		c.Secret = sharedSecret
		return requestOf(t, c, d)
	}
	broken := signed(Config{}, "{}")
	broken.Body = io.NopCloser(io.MultiReader(strings.NewReader("{"), failingReader{}))
	read := signed(Config{}, "{}")
	read.Method = http.MethodGet
	forged := signed(Config{}, "{}")
	forged.Header.Set(webhook.HeaderWebhookSignature, "v1,AAAA")
	for name, c := range map[string]struct {
		request *http.Request
		want    int
	}{
		"method":      {read, http.StatusMethodNotAllowed},
		"signature":   {forged, http.StatusUnauthorized},
		"too large":   {signed(Config{}, `"`+strings.Repeat("x", 2000)+`"`), http.StatusRequestEntityTooLarge},
		"no envelope": {signed(Config{Format: FormatJSON}, "{}"), http.StatusUnprocessableEntity},
		"cut off":     {broken, http.StatusRequestTimeout},
	} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, c.request)
		require.Equal(t, c.want, w.Code, name)
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestAHandlerEndsWhenTheSenderDisconnects(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan error, 1)
	sink, _ := receive(t, sinks.Func(func(ctx context.Context, _ *notification.Delivery) (notification.Receipt, error) {
		close(begun)
		<-ctx.Done()
		ended <- ctx.Err()
		return "", ctx.Err()
	}))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	_, err := sink.Deliver(ctx, newDelivery())
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, <-ended, context.Canceled)
}

func TestInvalidReceiversAreRefused(t *testing.T) {
	never := sinks.Func(nil)
	_, err := webhook.Receive(webhook.Receiver{}, never)
	require.ErrorContains(t, err, "at least one secret")
	_, err = webhook.Receive(webhook.Receiver{Secrets: []string{"short"}}, never)
	require.ErrorContains(t, err, "secret 1: ")
	_, err = webhook.Receive(webhook.Receiver{Secrets: []string{sharedSecret}}, function.Mux(registry.New()))
	require.ErrorIs(t, err, function.ErrNoHandlers)
}

// The receiver answers a request and closes its connection even if the body does not arrive.
func TestARefusedRequestIsAnsweredBeforeItsBodyArrives(t *testing.T) {
	handler, err := webhook.Receive(webhook.Receiver{Secrets: []string{sharedSecret}}, sinks.Func(nil))
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(handler)
	server.Config.ReadHeaderTimeout, server.Config.ReadTimeout = time.Minute, time.Second
	server.Start()
	defer server.Close()
	for name, c := range map[string]struct {
		stamp  string
		status int
	}{
		"at once":                {"1", http.StatusUnauthorized},
		"while the body is read": {strconv.FormatInt(time.Now().Unix(), 10), http.StatusRequestTimeout},
	} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err, name)
		require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
		_, err = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nwebhook-id: a\r\nwebhook-timestamp: %s\r\nContent-Length: 200000\r\n\r\n{", c.stamp)
		require.NoError(t, err, name)
		answer, err := io.ReadAll(conn) // until the server closes it
		require.NoError(t, err, name)
		require.Contains(t, string(answer), fmt.Sprintf("HTTP/1.1 %d ", c.status), name)
		require.NoError(t, conn.Close())
	}
}

func TestASinkThatPanicsAnswersOnce(t *testing.T) {
	calls := 0
	sink, log := receive(t, sinks.Func(func(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
		calls++
		panic("no customer")
	}))
	_, err := sink.Deliver(t.Context(), newDelivery())
	requireClass(t, sinks.ClassTransient, err)
	require.Equal(t, 1, calls)
	require.Contains(t, log.String(), "the sink panicked: no customer")
	require.NotContains(t, err.Error(), "customer")
}

func TestTheDefaultLimitOfAReceiverAllowsTheLargestPayload(t *testing.T) {
	var got int
	sink, _ := receive(t, sinks.Func(func(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
		got = len(d.Payload)
		require.Equal(t, "webhook", d.Sink)
		return "", nil
	}))
	for _, payload := range [][]byte{[]byte(`"` + strings.Repeat("a", 1<<20-2) + `"`), bytes.Repeat([]byte{0xff}, 1<<20)} {
		d := newDelivery()
		d.Payload = payload
		_, err := sink.Deliver(t.Context(), d)
		require.NoError(t, err)
		require.Equal(t, 1<<20, got)
	}
}

func TestTheSignedPartsCannotBeSplitDifferently(t *testing.T) {
	now := time.Now().Unix()
	payload := fmt.Sprintf(`%d.{"admin":true}`, now)
	k, err := signature.Parse(sharedSecret)
	require.NoError(t, err)
	signature := string(k.AppendSignature(nil, []byte(fmt.Sprintf("X.%d.", now)), []byte(payload)))
	for _, header := range []http.Header{
		{"Webhook-Id": {fmt.Sprintf("X.%d", now)}, "Webhook-Timestamp": {fmt.Sprint(now)}},
		{"Webhook-Id": {"X"}, "Webhook-Timestamp": {fmt.Sprintf("+%d", now)}},
	} {
		header.Set("Webhook-Signature", signature)
		r := &http.Request{Header: header, Body: io.NopCloser(strings.NewReader(`{"admin":true}`))}
		_, err := webhook.Envelope(r, sharedSecret)
		require.ErrorIs(t, err, webhook.ErrSignature)
	}
}
