// Package kindtest is the suite that each kind of the module passes with its real broker.
package kindtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers/brokertest"
	"github.com/waybill-go/waybill/sinks/publisher"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

const (
	// Patience is for all that a test waits for; a broker's starts are most of it.
	Patience = 2 * time.Minute
	// timeout is the settings' own, for a broker that does not answer.
	timeout = time.Second
)

// Subject is the kind under test, and its broker.
type Subject struct {
	Kind   sinks.Kind
	Server *brokertest.Broker
	// Settings are those of a sink for the broker at url, without a timeout.
	Settings func(url string) string
	// Watch begins to note what is published, and returns what reads it: oldest first, also
	// after the broker was killed and started again.
	Watch func(t *testing.T) func() []*message.Message
	// Refused makes a delivery that the broker never takes.
	Refused func(n int) *notification.Delivery
	// Encrypted is the broker's URL with TLS, for a kind that begins with it. nil for one that
	// does not.
	Encrypted func(url string) string
}

// Run tests the subject.
func Run(t *testing.T, s Subject) {
	t.Run("the sink keeps the contract", s.testContract)
	t.Run("a wrong password is unavailable", s.testPassword)
	t.Run("a broker that says nothing is unavailable", s.testSilence)
	t.Run("what is delivered while the broker dies is kept in order", s.testDeath)
	t.Run("connections are opened by the program's own dialer", s.testDial)
	if s.Encrypted != nil {
		t.Run("the broker is verified", s.testTLS)
	}
}

// New makes a sink of settings in YAML, which the test closes.
func New(t *testing.T, kind sinks.Kind, in sinks.Instance, settings string) sinks.Sink {
	t.Helper()
	sink := build(t, kind, in, settings)
	t.Cleanup(func() { require.NoError(t, sink.(sinks.Closer).Close(context.WithoutCancel(t.Context()))) })
	return sink
}

func build(t *testing.T, kind sinks.Kind, in sinks.Instance, settings string) sinks.Sink {
	t.Helper()
	sink, err := kind.Build(in, Decode(t, settings))
	require.NoError(t, err)
	return sink
}

// Decode decodes settings in YAML.
func Decode(t *testing.T, settings string) func(any) error {
	t.Helper()
	var document yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(settings), &document), settings)
	return document.Content[0].Decode
}

// Class is the class of an error.
func Class(err error) sinks.Class {
	class, _ := sinks.Classify(err)
	return class
}

func (s Subject) settings(url string) string {
	return s.Settings(url) + "\ntimeout: " + timeout.String()
}

func (s Subject) testContract(t *testing.T) {
	sinkAt := func(t *testing.T, url string) sinks.Sink {
		return build(t, s.Kind, sinks.Instance{Name: "contract"}, s.settings(url))
	}
	var published func() []*message.Message
	sinktest.Run(t, sinktest.Subject{
		New: func(t *testing.T) sinks.Sink {
			published = s.Watch(t)
			return sinkAt(t, s.Server.URL)
		},
		Received: func(t *testing.T) []notification.Envelope { return Envelopes(published()) },
		Refused:  s.Refused,
		Broken: map[sinks.Class]func(*testing.T) sinks.Sink{
			sinks.ClassUnavailable: func(t *testing.T) sinks.Sink { return sinkAt(t, at(t, s.Server.URL, unreachable(t))) },
		},
		Stuck:    func(t *testing.T) sinks.Sink { return sinkAt(t, at(t, s.Server.URL, silent(t))) },
		Receipts: true,
	})
}

// Envelopes reads messages back. What the publisher sink's own tests read back is left out.
func Envelopes(messages []*message.Message) (es []notification.Envelope) {
	for _, m := range messages {
		es = append(es, notification.Envelope{
			ID:       m.UUID,
			Type:     m.Metadata.Get(publisher.MetadataType),
			Key:      m.Metadata.Get(publisher.MetadataKey),
			Metadata: notification.Metadata(m.Metadata),
			Payload:  m.Payload,
		})
	}
	return es
}

// at is the URL with another address.
func at(t *testing.T, broker, address string) string {
	t.Helper()
	u, err := url.Parse(broker)
	require.NoError(t, err)
	u.Host = address
	return u.String()
}

func unreachable(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// silent takes connections, and says nothing.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	taken := make(chan []net.Conn, 1)
	go func() {
		var conns []net.Conn
		for {
			conn, err := l.Accept()
			if err != nil {
				taken <- conns
				return
			}
			conns = append(conns, conn)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		for _, conn := range <-taken {
			_ = conn.Close()
		}
	})
	return l.Addr().String()
}

func (s Subject) testPassword(t *testing.T) {
	wrong := strings.Replace(s.Server.URL, "hunter22", "hunter23", 1)
	require.NotEqual(t, s.Server.URL, wrong)
	sink := New(t, s.Kind, sinks.Instance{}, s.Settings(wrong)) // a broker may take its time to refuse
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.Equal(t, sinks.ClassUnavailable, Class(err), "%v", err)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.NotContains(t, err.Error(), "hunter2")
}

