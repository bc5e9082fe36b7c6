package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/examples/internal/readmetest"
)

// browser is a person who uses the pages.
type browser struct {
	*http.Client
	t    *testing.T
	shop string
}

func newBrowser(t *testing.T, shop string) *browser {
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return &browser{&http.Client{Jar: jar, Timeout: 10 * time.Second}, t, shop}
}

// logIn returns the browser of a customer.
func logIn(t *testing.T, shop, tenant string) *browser {
	b := newBrowser(t, shop)
	b.submit(shop+"/login", "tenant", tenant)
	return b
}

// do makes a request and returns what the server answers.
func (b *browser) do(method, to, mediaType, body string) (status int, answer string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, to, strings.NewReader(body))
	require.NoError(b.t, err)
	r.Header.Set("Content-Type", mediaType)
	got, err := b.Do(r)
	require.NoError(b.t, err)
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	require.NoError(b.t, err)
	return got.StatusCode, string(text)
}

func (b *browser) read(page string) string {
	b.t.Helper()
	status, text := b.do(http.MethodGet, page, "", "")
	require.Equal(b.t, http.StatusOK, status, text)
	return text
}

func (b *browser) submit(form, field, value string) {
	b.t.Helper()
	status, text := b.do(http.MethodPost, form, "application/x-www-form-urlencoded", url.Values{field: {value}}.Encode())
	require.Equal(b.t, http.StatusOK, status, text)
}

// call calls the API of the portal.
func (b *browser) call(method, path, body string, answer any) {
	b.t.Helper()
	status, text := b.do(method, b.shop+"/webhooks/api/"+path, "application/json", body)
	require.Equal(b.t, http.StatusOK, status, text)
	if answer != nil {
		require.NoError(b.t, json.Unmarshal([]byte(text), answer))
	}
}

// endpoint returns the only endpoint of the customer.
func (b *browser) endpoint() (found struct {
	ID, URL string
	Enabled bool
}) {
	b.t.Helper()
	var all struct{ Endpoints []json.RawMessage }
	b.call(http.MethodGet, "endpoints", "", &all)
	require.Len(b.t, all.Endpoints, 1)
	require.NoError(b.t, json.Unmarshal(all.Endpoints[0], &found))
	return found
}

func TestCustomersGetTheirNotificationsAtTheirEndpoints(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, in, "127.0.0.1:0", "127.0.0.1:0")
		_ = in.Close()
	}()
	shown := readmetest.Lines(out)
	line := func() string {
		select {
		case text := <-shown:
			return text
		case <-ctx.Done():
			return "nothing"
		}
	}

	first := line()
	shop := strings.TrimSpace(strings.TrimPrefix(first, "open "))
	acme, globex := logIn(t, shop, "acme"), logIn(t, shop, "globex")
	server := acme.endpoint().URL
	printed := []string{first}
	await := func() { printed = append(printed, line()) }

	acme.submit(shop+"/orders", "product", "kite")
	await()
	require.Contains(t, acme.read(shop), "<td>o-1<td>kite")
	require.Contains(t, acme.read(server), "<td>order.placed<td>o-1<td>kite")
	globex.submit(shop+"/orders", "product", "hat")
	await()
	require.NotContains(t, globex.read(shop), "o-1")
	require.NotContains(t, globex.read(globex.endpoint().URL), "o-1")

	// Each sees only its own endpoint in the portal, and without a login nothing.
	require.Contains(t, acme.read(shop+"/webhooks/"), server)
	require.NotContains(t, globex.read(shop+"/webhooks/"), server)
	status, _ := newBrowser(t, shop).do(http.MethodGet, shop+"/webhooks/", "", "")
	require.Equal(t, http.StatusUnauthorized, status)

	acme.submit(server+"/configure", "status", "410")
	acme.submit(shop+"/orders", "product", "rope")
	await()
	disabled := acme.endpoint()
	require.False(t, disabled.Enabled)
	acme.submit(server+"/configure", "status", "0")
	acme.call(http.MethodPost, "endpoints/"+disabled.ID+"/enable", "", nil)
	acme.call(http.MethodPost, "endpoints/"+disabled.ID+"/recover", `{"since":"`+time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)+`"}`, nil)
	await()

	status, _ = newBrowser(t, shop).do(http.MethodPost, server, "application/json", `{"type":"order.placed"}`)
	require.Equal(t, http.StatusUnauthorized, status, "the server refuses what is not signed")

	stop()
	require.NoError(t, <-ended)
	text := strings.NewReplacer(strings.TrimPrefix(shop, "http://"), "127.0.0.1:8080", strings.TrimSuffix(strings.TrimPrefix(server, "http://"), "/acme"), "127.0.0.1:8081").
		Replace(strings.Join(printed, ""))
	require.Equal(t, readmetest.Output(t, "go run ./examples/webhooks"), text)
}

func TestItServesThisMachineOnly(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"0.0.0.0:0", ":0", "192.0.2.1:80"} {
		require.ErrorContains(t, run(t.Context(), new(bytes.Buffer), address, "127.0.0.1:0"), "other machines could reach it")
	}
}
