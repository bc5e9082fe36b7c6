package httpsink

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/certtest"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestADestinationWithoutAConnectionIsUnavailable(t *testing.T) {
	plain := newReceiver(t)
	secure, ca := newTLSReceiver(t)
	private, privateCA := newStrictReceiver(t, func(c *tls.Config) {
		c.ClientAuth, c.MaxVersion = tls.RequireAnyClientCert, tls.VersionTLS12
	})
	_, port, err := net.SplitHostPort(secure.Listener.Addr().String())
	require.NoError(t, err)

	for name, c := range map[string]Config{
		"refused":                          {URL: "http://" + servertest.Unused},
		"no such host":                     {URL: "http://nobody.invalid"},
		"unknown authority":                {URL: secure.URL},
		"other name in the certificate":    {URL: "https://localhost:" + port, TLS: TLS{CAFile: ca}},
		"no TLS there":                     {URL: "https://" + plain.Listener.Addr().String()},
		"silent while TLS is negotiated":   {URL: "https://" + servertest.Silent(t), Timeout: 200 * time.Millisecond},
		"client certificate, with TLS 1.2": {URL: private.URL, TLS: TLS{CAFile: privateCA}},
		"client certificate, with TLS 1.3": {URL: "https://" + rejectingAddress(t, secure.TLS), TLS: TLS{CAFile: ca}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newSink(t, c).Deliver(t.Context(), newDelivery())
			assert.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
		})
	}
	assert.Empty(t, plain.all())
	assert.Empty(t, secure.all())
	assert.Empty(t, private.all())
}

// rejectingAddress returns an address that requires a client certificate. With TLS 1.3 it
// rejects the client only after the handshake. It leaves the connection open, so that the client
// reads the alert.
func rejectingAddress(t *testing.T, config *tls.Config) string {
	t.Helper()
	config = config.Clone()
	config.ClientAuth, config.MinVersion, config.NextProtos = tls.RequireAnyClientCert, tls.VersionTLS13, nil
	return servertest.Serve(t, func(conn net.Conn) {
		_ = tls.Server(conn, config).Handshake()
		_, _ = io.Copy(io.Discard, conn)
	})
}

// The alert can come before the request is written, and the transport's error then says only that the connection is closed.
func TestARejectedClientIsUnavailableWheneverTheAlertComes(t *testing.T) {
	secure, ca := newTLSReceiver(t)
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1"}
	pem, err := os.ReadFile(ca)
	require.NoError(t, err)
	require.True(t, config.RootCAs.AppendCertsFromPEM(pem))
	conn, err := tls.Dial("tcp", rejectingAddress(t, secure.TLS), config)
	require.NoError(t, err)
	_, alert := conn.Read(make([]byte, 1))
	require.Error(t, alert)
	require.NoError(t, conn.NetConn().Close())

	closed := fmt.Errorf("write error: %w", net.ErrClosed)
	assert.Equal(t, alert, rejection(conn, closed))
	assert.Equal(t, alert, rejection(conn, &net.OpError{Op: "write", Err: syscall.EPIPE}))
	assert.Equal(t, io.EOF, rejection(conn, io.EOF))
	assert.Equal(t, closed, rejection(nil, closed))
}

func TestAProxyThatFailsIsUnavailable(t *testing.T) {
	secure, ca := newTLSReceiver(t)
	refusing, gone := newReceiver(t, status(407)).URL, "http://"+servertest.Unused

	for name, c := range map[string]Config{
		"refuses":                  {URL: secure.URL, Proxy: refusing, TLS: TLS{CAFile: ca}},
		"is gone":                  {URL: secure.URL, Proxy: gone, TLS: TLS{CAFile: ca}},
		"refuses clear text":       {URL: "http://partner.example", Proxy: refusing},
		"refuses URLs that differ": {URL: "http://partner.example/{{.Type}}", Proxy: refusing},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newSink(t, c).Deliver(t.Context(), newDelivery())
			assert.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
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
		assert.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%s behind the proxy: %v", name, err)
	}
}

func TestOnlyReadAndWriteErrorsAreAboutARequest(t *testing.T) {
	for op, want := range map[string]bool{
		"dial": true, "socks connect": true, "remote error": true, "local error": true, "read": false, "write": false,
	} {
		err := fmt.Errorf("wrapped: %w", &net.OpError{Op: op, Err: io.ErrUnexpectedEOF})
		assert.Equal(t, want, isUnreachable(err), op)
	}
	assert.False(t, isUnreachable(io.EOF))
}

func TestSwitchingProtocolsIsAnError(t *testing.T) {
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "other")
		w.WriteHeader(http.StatusSwitchingProtocols)
	})
	_, err := r.sink(t, Config{}).Deliver(t.Context(), newDelivery())
	assert.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
}

