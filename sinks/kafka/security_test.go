package kafka_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/certtest"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/connection"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

const user, password = "shop", "p=ss, w\u00f6rd"

var mechanisms = []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}

func TestEachMechanismAcceptsTheRightPassword(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		for _, mechanism := range mechanisms {
			for _, named := range []string{mechanism, strings.ToLower(mechanism)} {
				t.Run(named, func(t *testing.T) {
					cluster := kafkatest.Fake(t, kfake.EnableSASL(), kfake.Superuser(mechanism, user, password), kfake.SeedTopics(1, "orders"))
					sink := newSink(t, cluster, "orders", client, func(c *kafka.Config) {
						c.SASL = connection.SASL{Mechanism: named, User: user, Password: password}
					})
					receipt, err := sink.Deliver(t.Context(), delivery("k"))
					require.NoError(t, err)
					assert.Equal(t, "kafka orders/0@0", string(receipt))
					assert.NoError(t, sink.CheckHealth(t.Context()))
				})
			}
		}
	})
}

func TestWrongCredentialsAreUnavailable(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		for _, mechanism := range mechanisms {
			for name, wrong := range map[string]connection.SASL{
				"password": {Mechanism: mechanism, User: user, Password: "wrong-secret"},
				"user":     {Mechanism: mechanism, User: "nobody", Password: password},
			} {
				t.Run(mechanism+" "+name, func(t *testing.T) {
					cluster := kafkatest.Fake(t, kfake.EnableSASL(), kfake.Superuser(mechanism, user, password), kfake.SeedTopics(1, "orders"))
					sink := newSink(t, cluster, "orders", client, func(c *kafka.Config) { c.SASL = wrong })
					_, err := sink.Deliver(t.Context(), delivery("k"))
					assertUnavailable(t, err, "sasl.user, sasl.password and sasl.mechanism")
					assertUnavailable(t, sink.CheckHealth(t.Context()), "sasl.user, sasl.password and sasl.mechanism")
				})
			}
		}
	})
}

// Brokers since Kafka 2.0 return a reason; the fake broker only closes the connection.
func TestTheErrorHasTheBrokersReasonForRefusingTheCredentials(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		cluster := kafkatest.Fake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", user, password), kfake.SeedTopics(1, "orders"))
		cluster.Fake.ControlKey(int16(kmsg.SASLAuthenticate), func(r kmsg.Request) (kmsg.Response, error, bool) {
			cluster.Fake.KeepControl()
			response := r.ResponseKind().(*kmsg.SASLAuthenticateResponse)
			response.ErrorCode = kerr.SaslAuthenticationFailed.Code
			response.ErrorMessage = kmsg.StringPtr("Authentication failed: Invalid username or password wrong-secret")
			return response, nil, true
		})
		sink := newSink(t, cluster, "orders", client, func(c *kafka.Config) {
			c.SASL = connection.SASL{Mechanism: "PLAIN", User: user, Password: "wrong-secret"}
		})
		_, err := sink.Deliver(t.Context(), delivery("k"))
		assertUnavailable(t, err, "the brokers refuse sasl.user and sasl.password")
		assert.ErrorContains(t, err, "Invalid username or password ***")
		assert.NotContains(t, err.Error(), "wrong-secret")
	})
}

func TestABrokerWithoutTheMechanismIsUnavailable(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		cluster := kafkatest.Fake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", user, password), kfake.SeedTopics(1, "orders"))
		cluster.Fake.ControlKey(int16(kmsg.SASLHandshake), func(r kmsg.Request) (kmsg.Response, error, bool) {
			cluster.Fake.KeepControl()
			response := r.ResponseKind().(*kmsg.SASLHandshakeResponse)
			response.ErrorCode = kerr.UnsupportedSaslMechanism.Code
			response.SupportedMechanisms = []string{"PLAIN"}
			return response, nil, true
		})
		sink := newSink(t, cluster, "orders", client, func(c *kafka.Config) {
			c.SASL = connection.SASL{Mechanism: "SCRAM-SHA-512", User: user, Password: password}
		})
		_, err := sink.Deliver(t.Context(), delivery("k"))
		assertUnavailable(t, err, "sasl.mechanism")
	})
}

