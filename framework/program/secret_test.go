package program

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks/httpsink"
)

// mastersFile is a configuration whose other secrets are missing.
const mastersFile = `
database: ${DATABASE}
sinks:
  partners:
    kind: http
    with:
      url: "https://{{.Metadata.host}}/hooks"
      bearer: ${TOKEN}
      master_secret: ${MASTER}
      master_secrets: [MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=]
  plain: {kind: http, with: {url: "https://partner.example"}}
  lines: {kind: jsonlines}
routes: {"*": [partners]}
`

const master = "YWJjZGFiY2RhYmNkYWJjZGFiY2RhYmNkYWJjZGFiY2Q="

func TestConfigSecretPrintsWhatOneReceiverGets(t *testing.T) {
	t.Parallel()
	file := writeFile(t, mastersFile)
	environ := []string{"MASTER=" + master}
	first, err := httpsink.DeriveSecret(master, "https://partner.example")
	require.NoError(t, err)
	second, err := httpsink.DeriveSecret("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", "https://partner.example")
	require.NoError(t, err)

	r := waybillWith(t, environ, "config", "secret", "-c", file, "partners", "https://Partner.example:443/hooks")
	require.Equal(t, result{stdout: first + "\n" + second + "\n"}, r)
	r = waybillWith(t, environ, "config", "secret", "-c", file, "partners", "https://partner.example", "--json")
	require.Zero(t, r.code, r.stderr)
	require.JSONEq(t, `{"secrets": ["`+first+`", "`+second+`"]}`, r.stdout)
}

func TestConfigSecretReportsWhatIsMissing(t *testing.T) {
	t.Parallel()
	file := writeFile(t, mastersFile)
	for args, want := range map[string]string{
		"partners":                      "give a sink and the URL of one receiver",
		"partner https://a.example":     `there is no sink "partner"`,
		"lines https://a.example":       `sink "lines" is of the kind jsonlines, not http`,
		"plain https://a.example":       `sink "plain" has no master_secret`,
		"partners a.example":            `url: scheme "" is not offered`,
		"partners https://{{.Key}}/":    "url: cannot be parsed",
		"partners https://a.example -x": "unknown shorthand flag",
	} {
		r := waybillWith(t, []string{"MASTER=" + master}, append([]string{"config", "secret", "-c", file}, strings.Fields(args)...)...)
		require.Equal(t, exitUsage, r.code, args)
		require.Contains(t, r.stderr, want)
		require.Empty(t, r.stdout)
	}
	r := waybillWith(t, []string{"MASTER=hunter2hunter2"}, "config", "secret", "-c", file, "partners", "https://a.example")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "master secret: is not base64")
	require.NotContains(t, r.stderr, "hunter2")
}