// newProxy forwards plain requests and opens tunnels.
func newProxy(t *testing.T) string {
	proxy := newUnstartedProxy(t, func(*http.Request) {})
	proxy.Start()
	t.Cleanup(proxy.Close)
	return proxy.URL
}

// newUnstartedProxy calls see with each request.
func newUnstartedProxy(t *testing.T, see func(*http.Request)) *httptest.Server {
	forward := &httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}}
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections) // the reverse proxy uses this transport
	return httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		see(r)
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
}

func TestTheSinkSendsItsClientCertificate(t *testing.T) {
	trusted, untrusted := certtest.New(), certtest.New()
	r, ca := newStrictReceiver(t, func(c *tls.Config) {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, trusted.Pool()
	})
	cert, key := certtest.WritePair(t.TempDir(), trusted.Issue("shop"))
	untrustedCert, untrustedKey := certtest.WritePair(t.TempDir(), untrusted.Issue("shop"))
	good := TLS{CAFile: ca, CertFile: cert, KeyFile: key}

	_, err := r.sink(t, Config{TLS: good}).Deliver(t.Context(), newDelivery())
	require.NoError(t, err)
	got := r.only(t)
	assert.Equal(t, "shop", got.TLS.PeerCertificates[0].Subject.CommonName)
	assert.Equal(t, "HTTP/2.0", got.Proto)
	require.NoError(t, r.sink(t, Config{TLS: good}).CheckHealth(t.Context()))

	_, err = r.sink(t, Config{TLS: good, Proxy: newProxy(t)}).Deliver(t.Context(), newDelivery())
	require.NoError(t, err, "through a proxy")
	assert.Len(t, r.all()[1].TLS.PeerCertificates, 1)

	_, err = r.sink(t, Config{TLS: TLS{CAFile: ca, CertFile: untrustedCert, KeyFile: untrustedKey}}).Deliver(t.Context(), newDelivery())
	assert.Error(t, err)
	assert.Len(t, r.all(), 2)
}

func TestInvalidClientCertificatesAreRefused(t *testing.T) {
	a := certtest.New()
	cert, key := certtest.WritePair(t.TempDir(), a.Issue("one"))
	_, otherKey := certtest.WritePair(t.TempDir(), a.Issue("two"))
	for want, c := range map[string]Config{
		"tls.key_file: is missing":                   {TLS: TLS{CertFile: cert}},
		"tls.cert_file: is missing":                  {TLS: TLS{KeyFile: key}},
		"tls.cert_file: url is plain http":           {URL: "http://a.example", TLS: TLS{CertFile: cert, KeyFile: key}},
		"tls: private key does not match public key": {TLS: TLS{CertFile: cert, KeyFile: otherKey}},
		"tls.cert_file: open /no/cert.pem:":          {TLS: TLS{CertFile: "/no/cert.pem", KeyFile: "/no/key.pem"}},
	} {
		if c.URL == "" {
			c.URL = "https://a.example"
		}
		_, err := New(sinks.Instance{}, c)
		assert.ErrorContains(t, err, want)
	}
}

// The proxy uses TLS itself, and prefers HTTP/2.
func TestRenewedCertificatesAreUsedFromTheNextConnectionOn(t *testing.T) {
	for name, proxy := range map[string]string{"directly": "none", "through a proxy": newProxy(t)} {
		t.Run(name, func(t *testing.T) {
			before, after := certtest.New(), certtest.New()
			both := before.Pool()
			both.AddCert(after.Certificate)
			r, ca := newStrictReceiver(t, func(c *tls.Config) {
				c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, both
				c.NextProtos = []string{"http/1.1"} // connections are idle once the answer is read
			})
			cert, key := certtest.WritePair(t.TempDir(), before.Issue("first"))
			sink := r.sink(t, Config{Proxy: proxy, TLS: TLS{CAFile: ca, CertFile: cert, KeyFile: key}})
			shown := func() string {
				_, err := sink.Deliver(t.Context(), newDelivery())
				require.NoError(t, err)
				requests := r.all()
				return requests[len(requests)-1].TLS.PeerCertificates[0].Subject.CommonName
			}
			require.Equal(t, "first", shown())
			newCert, newKey := certtest.WritePair(t.TempDir(), after.Issue("second"))
			require.NoError(t, os.Rename(newCert, cert))
			require.NoError(t, os.Rename(newKey, key))
			require.Equal(t, "first", shown(), "an open connection is still used")
			closeIdle(sink)
			require.Equal(t, "second", shown())

			require.NoError(t, os.Rename(certtest.Write(t.TempDir(), before.Certificate), ca))
			closeIdle(sink)
			_, err := sink.Deliver(t.Context(), newDelivery())
			require.ErrorAs(t, err, new(x509.UnknownAuthorityError), "the server's authority is no longer trusted")
			require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err))
		})
	}
}

