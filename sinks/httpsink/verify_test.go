package httpsink

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
)

func TestAVerifiedRequestIsPassedOnUnchanged(t *testing.T) {
	var bodies []string
	handler, err := webhook.Receiver{Secrets: []string{sharedSecret}, MaxBytes: 1000}.Verify(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.EqualValues(t, len(body), r.ContentLength)
		bodies = append(bodies, string(body))
		w.WriteHeader(http.StatusAccepted)
	}))
	require.NoError(t, err)
	status := func(change func(r *http.Request), payload string) int {
		d := newDelivery()
		d.Payload = []byte(payload)
		r := requestOf(t, Config{Format: FormatJSON, Secret: sharedSecret}, d)
		change(r)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code
	}
	same := func(*http.Request) {}
	require.Equal(t, http.StatusAccepted, status(same, `{"a": 1}`))
	require.Equal(t, []string{`{"a": 1}`}, bodies)
	require.Equal(t, http.StatusUnauthorized, status(func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(`{"a": 2}`)) }, `{"a": 1}`))
	require.Equal(t, http.StatusUnauthorized, status(func(r *http.Request) { r.Header.Set(webhook.HeaderWebhookID, "other") }, `{}`))
	require.Equal(t, http.StatusMethodNotAllowed, status(func(r *http.Request) { r.Method = http.MethodGet }, `{}`))
	require.Equal(t, http.StatusRequestEntityTooLarge, status(same, `"`+strings.Repeat("x", 2000)+`"`))
	require.Len(t, bodies, 1)
}

func TestInvalidVerifiersAreRefused(t *testing.T) {
	_, err := webhook.Receiver{}.Verify(http.NotFoundHandler())
	require.ErrorContains(t, err, "at least one secret")
	_, err = webhook.Receiver{Secrets: []string{sharedSecret}}.Verify(nil)
	require.ErrorContains(t, err, "the handler for verified requests is nil")
}
