package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/route"
)

// beside writes a configuration and other files into a folder, and returns the configuration's path.
func beside(t testing.TB, text string, files map[string]string) (path string) {
	t.Helper()
	path = write(t, text)
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), name), []byte(content), 0o600))
	}
	return path
}

func TestValuesCanBeInFiles(t *testing.T) {
	t.Parallel()
	elsewhere := filepath.Join(t.TempDir(), "lanes")
	require.NoError(t, os.WriteFile(elsewhere, []byte("7\n"), 0o600))
	path := beside(t, `
database: postgres://app:${file:password}@localhost/app
outbox: {prefix: "file:${PREFIX_FILE}", lanes: "file:`+elsewhere+`"}
forwarder: {name: "file::not-a-file", lease: "${LEASE}"}
sinks: {partner: {kind: http, with: {url: "https://partner.example/"}}}
routes: {"*": [partner]}
`, map[string]string{
		"password": password + "\r\n", "prefix": "mail_outbox", "lease": "1m\n", "timeout": "7s\n\n", "sink": "partner\n",
	})

	c, err := load(t, config.Source{File: path, Environ: []string{
		"PREFIX_FILE=prefix", "LEASE=file:lease", "WAYBILL_SINKS_PARTNER_TIMEOUT=file:timeout", "WAYBILL_ROUTES__=file:sink",
	}})
	require.NoError(t, err)
	require.Equal(t, "postgres://app:"+password+"@localhost/app", c.Database.DSN())
	require.Equal(t, "mail_outbox", c.Outbox.Prefix)
	require.Equal(t, 7, c.Outbox.Lanes)
	require.Equal(t, "file:not-a-file", c.Forwarder.Name)
	require.Equal(t, "1m0s", c.Forwarder.Lease.String())
	require.Equal(t, "7s", c.Sinks["partner"].Timeout.String())
	require.Equal(t, []route.Rule{{Sink: "partner"}}, c.Routes["*"])

	tables, err := config.LoadTables(config.Source{Database: "file:" + filepath.Join(filepath.Dir(path), "password")})
	require.ErrorContains(t, err, "--database: database: is not a database address")
	require.Zero(t, tables.Database)
}

func TestFilesWithoutAValueAreReported(t *testing.T) {
	t.Parallel()
	path := beside(t, `database: "file:"
outbox: {prefix: "file:absent"}
forwarder:
  name: file:empty
  lease: file:lease
  unrouted: "a${file:binary}b"
sinks:
  partner:
    kind: http
    with:
      url: https://partner.example/
      secrets: [file:large, file:folder, file:`+os.DevNull+`]
      bearer: file:closed
routes: {"*": [partner]}
`, map[string]string{"empty": "\n", "lease": password + "\n", "binary": "a\x00", "large": strings.Repeat("a", 64<<10+1), "closed": "a"})
	in := filepath.Dir(path)
	require.NoError(t, os.Mkdir(filepath.Join(in, "folder"), 0o755))
	require.NoError(t, os.Chmod(filepath.Join(in, "closed"), 0))

	_, err := load(t, config.Source{File: path})
	wanted := path + ":1: database: file: does not name a file; write file:/run/secrets/name, or file:: for a text that begins with file:\n" +
		path + ":2: outbox.prefix: the file " + in + "/absent does not exist\n" +
		path + ":4: forwarder.name: the file " + in + "/empty is empty\n" +
		path + ":5: forwarder.lease is \"file:lease\": write a duration with its unit, like 1m30s\n" +
		path + ":6: forwarder.unrouted: the file " + in + "/binary is not text\n" +
		path + ":12: sinks.partner.with.secrets[0]: the file " + in + "/large is larger than 64 KiB, the limit of a value\n" +
		path + ":12: sinks.partner.with.secrets[1]: the file " + in + "/folder is not a regular file\n" +
		path + ":12: sinks.partner.with.secrets[2]: the file " + os.DevNull + " is not a regular file"
	if os.Geteuid() != 0 { // root may read everything
		wanted += "\n" + path + ":13: sinks.partner.with.bearer: the file " + in + "/closed cannot be read: permission denied"
	}
	require.EqualError(t, err, wanted)
}

// The kind's own error about an invalid value would quote the value.
func TestErrorsDoNotQuoteTheContentsOfFiles(t *testing.T) {
	t.Parallel()
	path := beside(t, `
database: sqlite:outbox.db
sinks: {partner: {kind: http, with: {url: "https://partner.example/", method: "file:method"}}}
routes: {"*": [partner]}
`, map[string]string{"method": password})
	_, err := load(t, config.Source{File: path})
	require.EqualError(t, err, path+`:3: sinks.partner.with.method is "file:method": use POST or PUT`)
}

func TestShowHasReferencesInsteadOfTheContentsOfFiles(t *testing.T) {
	t.Parallel()
	path := beside(t, `
database: postgres://app:${file:password}@localhost/app
forwarder: {name: "file::left"}
sinks:
  partner:
    kind: http
    with: {url: "https://partner.example/", bearer: file:password, headers: {X-Api-Key: "${KEY}"}}
routes: {"*": [partner]}
`, map[string]string{"password": password})
	source := config.Source{File: path, Environ: []string{"KEY=file:password", "WAYBILL_SINKS_PARTNER_FAIRNESS=file:password"}}
	shown := show(t, source)
	require.NotContains(t, shown, password+"\n")
	for _, line := range []string{
		"database: postgres://app:${file:password}@localhost/app\n", "name: file::left\n", "bearer: file:password\n",
		"X-Api-Key: ${KEY}\n", "fairness: file:password\n",
	} {
		require.Contains(t, shown, line)
	}
	require.NoError(t, os.WriteFile(path, []byte(shown), 0o600))
	require.Equal(t, shown, show(t, source))
}
