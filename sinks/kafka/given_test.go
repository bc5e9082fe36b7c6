package kafka_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/certtest"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/connection"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

func TestAllConnectionsAreMadeByTheProgramsDialer(t *testing.T) {
	t.Parallel()
	var connections atomic.Int64
	cluster := kafkatest.Fake(t, counting(&connections), kfake.SeedTopics(1, "orders"))
	var dialled atomic.Int64
	in := sinks.Instance{Name: "events", Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if deadline, ok := ctx.Deadline(); assert.True(t, ok) {
			assert.LessOrEqual(t, time.Until(deadline), kafka.DefaultTimeout/10)
		}
		dialled.Add(1)
		if address == "kafka.invalid:9092" {
			address = cluster.Brokers[0]
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	for _, topic := range []string{"orders", "{{.Key}}"} {
		sink, err := kafka.New(in, kafka.Config{Brokers: []string{"kafka.invalid:9092"}, Topic: topic})
		require.NoError(t, err)
		_, err = sink.Deliver(t.Context(), delivery("orders"))
		assert.NoError(t, err)
		assert.NoError(t, sink.CheckHealth(t.Context()))
		assert.NoError(t, sink.Close(t.Context()))
	}
	assert.Equal(t, connections.Load(), dialled.Load())
}

func TestADialerThatHangsTimesOut(t *testing.T) {
	t.Parallel()
	in := sinks.Instance{Name: "events", Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	sink, err := kafka.New(in, kafka.Config{Brokers: []string{"kafka.invalid:9092"}, Topic: "orders", Timeout: time.Second})
	require.NoError(t, err)
	_, err = sink.Deliver(t.Context(), delivery("k"))
	assertClass(t, sinks.ClassUnavailable, err)
	require.NoError(t, sink.Close(t.Context()))
}

func TestTheProgramsTLSConfigIsUsed(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		authority := certtest.New()
		cluster := kafkatest.Fake(t,
			kfake.TLS(&tls.Config{
				Certificates: []tls.Certificate{authority.Issue("kafka.test", "127.0.0.1", "::1")},
				ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: authority.Pool(),
			}),
			kfake.SeedTopics(1, "orders"))
		mine := &tls.Config{RootCAs: authority.Pool(), Certificates: []tls.Certificate{authority.Issue("shop")}}
		sink := newSink(t, cluster, "orders", client, func(c *kafka.Config) { c.TLSConfig = mine })
		mine.RootCAs = x509.NewCertPool() // New has copied it
		_, err := sink.Deliver(t.Context(), delivery("k"))
		assert.NoError(t, err)

		c := kafka.Config{Brokers: cluster.Brokers, Topic: "orders", TLSConfig: mine, TLS: connection.TLS{Enabled: true}}
		assert.NoError(t, c.Validate())
		c.TLS.CAFile = "ca.pem"
		assert.ErrorContains(t, c.Validate(), "tls: the program has a TLSConfig")
	})
}

func TestRenewedCertificatesAreUsedFromTheNextConnectionOn(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		authority, other := certtest.New(), certtest.New()
		cluster := kafkatest.Fake(t,
			kfake.TLS(&tls.Config{
				Certificates: []tls.Certificate{authority.Issue("kafka.test", "127.0.0.1", "::1")},
				ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: authority.Pool(),
			}),
			kfake.SeedTopics(1, "orders"))
		folder := t.TempDir()
		renew := func(name string, text []byte) {
			require.NoError(t, os.WriteFile(filepath.Join(folder, "new"), text, 0o600))
			require.NoError(t, os.Rename(filepath.Join(folder, "new"), filepath.Join(folder, name)))
		}
		renewPair := func(certificate tls.Certificate) {
			cert, key := certtest.EncodePair(certificate)
			renew("cert", cert)
			renew("key", key)
		}
		renew("ca", certtest.Encode(other.Certificate))
		renewPair(other.Issue("shop"))
		sink := newSink(t, cluster, "orders", client, func(c *kafka.Config) {
			c.TLS = connection.TLS{Enabled: true, CAFile: filepath.Join(folder, "ca"), CertFile: filepath.Join(folder, "cert"), KeyFile: filepath.Join(folder, "key")}
		})
		assertUnavailable(t, sink.CheckHealth(t.Context()), "check tls.ca_file")
		renew("ca", certtest.Encode(authority.Certificate))
		assertUnavailable(t, sink.CheckHealth(t.Context()), "check tls.cert_file")
		renewPair(authority.Issue("shop"))
		assert.NoError(t, sink.CheckHealth(t.Context()))
		_, err := sink.Deliver(t.Context(), delivery("k"))
		assert.NoError(t, err)
	})
}

