package httpsink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/certtest"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// ownOf returns the connections of a sink that opens its own.
func ownOf(s *Sink) *ownConnections { return s.client.connections.(*ownConnections) }

// openNow returns how many connections are open.
func (d *dialer) openNow() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.open)
}

// closeIdle lets the idle connections of a sink be too old.
func closeIdle(s *Sink) {
	p := ownOf(s).pool
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.hosts {
		for _, l := range h.free {
			l.until = time.Time{}
		}
	}
}

// dialed is a dial function that records addresses.
type dialed struct {
	mu        sync.Mutex
	addresses []string
	to        string // address to dial instead; "": the given one
}

func (d *dialed) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d.mu.Lock()
	d.addresses = append(d.addresses, address)
	d.mu.Unlock()
	if d.to != "" {
		address = d.to
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// programsClient returns a client whose transport is closed when the test ends.
func programsClient(t *testing.T, config *tls.Config) *http.Client {
	transport := &http.Transport{TLSClientConfig: config, Proxy: nil}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestConformanceWithTheProgramsClient(t *testing.T) {
	var r *receiver
	newWith := func(t *testing.T, url string) sinks.Sink {
		// The program's connections can outlive the sink, so this client closes them after each request.
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		sink, err := New(sinks.Instance{HTTPClient: client}, Config{URL: url, Metadata: everything})
		require.NoError(t, err)
		return sink
	}
	sinktest.Run(t, sinktest.Subject{
		New: func(t *testing.T) sinks.Sink {
			r = newReceiver(t)
			return newWith(t, r.URL)
		},
		Received:  func(t *testing.T) []notification.Envelope { return r.envelopes(t) },
		Collected: func(t *testing.T) []sinktest.Collected { return r.collections(t) },
		Broken: map[sinks.Class]func(*testing.T) sinks.Sink{
			sinks.ClassTransient: func(t *testing.T) sinks.Sink {
				return newWith(t, newReceiver(t, status(http.StatusInternalServerError)).URL)
			},
			sinks.ClassPermanent: func(t *testing.T) sinks.Sink { return newWith(t, newReceiver(t, status(http.StatusBadRequest)).URL) },
		},
		Stuck: func(t *testing.T) sinks.Sink { return newWith(t, newReceiver(t, silent).URL) },

		Receipts: true,
	})
}

func TestTheProgramsClientMakesTheRequests(t *testing.T) {
	r, _ := newStrictReceiver(t, func(*tls.Config) {})
	pool := x509.NewCertPool()
	pool.AddCert(r.Certificate())
	client := programsClient(t, &tls.Config{RootCAs: pool})
	sink, err := New(sinks.Instance{HTTPClient: client}, Config{URL: r.URL})
	require.NoError(t, err)
	_, err = sink.Deliver(t.Context(), newDelivery())
	require.NoError(t, err)
	require.NoError(t, sink.CheckHealth(t.Context()))
	require.NoError(t, sink.Close(t.Context()))
	resp, err := client.Get(r.URL) // Close has not closed the program's client
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}

func TestTheProgramsClientFollowsNoRedirect(t *testing.T) {
	elsewhere := newReceiver(t)
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	sink, err := New(sinks.Instance{HTTPClient: programsClient(t, nil)}, Config{URL: server.URL})
	require.NoError(t, err)
	_, err = sink.Deliver(t.Context(), newDelivery())
	requireClass(t, sinks.ClassUnavailable, err)
	require.Empty(t, elsewhere.all())
}

func TestTheProgramsClientIsUnavailableWithoutAConnection(t *testing.T) {
	secure, _ := newStrictReceiver(t, func(*tls.Config) {})
	for name, url := range map[string]string{
		"refused":              "http://127.0.0.1:1",
		"unknown name":         "http://nobody.invalid",
		"unknown authority":    secure.URL,
		"handshake never ends": "https://" + servertest.Silent(t),
	} {
		sink, err := New(sinks.Instance{HTTPClient: programsClient(t, nil)}, Config{URL: url, Timeout: 300 * time.Millisecond})
		require.NoError(t, err)
		_, err = sink.Deliver(t.Context(), newDelivery())
		assert.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%s: %v", name, err)
	}
}

func TestConnectionSettingsAreRefusedWithTheProgramsClient(t *testing.T) {
	_, err := New(sinks.Instance{HTTPClient: http.DefaultClient}, Config{
		URL: "https://a.example", Proxy: "none", TLS: TLS{CAFile: "/no/ca.pem"}, TLSConfig: new(tls.Config),
		Guard: Guard{Mode: GuardOn, Allow: []string{"10.0.0.0/8"}},
	})
	for _, key := range []string{"proxy: ", "tls: ", "guard.mode: ", "guard.allow: ", "TLSConfig: "} {
		require.ErrorContains(t, err, key+"the connections are made by the program's HTTP client")
	}
	_, err = New(sinks.Instance{HTTPClient: http.DefaultClient}, Config{URL: "https://{{.Metadata.host}}/hooks"})
	require.NoError(t, err)
}

func TestTheProgramsDialOpensTheConnections(t *testing.T) {
	r := newReceiver(t)
	own := &dialed{to: r.Listener.Addr().String()}
	sink, err := New(sinks.Instance{Dial: own.dial}, Config{URL: "http://partner.example/hooks", Proxy: "none"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sink.Close(context.Background())) })
	require.NoError(t, sink.CheckHealth(t.Context()))
	_, err = sink.Deliver(t.Context(), newDelivery())
	require.NoError(t, err)
	require.Equal(t, []string{"partner.example:80", "partner.example:80"}, own.addresses, "without a guard, the proxy gets the host name")

	sink, err = New(sinks.Instance{Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no tunnel")
	}}, Config{URL: r.URL, Proxy: "none"})
	require.NoError(t, err)
	_, err = sink.Deliver(t.Context(), newDelivery())
	requireClass(t, sinks.ClassUnavailable, err)
	require.ErrorContains(t, err, "no tunnel")
}