func TestABrokerThatRequiresCredentialsIsUnavailableWithoutThem(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		cluster := kafkatest.Fake(t, kfake.EnableSASL(), kfake.SeedTopics(1, "orders"))
		_, err := newSink(t, cluster, "orders", client).Deliver(t.Context(), delivery("k"))
		assertUnavailable(t, err, "does it want sasl, or tls?")
	})
}

func TestAPasswordInClearTextIsLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c := decode(t, `{brokers: [a:1], topic: t, sasl: {mechanism: plain, user: u, password: hush-hush}}`)
	in := sinks.Instance{Name: "events", Logger: slog.New(slog.NewTextHandler(&log, nil))}
	_, err := kafka.New(in, c)
	require.NoError(t, err)
	assert.Contains(t, log.String(), "in clear text")
	assert.NotContains(t, log.String(), "hush-hush")

	log.Reset()
	c.TLS.Enabled = true
	_, err = kafka.New(in, c)
	require.NoError(t, err)
	assert.Empty(t, log.String())
}

func TestBrokersAreVerified(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		authority := certtest.New()
		authorityFile := certtest.Write(t.TempDir(), authority.Certificate)
		server := authority.Issue("kafka.test", "127.0.0.1", "::1")
		named := authority.Issue("kafka.test")
		for name, c := range map[string]struct {
			certificate tls.Certificate
			tls         connection.TLS
			problem     string
		}{
			"known authority":         {server, connection.TLS{Enabled: true, CAFile: authorityFile}, ""},
			"unknown authority":       {server, connection.TLS{Enabled: true}, "check tls.ca_file"},
			"another authority":       {server, connection.TLS{Enabled: true, CAFile: certtest.Write(t.TempDir(), certtest.New().Certificate)}, "check tls.ca_file"},
			"another host":            {named, connection.TLS{Enabled: true, CAFile: authorityFile}, "tls.server_name"},
			"configured name":         {named, connection.TLS{Enabled: true, CAFile: authorityFile, ServerName: "kafka.test"}, ""},
			"another configured name": {server, connection.TLS{Enabled: true, CAFile: authorityFile, ServerName: "other.test"}, "tls.server_name"},
			"without tls":             {server, connection.TLS{}, "does it want sasl, or tls?"},
		} {
			t.Run(name, func(t *testing.T) {
				cluster := kafkatest.Fake(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{c.certificate}}), kfake.SeedTopics(1, "orders"))
				sink := newSink(t, cluster, "orders", client, func(config *kafka.Config) { config.TLS = c.tls })
				_, err := sink.Deliver(t.Context(), delivery("k"))
				if c.problem != "" {
					assertUnavailable(t, err, c.problem)
					return
				}
				require.NoError(t, err)
			})
		}
	})
}

func TestABrokerThatSpeaksNoTLSIsUnavailable(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		cluster := kafkatest.Fake(t, kfake.SeedTopics(1, "orders"))
		sink := newSink(t, cluster, "orders", client, func(c *kafka.Config) { c.TLS.Enabled, c.Timeout = true, time.Second })
		_, err := sink.Deliver(t.Context(), delivery("k"))
		assertClass(t, sinks.ClassUnavailable, err)
	})
}

// Apache Kafka answers with a TLS alert of a few bytes.
func TestTheErrorOfABrokerThatRequiresTLSHasAHint(t *testing.T) {
	t.Parallel()
	broker := servertest.Serve(t, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1))
		_, _ = conn.Write([]byte{21, 3, 3, 0, 2, 2, 80})
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
	})
	_, err := newSinkAt(t, []string{broker}, "orders").Deliver(t.Context(), delivery("k"))
	assertUnavailable(t, err, "plaintext connection speaking to a tls endpoint?")
}

