// Package kindtest is the conformance suite of this module's kinds, with real brokers.
package kindtest

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/url"
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
	"github.com/waybill-go/waybill/sinks/internal/certtest"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/publisher"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

const (
	// Patience limits each wait of a test, such as for the start of a broker.
	Patience = 2 * time.Minute
	// timeout is the setting timeout of the sinks, and silence that of sinks whose broker never answers.
	timeout = 15 * time.Second
	silence = time.Second
	// impatience is the setting of a sink whose delivery is cancelled. The client of Redis waits so long nevertheless.
	impatience = 5 * time.Second
)

// Subject is the kind under test, and its broker.
type Subject struct {
	Kind   sinks.Kind
	Server *brokertest.Broker
	// Settings returns the settings of a sink for the broker at url, without timeout.
	Settings func(url string) string
	// Watch begins to record published messages, and returns a function that returns them,
	// oldest first. It survives a kill and restart of the broker.
	Watch func(t *testing.T) func() []*message.Message
	// Refused makes the n-th delivery, which the broker never accepts.
	Refused func(n int) *notification.Delivery
	// Encrypted returns the broker's URL with TLS. nil means that connections of the kind do not
	// begin with TLS.
	Encrypted func(url string) string
}

// Run tests the subject.
func Run(t *testing.T, s Subject) {
	t.Run("the sink passes sinktest", s.testContract)
	t.Run("a wrong password is unavailable", s.testPassword)
	t.Run("a broker that does not answer is unavailable", s.testSilence)
	t.Run("deliveries stay in order when the broker dies", s.testDeath)
	t.Run("the program's dialer opens the connections", s.testDial)
	t.Run("payloads are encoded", s.testEncoding)
	if s.Encrypted != nil {
		t.Run("the broker is verified", s.testTLS)
	}
}

// New makes a sink from settings in YAML, and closes it when the test ends.
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

func (s Subject) settings(url string, timeout time.Duration) string {
	return s.Settings(url) + "\ntimeout: " + timeout.String()
}

func (s Subject) testContract(t *testing.T) {
	sinkAt := func(t *testing.T, url string, timeout time.Duration) sinks.Sink {
		return build(t, s.Kind, sinks.Instance{Name: "contract"}, s.settings(url, timeout))
	}
	var published func() []*message.Message
	sinktest.Run(t, sinktest.Subject{
		New: func(t *testing.T) sinks.Sink {
			published = s.Watch(t)
			return sinkAt(t, s.Server.URL, timeout)
		},
		Received: func(t *testing.T) []notification.Envelope { return Envelopes(published()) },
		Refused:  s.Refused,
		Broken: map[sinks.Class]func(*testing.T) sinks.Sink{
			sinks.ClassUnavailable: func(t *testing.T) sinks.Sink { return sinkAt(t, at(t, s.Server.URL, servertest.Unused), timeout) },
		},
		Stuck:    func(t *testing.T) sinks.Sink { return sinkAt(t, at(t, s.Server.URL, servertest.Silent(t)), impatience) },
		Receipts: true,
	})
}

// Envelopes converts messages to envelopes. It leaves out fields that the tests of the publisher
// sink check.
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

// at returns a broker's URL with another address.
func at(t *testing.T, broker, address string) string {
	t.Helper()
	u, err := url.Parse(broker)
	require.NoError(t, err)
	u.Host = address
	return u.String()
}

func (s Subject) testPassword(t *testing.T) {
	wrong := strings.Replace(s.Server.URL, "hunter22", "hunter23", 1)
	require.NotEqual(t, s.Server.URL, wrong)
	sink := New(t, s.Kind, sinks.Instance{}, s.Settings(wrong)) // without the short timeout, because a broker may refuse slowly
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.NotContains(t, err.Error(), "hunter2")
}

// testSilence freezes the broker: connections stay open, but there are no answers.
func (s Subject) testSilence(t *testing.T) {
	s.Watch(t)
	sink := New(t, s.Kind, sinks.Instance{}, s.settings(s.Server.URL, silence))
	answers := func() bool {
		_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
		return err == nil
	}
	require.Eventually(t, answers, Patience, 20*time.Millisecond)

	require.NoError(t, s.Server.Freeze())
	var err error
	for err == nil { // the broker may still answer until the signal arrives
		_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(2))
	}
	require.NoError(t, s.Server.Thaw())
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)

	require.Eventually(t, answers, Patience, 20*time.Millisecond, "the sink should recover")
}

// testDeath kills the broker during deliveries of one key, and retries them as the engine does.
func (s Subject) testDeath(t *testing.T) {
	published := s.Watch(t)
	sink := New(t, s.Kind, sinks.Instance{}, s.settings(s.Server.URL, silence))
	var sent []string
	killed := make(chan error, 1)
	killing, restarted := false, false
	deliver := func(n int) {
		d := sinktest.NewDelivery(n)
		d.Key = "one"
		sent = append(sent, d.ID)
		begun := time.Now()
		for {
			_, err := sink.Deliver(t.Context(), d)
			if err == nil {
				return
			}
			require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
			require.Less(t, time.Since(begun), 2*Patience, "the last delivery: %v\nthe broker: %s", err, s.Server.LastLines())
			if killing && !restarted {
				restarted = true
				require.NoError(t, <-killed)
				require.NoError(t, s.Server.Start(t.Context()))
			}
			time.Sleep(50 * time.Millisecond) // so that the broker can start
		}
	}
	const half, all = 40, 80
	for n := range half {
		deliver(n)
	}
	killing = true
	go func() { killed <- s.Server.Kill() }()
	for n := half; !restarted || n < all; n++ { // until one of them has failed
		deliver(n)
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

// testTLS connects to the broker through a proxy that decrypts TLS.
func (s Subject) testTLS(t *testing.T) {
	s.Watch(t)
	u, err := url.Parse(s.Server.URL)
	require.NoError(t, err)
	issuer := certtest.New()
	authority := certtest.Write(t.TempDir(), issuer.Certificate)
	address := decrypt(t, issuer.Issue("127.0.0.1"), u.Host)
	settings := s.settings(s.Encrypted(at(t, s.Server.URL, address)), timeout)

	_, err = New(t, s.Kind, sinks.Instance{}, settings).Deliver(t.Context(), sinktest.NewDelivery(1))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	var unknown *tls.CertificateVerificationError
	require.ErrorAs(t, err, &unknown)

	trusting := settings + "\ntls: {ca_file: " + authority + "}"
	for _, in := range []sinks.Instance{{}, {Dial: (&net.Dialer{}).DialContext}} {
		_, err = New(t, s.Kind, in, trusting).Deliver(t.Context(), sinktest.NewDelivery(2))
		require.NoError(t, err)
	}
	wrongName := settings + "\ntls: {ca_file: " + authority + ", server_name: other.test}"
	_, err = New(t, s.Kind, sinks.Instance{}, wrongName).Deliver(t.Context(), sinktest.NewDelivery(3))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
}

// decrypt starts a proxy that decrypts TLS and forwards to an address, and returns its address.
func decrypt(t *testing.T, pair tls.Certificate, to string) string {
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
	}}, s.settings(at(t, s.Server.URL, "192.0.2.1:1"), timeout))
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.NoError(t, err)
	require.NotEmpty(t, dialled)
}
