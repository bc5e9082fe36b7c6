package encoding_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/encoding"
)

func decode(t *testing.T, text string) encoding.Config {
	t.Helper()
	var c encoding.Config
	require.NoError(t, yaml.Unmarshal([]byte(text), &c))
	return c
}

func TestWithoutAFormatNothingIsEncoded(t *testing.T) {
	t.Parallel()
	c := decode(t, `{}`)
	c.SetDefaults()
	require.NoError(t, c.Validate())
	require.False(t, c.Enabled())
	require.Equal(t, encoding.Config{}, c)
	_, err := encoding.New(sinks.Instance{}, c)
	require.ErrorContains(t, err, "encoding.format: is missing")
}

func TestAMinimalConfigurationHasDefaults(t *testing.T) {
	t.Parallel()
	c := decode(t, `{format: avro, registry: {url: "https://registry.example:8081/apis/ccompat/v7"}}`)
	require.NoError(t, c.Validate())
	c.SetDefaults()
	require.Equal(t, encoding.SubjectTopic, c.Subject)
	require.False(t, c.Register)
}

func TestEachMistakeNamesItsKey(t *testing.T) {
	t.Parallel()
	for given, wants := range map[string][]string{
		`{register: true}`: {"encoding.format: is missing"},
		`{format: xml, subject: id, registry: {auth: {password: hush-hush}}}`: {
			`encoding.format: "xml" is not offered; use avro, json-schema, protobuf`,
			`encoding.subject: "id" is not offered; use topic, record, topic-record`,
			"encoding.registry.url: is missing",
			"encoding.registry.auth.user: is missing",
		},
		`{format: avro, registry: {url: "localhost:8081"}}`:                                    {"encoding.registry.url: is not an address"},
		`{format: avro, registry: {url: "http://u:hush-hush@r"}}`:                              {"encoding.registry.url: contains a user"},
		`{format: avro, registry: {url: "http://r?x=y"}}`:                                      {"encoding.registry.url: has something after its path"},
		`{format: avro, registry: {url: "http://r", tls: {ca_file: none.pem}}}`:                {"encoding.registry.tls: url is plain http", "encoding.registry.tls.ca_file:"},
		`{format: avro, registry: {url: "https://r", tls: {cert_file: a, ca_file: none.pem}}}`: {"encoding.registry.tls.ca_file:", "encoding.registry.tls.key_file: is missing"},
		`{format: avro, registry: {url: "http://r", auth: {user: u, token: hush-hush}}}`:       {"encoding.registry.auth: has a token and a user"},
		`{format: avro, registry: {url: "http://r", auth: {user: "a:b"}}}`:                     {"encoding.registry.auth.user: contains a colon"},
		`{format: avro, registry: {url: "http://r", auth: {token: "hush hush"}}}`:              {"encoding.registry.auth.token: has spaces"},
	} {
		c := decode(t, given)
		err := c.Validate()
		for _, want := range wants {
			require.ErrorContains(t, err, want)
		}
		require.NotContains(t, err.Error(), "hush")
		_, err = encoding.New(sinks.Instance{}, c)
		require.Error(t, err)
	}
}