// testSilence freezes the broker: no connection breaks, and no answer comes.
func (s Subject) testSilence(t *testing.T) {
	s.Watch(t)
	sink := New(t, s.Kind, sinks.Instance{}, s.settings(s.Server.URL))
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.NoError(t, err)

	require.NoError(t, s.Server.Freeze())
	for err == nil { // it may answer once more while the signal is under way
		_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(2))
	}
	require.NoError(t, s.Server.Thaw())
	require.Equal(t, sinks.ClassUnavailable, Class(err), "%v", err)

	require.Eventually(t, func() bool {
		_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(3))
		return err == nil
	}, Patience, 20*time.Millisecond, "the sink does not recover")
}

// testDeath kills the broker between deliveries of one key and in the middle of some, which
// are made again as the engine does it.
func (s Subject) testDeath(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	published := s.Watch(t)
	sink := New(t, s.Kind, sinks.Instance{}, s.settings(s.Server.URL))
	var sent []string
	killed := make(chan error, 1)
	deliver := func(n int) (failures int) {
		d := sinktest.NewDelivery(n)
		d.Key = "one"
		sent = append(sent, d.ID)
		for {
			_, err := sink.Deliver(ctx, d)
			if err == nil {
				return failures
			}
			require.NoError(t, ctx.Err())
			require.Equal(t, sinks.ClassUnavailable, Class(err), "%v", err)
			if failures++; failures == 1 {
				require.NoError(t, <-killed)
				require.NoError(t, s.Server.Start(ctx))
			}
		}
	}
	const half, all = 40, 80
	for n := range half {
		deliver(n)
	}
	go func() { killed <- s.Server.Kill() }()
	failures := 0
	for n := half; failures == 0 || n < all; n++ { // one of them meets the end
		failures += deliver(n)
	}

	var got []string
	seen := make(map[string]bool)
	for _, m := range published() {
		if !seen[m.UUID] {
			seen[m.UUID] = true
			got = append(got, m.UUID)
		}
	}
	require.Equal(t, sent, got)
}

// testTLS has the broker behind a proxy that takes TLS off.
func (s Subject) testTLS(t *testing.T) {
	s.Watch(t)
	u, err := url.Parse(s.Server.URL)
	require.NoError(t, err)
	authority, key := Certificate(t)
	pair, err := tls.LoadX509KeyPair(authority, key)
	require.NoError(t, err)
	address := takeTLSOff(t, pair, u.Host)
	settings := s.settings(s.Encrypted(at(t, s.Server.URL, address)))

	_, err = New(t, s.Kind, sinks.Instance{}, settings).Deliver(t.Context(), sinktest.NewDelivery(1))
	require.Equal(t, sinks.ClassUnavailable, Class(err), "%v", err)
	var unknown *tls.CertificateVerificationError
	require.ErrorAs(t, err, &unknown)

	trusting := settings + "\ntls: {ca_file: " + authority + "}"
	for _, in := range []sinks.Instance{{}, {Dial: (&net.Dialer{}).DialContext}} {
		_, err = New(t, s.Kind, in, trusting).Deliver(t.Context(), sinktest.NewDelivery(2))
		require.NoError(t, err)
	}
	wrongName := settings + "\ntls: {ca_file: " + authority + ", server_name: other.test}"
	_, err = New(t, s.Kind, sinks.Instance{}, wrongName).Deliver(t.Context(), sinktest.NewDelivery(3))
	require.Equal(t, sinks.ClassUnavailable, Class(err), "%v", err)
}

// Certificate writes a certificate for 127.0.0.1, which is its own authority, and its key.
func Certificate(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	public, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	write := func(name, kind string, contents []byte) string {
		file := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: contents}), 0o600))
		return file
	}
	return write("certificate.pem", "CERTIFICATE", public), write("key.pem", "PRIVATE KEY", secret)
}

// takeTLSOff passes what comes encrypted on to an address in the clear.
func takeTLSOff(t *testing.T, pair tls.Certificate, to string) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { pass(conn, to) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	return l.Addr().String()
}

func pass(conn net.Conn, to string) {
	defer conn.Close()
	broker, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	go func() {
		defer broker.Close()
		_, _ = io.Copy(broker, conn)
	}()
	_, _ = io.Copy(conn, broker)
}

func (s Subject) testDial(t *testing.T) {
	s.Watch(t)
	dialled := ""
	sink := New(t, s.Kind, sinks.Instance{Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		u, err := url.Parse(s.Server.URL)
		require.NoError(t, err)
		dialled = u.Host
		return (&net.Dialer{}).DialContext(ctx, network, u.Host)
	}}, s.settings(at(t, s.Server.URL, "192.0.2.1:1")))
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.NoError(t, err)
	require.NotEmpty(t, dialled)
}
