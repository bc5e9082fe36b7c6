package pubsub_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/gcp/pubsub"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// proxy is in front of a service. It counts connections, and can cut them, or swallow what the service answers.
type proxy struct {
	address string
	made    atomic.Int32
	silent  atomic.Bool

	mu   sync.Mutex
	open []net.Conn
}

func inFront(t *testing.T, s *service) *proxy {
	p := new(proxy)
	p.address = servertest.Serve(t, func(client net.Conn) {
		p.made.Add(1)
		server, err := net.Dial("tcp", s.address)
		if err != nil {
			return
		}
		defer server.Close()
		p.mu.Lock()
		p.open = append(p.open, client)
		p.mu.Unlock()
		go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
		silent := p.silent.Load() // for as long as the connection lives
		for part := make([]byte, 32<<10); ; {
			n, err := server.Read(part)
			if err != nil {
				return
			}
			if silent || p.silent.Load() {
				silent = true
				continue
			}
			if _, err := client.Write(part[:n]); err != nil {
				return
			}
		}
	})
	return p
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.open {
		_ = c.Close()
	}
	p.open = nil
}

func TestALostConnectionIsUnavailableAndMadeAgain(t *testing.T) {
	s := start(t)
	p := inFront(t, s)
	sink := newSink(t, sinks.Instance{}, "topic: orders\nproject: shop\ntimeout: 1m\nendpoint: http://"+p.address)
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.NoError(t, err)
	s.answers(func(context.Context, *pubsubpb.PublishRequest) error {
		p.cut() // while it is being answered
		return nil
	})
	_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(2))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	s.answers(nil)
	require.Eventually(t, func() bool {
		_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(2))
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}

func TestASilentServiceIsUnavailableAndGetsNewConnections(t *testing.T) {
	s := start(t)
	p := inFront(t, s)
	sink := newSink(t, sinks.Instance{}, "topic: orders\nproject: shop\ntimeout: 2s\nendpoint: http://"+p.address)
	require.Eventually(t, func() bool { // a slow machine may need several attempts
		_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
		return err == nil
	}, time.Minute, time.Millisecond)
	p.silent.Store(true)
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(2))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	p.silent.Store(false) // the old connections stay silent
	require.Eventually(t, func() bool {
		_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(2))
		return err == nil
	}, time.Minute, time.Millisecond, "%v", err)
}

func TestTheProgramsDialerOpensTheConnections(t *testing.T) {
	s := start(t)
	var dialled atomic.Int32
	in := sinks.Instance{Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		dialled.Add(1)
		return new(net.Dialer).DialContext(ctx, network, s.address)
	}}
	_, err := newSink(t, in, "topic: orders\nproject: shop\nendpoint: http://127.0.0.1:1").Deliver(t.Context(), sinktest.NewDelivery(1))
	require.NoError(t, err)
	require.Positive(t, dialled.Load())
}

// key returns the file of a service account with a new key.
func key(t *testing.T, email string) []byte {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	content, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": project, "private_key_id": "1", "client_email": email,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	require.NoError(t, err)
	return content
}

// claims returns the payload of a token.
func claims(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	text, _ := base64.RawURLEncoding.DecodeString(parts[1])
	return string(text)
}

func TestCredentialsAreReadAgainAfterARefusal(t *testing.T) {
	s := withTLS(t, func(token string) bool { return strings.Contains(claims(token), "good@shop") })
	file := filepath.Join(t.TempDir(), "key.json")
	settings := "topic: orders\nendpoint: " + s.address + "\ncredentials_file: " + file // the project is that of the key
	sink := newSink(t, sinks.Instance{}, settings)
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.ErrorIs(t, err, pubsub.ErrCredentials)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)

	bad := key(t, "bad@shop")
	require.NoError(t, os.WriteFile(file, bad, 0o600))
	_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	require.ErrorContains(t, err, "check credentials_file")
	require.NoError(t, os.WriteFile(file, key(t, "good@shop"), 0o600))
	_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.NoError(t, err)

	require.NoError(t, os.WriteFile(file, []byte("{}"), 0o600))
	_, err = newSink(t, sinks.Instance{}, settings).Deliver(t.Context(), sinktest.NewDelivery(1))
	require.ErrorContains(t, err, "is not a file of credentials")
}

func TestAnotherServiceAccountIsImpersonated(t *testing.T) {
	s := withTLS(t, func(token string) bool { return token == "token-of-publisher" })
	var asked atomic.Value
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.URL.Path + " " + claims(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")))
		if strings.Contains(r.URL.Path, "stranger") {
			http.Error(w, `{"error":{"code":403,"message":"Permission 'iam.serviceAccounts.getAccessToken' denied"}}`, http.StatusForbidden)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"accessToken": "token-of-publisher", "expireTime": time.Now().Add(time.Hour).Format(time.RFC3339)})
	}))
	t.Cleanup(tokens.Close)
	in := sinks.Instance{HTTPClient: &http.Client{Transport: to(tokens.URL)}}
	file := filepath.Join(t.TempDir(), "key.json")
	require.NoError(t, os.WriteFile(file, key(t, "base@shop"), 0o600))
	settings := "topic: orders\nendpoint: " + s.address + "\ncredentials_file: " + file + "\nimpersonate: "
	_, err := newSink(t, in, settings+"publisher@shop").Deliver(t.Context(), sinktest.NewDelivery(1))
	require.NoError(t, err)
	require.Contains(t, asked.Load(), "serviceAccounts/publisher@shop:generateAccessToken")
	require.Contains(t, asked.Load(), "base@shop")

	_, err = newSink(t, in, settings+"stranger@shop").Deliver(t.Context(), sinktest.NewDelivery(1))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	require.ErrorContains(t, err, "getAccessToken")
}

// to sends all requests to one server.
type to string

func (server to) RoundTrip(r *http.Request) (*http.Response, error) {
	u, err := url.Parse(string(server))
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = u.Scheme, u.Host
	return http.DefaultTransport.RoundTrip(r)
}