func TestAProxyOverTLSDoesNotGetTheClientCertificate(t *testing.T) {
	trusted := certtest.New()
	r, _ := newStrictReceiver(t, func(c *tls.Config) {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, trusted.Pool()
	})
	cert, key := certtest.WritePair(t.TempDir(), trusted.Issue("shop"))
	var shown atomic.Int64
	proxy := newUnstartedProxy(t, func(r *http.Request) {
		shown.Add(int64(len(r.TLS.PeerCertificates)))
		assert.Equal(t, "Basic c2hvcDpzZWNyZXQ=", r.Header.Get("Proxy-Authorization"))
	})
	proxy.EnableHTTP2 = true
	proxy.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	proxy.StartTLS()
	t.Cleanup(proxy.Close)
	roots := certtest.Write(t.TempDir(), proxy.Certificate()) // httptest's servers share their certificate

	sink := r.sink(t, Config{
		Proxy: strings.Replace(proxy.URL, "https://", "https://shop:secret@", 1),
		TLS:   TLS{CAFile: roots, CertFile: cert, KeyFile: key},
	})
	require.NoError(t, sink.CheckHealth(t.Context()))
	_, err := sink.Deliver(t.Context(), newDelivery())
	require.NoError(t, err)
	r.only(t)
	assert.Zero(t, shown.Load())
}

func TestInvalidProxiesAreRefused(t *testing.T) {
	for proxy, want := range map[string]string{
		"proxy.example:3128":        `proxy: scheme "proxy.example" is not offered`,
		"ftp://proxy.example":       `proxy: scheme "ftp" is not offered`,
		"http://":                   "proxy: has no host",
		"http://u:pass/word@host:1": "proxy: cannot be parsed; percent-encode",
		"http://proxy:port":         "proxy: cannot be parsed",
	} {
		_, err := New(sinks.Instance{}, Config{URL: "https://a.example", Proxy: proxy})
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "pass/")
	}
	_, err := New(sinks.Instance{}, Config{URL: "https://{{.Metadata.host}}/", Proxy: "http://u:secret@proxy.example"})
	require.ErrorContains(t, err, "proxy: the guard cannot check the connections of http://proxy.example; use proxy: none, or guard.mode: off")
	for _, c := range []Config{{Proxy: "none"}, {Proxy: "http://proxy.example", Guard: Guard{Mode: "off"}}} {
		c.URL = "https://{{.Metadata.host}}/"
		newSink(t, c)
	}
}

// The receivers close the connection in the middle of an answer.
func TestHalfClosedConnections(t *testing.T) {
	const accepted = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
	for name, tt := range map[string]struct {
		answer string
		class  sinks.Class
		taken  bool
	}{
		"sends nothing":            {answer: "", class: sinks.ClassTransient},
		"stops in the status":      {answer: "HTTP/1.1 20", class: sinks.ClassTransient},
		"stops in the headers":     {answer: "HTTP/1.1 202 Accepted\r\nX-A: b", class: sinks.ClassTransient},
		"uses another protocol":    {answer: "220 mail.example ESMTP\r\n", class: sinks.ClassTransient},
		"answers":                  {answer: accepted, taken: true},
		"answers with half a body": {answer: "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", taken: true},
		"refuses with half a body": {answer: "HTTP/1.1 400 Bad Request\r\nContent-Length: 10\r\n\r\nhalf", class: sinks.ClassPermanent},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newSink(t, Config{URL: "http://" + halfClosing(t, tt.answer), Timeout: 5 * time.Second}).Deliver(t.Context(), newDelivery())
			if tt.taken {
				require.NoError(t, err)
				return
			}
			assert.Equal(t, tt.class, sinktest.Class(err), "%v", err)
		})
	}
}

// halfClosing returns the address of a server that reads a request, sends an answer, and closes only
// its own direction.
func halfClosing(t *testing.T, answer string) string {
	t.Helper()
	return servertest.Serve(t, func(conn net.Conn) {
		if request, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			_, _ = io.Copy(io.Discard, request.Body)
		}
		_, _ = io.WriteString(conn, answer)
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
	})
}

// The answer comes while the client is still writing the request.
func TestTheStatusOfALargePayloadThatIsRefusedEarlyIsKept(t *testing.T) {
	r := newTLSRefusing(t)
	d := newDelivery()
	d.Payload = bytes.Repeat([]byte("x"), 8<<20)
	_, err := r.Deliver(t.Context(), d)
	assert.Equal(t, sinks.ClassPermanent, sinktest.Class(err), "%v", err)
	assert.ErrorContains(t, err, "413 Request Entity Too Large")
}

// newTLSRefusing returns a sink for an HTTP/2 server that does not read bodies.
func newTLSRefusing(t *testing.T) *Sink {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(413) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return newSink(t, Config{URL: server.URL, TLS: TLS{CAFile: certtest.Write(t.TempDir(), server.Certificate())}})
}
