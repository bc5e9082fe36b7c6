package brokers_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks/brokers"
)

func TestTLSReportsAllMistakes(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for _, c := range []struct {
		tls       brokers.TLS
		encrypted bool
		says      []string
	}{
		{brokers.TLS{ServerName: "a"}, false, []string{"tls: is set, but the URL's scheme is one without TLS"}},
		{brokers.TLS{CAFile: empty, KeyFile: "x", Insecure: true}, true, []string{"tls.ca_file: " + empty, "tls.insecure: turns verification off", "tls.cert_file: is missing"}},
		{brokers.TLS{CertFile: empty}, true, []string{"tls.key_file: is missing"}},
		{brokers.TLS{CertFile: empty, KeyFile: empty}, true, []string{"tls.cert_file: " + empty}},
	} {
		_, err := c.tls.Config(c.encrypted)
		for _, says := range c.says {
			require.ErrorContains(t, err, says)
		}
	}
}

func TestTLSIsForEncryptedConnections(t *testing.T) {
	t.Parallel()
	conf, err := brokers.TLS{}.Config(false)
	require.NoError(t, err)
	require.Nil(t, conf)
	conf, err = brokers.TLS{ServerName: "broker"}.Config(true)
	require.NoError(t, err)
	require.Equal(t, "broker", conf.ServerName)
	require.False(t, conf.InsecureSkipVerify)
}

func TestAnInvalidAddressIsNotQuoted(t *testing.T) {
	t.Parallel()
	for address, says := range map[string]string{
		"":                         "url: is missing; begin it with amqp:// or amqps://",
		"amqp://user:hunter2/@x%":  "url: cannot be parsed",
		"http://user:hunter2@host": "url: its scheme is not offered",
		"amqp://user:hunter2@":     "url: has no host",
	} {
		_, err := brokers.ParseURL(address, "", "", "amqp", "amqps")
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "hunter2")
	}
	_, err := brokers.ParseURL("amqp://user:hunter2@host", "user", "", "amqp")
	require.ErrorContains(t, err, "url: contains a user")
	u, err := brokers.ParseURL("amqp://host", "user", "p@ss/word", "amqp")
	require.NoError(t, err)
	password, _ := u.User.Password()
	require.Equal(t, "p@ss/word", password)
}