func TestAClientCertificateCanBeUsedTogetherWithSASL(t *testing.T) {
	t.Parallel()
	authority := certtest.New()
	authorityFile := certtest.Write(t.TempDir(), authority.Certificate)
	client := authority.Issue("shop")
	cluster := kafkatest.Fake(t,
		kfake.TLS(&tls.Config{
			Certificates: []tls.Certificate{authority.Issue("kafka.test", "127.0.0.1", "::1")},
			ClientAuth:   tls.RequireAndVerifyClientCert,
			ClientCAs:    authority.Pool(),
		}),
		kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", user, password), kfake.SeedTopics(1, "orders"))
	certFile, keyFile := certtest.WritePair(t.TempDir(), client)
	with := func(c *kafka.Config) {
		c.TLS = connection.TLS{Enabled: true, CAFile: authorityFile, CertFile: certFile, KeyFile: keyFile}
		c.SASL = connection.SASL{Mechanism: "SCRAM-SHA-512", User: user, Password: password}
	}
	_, err := newSink(t, cluster, "orders", with).Deliver(t.Context(), delivery("k"))
	require.NoError(t, err)

	without := newSink(t, cluster, "orders", with, func(c *kafka.Config) { c.TLS.CertFile, c.TLS.KeyFile = "", "" })
	_, err = without.Deliver(t.Context(), delivery("k"))
	assertUnavailable(t, err, "check tls.cert_file")
}

func TestMistakesOfSASLAndTLSAreNamed(t *testing.T) {
	t.Parallel()
	authority := certtest.New()
	authorityFile := certtest.Write(t.TempDir(), authority.Certificate)
	certFile, keyFile := certtest.WritePair(t.TempDir(), authority.Issue("shop"))
	_, otherKey := certtest.WritePair(t.TempDir(), authority.Issue("other"))
	for given, want := range map[string]string{
		`sasl: {user: u, password: hush-hush}`:                                               "sasl.mechanism: is missing; use one of OAUTHBEARER, PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
		`sasl: {mechanism: GSSAPI, user: u, password: hush-hush}`:                            `sasl.mechanism: "GSSAPI" is not offered; use one of OAUTHBEARER, PLAIN`,
		`sasl: {mechanism: PLAIN, password: hush-hush}`:                                      "sasl.user: is missing",
		`sasl: {mechanism: PLAIN, user: u}`:                                                  "sasl.password: is missing",
		`sasl: {mechanism: PLAIN, user: "a\0b", password: hush-hush}`:                        "sasl.user: contains a zero byte",
		`sasl: {mechanism: PLAIN, user: u, password: "hush-hush\0"}`:                         "sasl.password: contains a zero byte",
		`sasl: {mechanism: SCRAM-SHA-256, user: "a\u0007b", password: hush-hush}`:            "sasl.user: has characters",
		`sasl: {mechanism: SCRAM-SHA-512, user: u, password: "hush-hush\u0007"}`:             "sasl.password: has characters",
		`tls: {ca_file: ` + authorityFile + `}`:                                              "tls.enabled: is not set",
		`tls: {enabled: true, ca_file: /not/there}`:                                          "tls.ca_file: open /not/there",
		`tls: {enabled: true, ca_file: ` + keyFile + `}`:                                     "contains no certificate",
		`tls: {enabled: true, cert_file: ` + certFile + `}`:                                  "tls.key_file: is missing",
		`tls: {enabled: true, key_file: ` + keyFile + `}`:                                    "tls.cert_file: is missing",
		`tls: {enabled: true, cert_file: ` + certFile + `, key_file: ` + otherKey + `}`:      "tls.cert_file: " + certFile,
		`sasl: {mechanism: X, user: u, password: hush-hush}, tls: {server_name: kafka.test}`: "tls.enabled: is not set",
	} {
		t.Run(want, func(t *testing.T) {
			c := decode(t, `{brokers: [a:1], topic: t, `+given+`}`)
			err := c.Validate()
			assert.ErrorContains(t, err, want)
			assert.NotContains(t, err.Error(), "hush-hush")
			_, err = kafka.New(sinks.Instance{}, c)
			assert.Error(t, err)
		})
	}
}

func assertUnavailable(t *testing.T, err error, says string) {
	t.Helper()
	assertClass(t, sinks.ClassUnavailable, err)
	assert.ErrorContains(t, err, says)
	assert.NotContains(t, err.Error(), "wrong-secret")
	assert.NotContains(t, err.Error(), password)
}