// acceptToken makes the cluster accept one token, as Apache Kafka does. kfake does not support
// OAUTHBEARER.
func acceptToken(t *testing.T, cluster *kafkatest.Cluster, token *atomic.Value) {
	t.Helper()
	cluster.Fake.ControlKey(int16(kmsg.SASLHandshake), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.Fake.KeepControl()
		assert.Equal(t, "OAUTHBEARER", r.(*kmsg.SASLHandshakeRequest).Mechanism)
		return r.ResponseKind(), nil, true
	})
	cluster.Fake.ControlKey(int16(kmsg.SASLAuthenticate), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.Fake.KeepControl()
		response := r.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		message := string(r.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes) // RFC 7628, section 3.1
		if !strings.HasPrefix(message, "n,,\x01auth=Bearer "+token.Load().(string)+"\x01") {
			response.ErrorCode = kerr.SaslAuthenticationFailed.Code
			response.ErrorMessage = kmsg.StringPtr("who is " + message + "?")
		}
		return response, nil, true
	})
}

func TestATokenIsReadForEachConnection(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		cluster := kafkatest.Fake(t, kfake.SeedTopics(1, "orders"))
		var wanted atomic.Value
		wanted.Store("first-token")
		acceptToken(t, cluster, &wanted)
		file := filepath.Join(t.TempDir(), "token")
		write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
		sink := newSink(t, cluster, "orders", client, func(c *kafka.Config) {
			c.SASL = connection.SASL{Mechanism: "oauthbearer", TokenFile: file}
		})
		assertUnavailable(t, sink.CheckHealth(t.Context()), "sasl.token_file")
		write(" \n")
		assertUnavailable(t, sink.CheckHealth(t.Context()), "is empty")
		write("first-token\x01auth=Bearer x")
		assertUnavailable(t, sink.CheckHealth(t.Context()), "does not contain exactly one token")

		write("first-token\n")
		_, err := sink.Deliver(t.Context(), delivery("k"))
		require.NoError(t, err)
		wanted.Store("second-token")
		err = sink.CheckHealth(t.Context())
		assertUnavailable(t, err, "or the token")
		assert.NotContains(t, err.Error(), "first-token")
		write("second-token\n")
		assert.NoError(t, sink.CheckHealth(t.Context()))
	})
}

// tokenFunc is a TokenProvider that calls a function.
type tokenFunc func() (connection.Token, error)

func (f tokenFunc) Token(context.Context) (connection.Token, error) { return f() }

func TestTheProgramProvidesTokens(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		cluster := kafkatest.Fake(t, kfake.SeedTopics(1, "orders"))
		var wanted atomic.Value
		wanted.Store("my-token\x01logicalCluster=lkc-1")
		acceptToken(t, cluster, &wanted)
		sink := newSink(t, cluster, "orders", client, func(c *kafka.Config) {
			c.TokenProvider = tokenFunc(func() (connection.Token, error) {
				return connection.Token{Text: "my-token", Extensions: map[string]string{"logicalCluster": "lkc-1"}}, nil
			})
		})
		_, err := sink.Deliver(t.Context(), delivery("k"))
		assert.NoError(t, err)

		sink = newSink(t, cluster, "orders", client, func(c *kafka.Config) {
			c.TokenProvider = tokenFunc(func() (connection.Token, error) { return connection.Token{}, errors.New("no token today") })
		})
		_, err = sink.Deliver(t.Context(), delivery("k"))
		assertUnavailable(t, err, "no token today")
	})
}

func TestContradictionsAboutTokensAreNamed(t *testing.T) {
	t.Parallel()
	given := tokenFunc(nil)
	for _, c := range []struct {
		sasl     connection.SASL
		provider connection.TokenProvider
		want     string
	}{
		{connection.SASL{}, given, ""},
		{connection.SASL{Mechanism: "OAUTHBEARER"}, given, ""},
		{connection.SASL{Mechanism: "OAUTHBEARER", TokenFile: "/run/token"}, nil, ""},
		{connection.SASL{Mechanism: "OAUTHBEARER"}, nil, "sasl.token_file: is missing"},
		{connection.SASL{Mechanism: "OAUTHBEARER", TokenFile: "/run/token"}, given, "sasl.token_file: the program already has a TokenProvider"},
		{connection.SASL{Mechanism: "OAUTHBEARER", TokenFile: "/run/token", User: "u"}, nil, "sasl.user, sasl.password: OAUTHBEARER identifies"},
		{connection.SASL{Mechanism: "PLAIN", User: "u", Password: "p", TokenFile: "/run/token"}, nil, "a token is for OAUTHBEARER only"},
		{connection.SASL{Mechanism: "PLAIN", User: "u", Password: "p"}, given, "a token is for OAUTHBEARER only"},
		{connection.SASL{TokenFile: "/run/token"}, nil, "sasl.mechanism: is missing"},
	} {
		config := kafka.Config{Brokers: []string{"a:1"}, Topic: "t", SASL: c.sasl, TokenProvider: c.provider}
		if err := config.Validate(); c.want == "" {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, c.want)
		}
	}
}
