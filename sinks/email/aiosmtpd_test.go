package email_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/mailserver"
	"github.com/waybill-go/waybill/sinks/internal/certtest"
)

// pythonVariable names a Python interpreter that has aiosmtpd.
const pythonVariable = "WAYBILL_TEST_PYTHON"

// aiosmtpd starts a mail server that shares no code with smtptest. It requires STARTTLS and a
// mechanism of authentication.
func aiosmtpd(t *testing.T, mechanism string) (port int, trust *tls.Config, messages *json.Decoder) {
	t.Helper()
	python := os.Getenv(pythonVariable)
	if python == "" {
		python = "python3"
	}
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import aiosmtpd").CombinedOutput(); err != nil {
		t.Skipf("%s has no aiosmtpd (pip install aiosmtpd, or name another interpreter in %s): %v: %s", python, pythonVariable, err, out)
	}
	authority := certtest.New()
	certificateFile, keyFile := certtest.WritePair(t.TempDir(), authority.Issue("127.0.0.1"))
	server := exec.CommandContext(t.Context(), python, "testdata/aiosmtpd/server.py", certificateFile, keyFile, mechanism)
	var output strings.Builder
	server.Stderr = &output
	server.WaitDelay = 10 * time.Second
	stdin, err := server.StdinPipe()
	require.NoError(t, err)
	stdout, err := server.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = stdin.Close() // the server then ends
		_ = server.Wait()
		if t.Failed() {
			t.Log(output.String())
		}
	})
	messages = json.NewDecoder(stdout)
	var started struct{ Port int }
	require.NoError(t, messages.Decode(&started), "%s", &output)
	return started.Port, &tls.Config{RootCAs: authority.Pool()}, messages
}

func TestTheSinkWorksWithAnotherMailServer(t *testing.T) {
	for _, mechanism := range []string{"LOGIN", "PLAIN"} {
		t.Run(mechanism, func(t *testing.T) {
			port, trust, messages := aiosmtpd(t, mechanism)
			templates := minimal(map[string]string{
				"customer.signed-up/to.tmpl":          "a@example.org, b@example.org, pelé@exämple.org",
				"customer.signed-up/text.tmpl":        ".\n..\nGrüße, {{.Payload.name}}\n.",
				"customer.signed-up/html.tmpl":        `<img src="cid:logo.png">Grüße`,
				"customer.signed-up/logo.png":         "PNG",
				"customer.signed-up/attachments.tmpl": "logo.png",
			})
			sink := newSink(t, email.Config{
				SMTP: fmt.Sprintf("smtp://shop:p%%40ss@127.0.0.1:%d", port), TLS: mailserver.TLSMandatory, TLSConfig: trust, FS: templates,
			})
			require.NoError(t, sink.CheckHealth(within(t)))
			for range 3 {
				receipt, err := sink.Deliver(within(t), delivery(`{"name": "Ada"}`))
				require.NoError(t, err)
				assert.EqualValues(t, "smtp 250 OK: kept; <b@example.org> refused: 550 5.1.1 no such user", receipt)
				var got struct {
					To  []string
					Raw string
					TLS bool
				}
				require.NoError(t, messages.Decode(&got))
				assert.True(t, got.TLS)
				assert.Equal(t, []string{"a@example.org", "pelé@exämple.org"}, got.To)
				assert.Contains(t, got.Raw, "\r\n.\r\n..\r\nGr=C3=BC=C3=9Fe, Ada\r\n.\r\n")
			}

			wrong := newSink(t, email.Config{SMTP: fmt.Sprintf("smtp://shop:wrong@127.0.0.1:%d", port), TLSConfig: trust})
			_, err := wrong.Deliver(within(t), delivery(jane))
			require.ErrorContains(t, err, "unavailable")
			require.ErrorContains(t, err, "check user and password")
		})
	}
}
