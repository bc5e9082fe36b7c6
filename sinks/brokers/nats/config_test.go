package nats_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks/brokers/nats"
)

func config(change func(*nats.Config)) *nats.Config {
	c := &nats.Config{Servers: []string{"nats://host:4222"}, Topic: "shop.{{.Type}}"}
	c.SetDefaults()
	change(c)
	return c
}

func TestValidateReadsTheFilesOfCredentials(t *testing.T) {
	t.Parallel()
	key, err := nkeys.CreateUser()
	require.NoError(t, err)
	seed, err := key.Seed()
	require.NoError(t, err)
	write := func(name, text string) string {
		file := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	good := "-----BEGIN NATS USER JWT-----\neyJ0.e30.x\n------END NATS USER JWT------\n\n" +
		"-----BEGIN USER NKEY SEED-----\n" + string(seed) + "\n------END USER NKEY SEED------\n"

	require.NoError(t, config(func(c *nats.Config) { c.CredentialsFile = write("creds", good) }).Validate())
	require.NoError(t, config(func(c *nats.Config) { c.NKeyFile = write("nkey", string(seed)) }).Validate())

	for says, change := range map[string]func(*nats.Config){
		"does not contain the JWT and the seed": func(c *nats.Config) { c.CredentialsFile = write("creds", "nothing") },
		"credentials_file: open":                func(c *nats.Config) { c.CredentialsFile = "/is/no/file" },
		"nkey_file: ":                           func(c *nats.Config) { c.NKeyFile = write("nkey", "SUhunter2") },
		"user: only one of": func(c *nats.Config) {
			c.CredentialsFile, c.NKeyFile = write("creds", good), write("nkey", string(seed))
		},
	} {
		err := config(change).Validate()
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestAConnectionNeedsAnAge(t *testing.T) {
	t.Parallel()
	err := config(func(c *nats.Config) { c.MaxConnectionAge = 0 }).Validate()
	require.EqualError(t, err, "max_connection_age: 0s is not above 0; leave it out for 5m0s")
}
