package httpsink

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/sinks"
)

func TestWithoutAConnectionTheDestinationIsUnavailable(t *testing.T) {
	plain := newReceiver(t)
	secure, ca := newTLSReceiver(t)
	private, privateCA := newTLSReceiver(t, func(c *tls.Config) {
		c.ClientAuth, c.MaxVersion = tls.RequireAnyClientCert, tls.VersionTLS12
	})
	_, port, err := net.SplitHostPort(secure.Listener.Addr().String())
	require.NoError(t, err)

	for name, c := range map[string]Config{
		"refused":                          {URL: "http://" + unusedAddress(t)},
		"no such host":                     {URL: "http://nobody.invalid"},
		"unknown authority":                {URL: secure.URL},
		"other name in the certificate":    {URL: "https://localhost:" + port, TLS: TLS{CAFile: ca}},
		"no TLS there":                     {URL: "https://" + plain.Listener.Addr().String()},
		"silent while TLS is negotiated":   {URL: "https://" + silentAddress(t), Timeout: 200 * time.Millisecond},
		"client certificate, with TLS 1.2": {URL: private.URL, TLS: TLS{CAFile: privateCA}},
		"client certificate, with TLS 1.3": {URL: "https://" + rejectingAddress(t, secure.TLS), TLS: TLS{CAFile: ca}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newSink(t, c).Deliver(t.Context(), newDelivery())
			assert.Equal(t, sinks.ClassUnavailable, classOf(err), "%v", err)
		})
	}
	assert.Empty(t, plain.all())
	assert.Empty(t, secure.all())
	assert.Empty(t, private.all())
}

// silentAddress accepts connections and says nothing.
func silentAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String() // the kernel accepts for us
}

// rejectingAddress wants a client certificate, which TLS 1.3 lets it say only
// after the client has finished its handshake. It keeps the connection open, so
// that the alert is what the client sees.
func rejectingAddress(t *testing.T, config *tls.Config) string {
	t.Helper()
	config = config.Clone()
	config.ClientAuth, config.MinVersion, config.NextProtos = tls.RequireAnyClientCert, tls.VersionTLS13, nil
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var server errgroup.Group
	server.Go(func() error {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = tls.Server(conn, config).Handshake()
		_, err = io.Copy(io.Discard, conn)
		return err
	})
	t.Cleanup(func() { _ = l.Close(); _ = server.Wait() })
	return l.Addr().String()
}

func TestAProxyThatIsInTheWayIsUnavailable(t *testing.T) {
	secure, ca := newTLSReceiver(t)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(407) }))
	t.Cleanup(refusing.Close)
	gone := "http://" + unusedAddress(t)

	for name, proxy := range map[string]string{"refuses": refusing.URL, "is gone": gone} {
		t.Run(name, func(t *testing.T) {
			sink := secure.sink(t, Config{Proxy: proxy, TLS: TLS{CAFile: ca}})
			_, err := sink.Deliver(t.Context(), newDelivery())
			assert.Equal(t, sinks.ClassUnavailable, classOf(err), "%v", err)
		})
	}
	assert.Empty(t, secure.all())
	assert.Error(t, secure.sink(t, Config{Proxy: gone}).CheckHealth(t.Context()))
}

func TestAProxyCarriesDeliveries(t *testing.T) {
	plain := newReceiver(t)
	secure, ca := newTLSReceiver(t)
	proxy := newProxy(t)

	for _, sink := range []*Sink{
		plain.sink(t, Config{Proxy: proxy}),
		secure.sink(t, Config{Proxy: proxy, TLS: TLS{CAFile: ca}}),
	} {
		require.NoError(t, sink.CheckHealth(t.Context()))
		_, err := sink.Deliver(t.Context(), newDelivery())
		require.NoError(t, err)
	}
	plain.only(t)
	secure.only(t)

	for name, sink := range map[string]*Sink{
		"unknown authority": secure.sink(t, Config{Proxy: proxy}),
		"no TLS there":      newSink(t, Config{URL: "https://" + plain.Listener.Addr().String(), Proxy: proxy}),
	} {
		_, err := sink.Deliver(t.Context(), newDelivery())
		assert.Equal(t, sinks.ClassUnavailable, classOf(err), "%s behind the proxy: %v", name, err)
	}
}

func TestOnlyReadingAndWritingConcernARequest(t *testing.T) {
	for op, want := range map[string]bool{
		"dial": true, "socks connect": true, "remote error": true, "local error": true, "read": false, "write": false,
	} {
		err := fmt.Errorf("wrapped: %w", &net.OpError{Op: op, Err: io.ErrUnexpectedEOF})
		assert.Equal(t, want, unreachable(err), op)
	}
	assert.False(t, unreachable(io.EOF))
}

func TestSwitchingProtocolsIsNoDelivery(t *testing.T) {
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "other")
		w.WriteHeader(http.StatusSwitchingProtocols)
	})
	_, err := r.sink(t, Config{}).Deliver(t.Context(), newDelivery())
	assert.Equal(t, sinks.ClassPermanent, classOf(err), "%v", err)
}

// newProxy forwards plain requests and opens tunnels.
func newProxy(t *testing.T) string {
	forward := &httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			forward.ServeHTTP(w, r)
			return
		}
		there, err := net.Dial("tcp", r.Host)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		here, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(there, buffered); _ = there.Close() }()
		_, _ = io.Copy(here, there)
		_ = here.Close()
	}))
	t.Cleanup(func() {
		server.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections() // the reverse proxy's
	})
	return server.URL
}