func TestTheGuardAppliesToTheProgramsDial(t *testing.T) {
	r := newReceiver(t)
	_, port, err := net.SplitHostPort(r.Listener.Addr().String())
	require.NoError(t, err)
	own := new(dialed)
	in := sinks.Instance{Dial: own.dial}
	to := func(c Config) error {
		c.Proxy = "none"
		sink, err := New(in, c)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, sink.Close(context.Background())) })
		_, err = sink.Deliver(t.Context(), newDelivery())
		return err
	}
	err = to(Config{URL: "http://localhost:" + port, Guard: Guard{Mode: GuardOn}})
	requireClass(t, sinks.ClassUnavailable, err)
	require.ErrorAs(t, err, new(*guardError))
	require.Empty(t, own.addresses, "the proxy gets no private address")

	require.NoError(t, to(Config{URL: "http://localhost:" + port, Guard: Guard{Mode: GuardOn, Allow: []string{"127.0.0.0/8"}}}))
	require.NotEmpty(t, own.addresses)
	for _, address := range own.addresses {
		ip, err := netip.ParseAddrPort(address)
		require.NoError(t, err, "the proxy gets an address, because it could resolve a name differently")
		require.True(t, ip.Addr().Is4(), "an address that the guard refuses is skipped")
	}
}

func TestTheProgramsTLSConfigIsUsedForConnections(t *testing.T) {
	authority := certtest.New()
	r, ca := newStrictReceiver(t, func(c *tls.Config) {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, authority.Pool()
	})
	pool := x509.NewCertPool()
	pool.AddCert(r.Certificate())
	config := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{authority.Issue("shop")}}
	sink := r.sink(t, Config{TLSConfig: config})
	*config = tls.Config{} // New has copied it
	_, err := sink.Deliver(t.Context(), newDelivery())
	require.NoError(t, err)
	require.Equal(t, "HTTP/2.0", r.only(t).Proto)

	_, err = New(sinks.Instance{}, Config{URL: r.URL, TLSConfig: config, TLS: TLS{CAFile: ca}})
	require.ErrorContains(t, err, "tls: the program has a TLSConfig")
}

func requireClass(t *testing.T, want sinks.Class, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, want, sinktest.Class(err), "%v", err)
}

// failing fails before it opens a connection, like a client that gets no token.
type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

func TestAClientThatFailsBeforeItConnectsIsUnavailable(t *testing.T) {
	sink, err := New(sinks.Instance{HTTPClient: &http.Client{Transport: failing{errors.New("invalid_client")}}}, Config{URL: "http://127.0.0.1:1/"})
	require.NoError(t, err)
	_, err = sink.Deliver(t.Context(), newDelivery())
	requireClass(t, sinks.ClassUnavailable, err)
}
