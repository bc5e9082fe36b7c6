package httpsink

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
)

// rawServer returns the URL of a server that answers each request as it likes, until an error.
func rawServer(t *testing.T, answer func(to io.Writer, request []byte) error) string {
	t.Helper()
	return "http://" + servertest.Serve(t, func(conn net.Conn) {
		if request, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			raw, _ := httputil.DumpRequest(request, true)
			for err == nil {
				err = answer(conn, raw)
			}
		}
	})
}

// Such an answer is quoted in the errors of net/http.
func TestNoErrorRepeatsACredentialFromAnAnswerThatIsNotHTTP(t *testing.T) {
	t.Parallel()
	authorization := func(request []byte) string {
		_, rest, _ := bytes.Cut(request, []byte("Authorization: "))
		line, _, _ := bytes.Cut(rest, []byte("\r\n"))
		return string(line)
	}
	for name, answer := range map[string]func(request []byte) string{
		"the request": func(request []byte) string { return string(request) },
		"a header's line": func(request []byte) string {
			return "HTTP/1.1 200 OK\r\n Authorization " + authorization(request) + "\r\n\r\n"
		},
		"a status": func(request []byte) string {
			return "HTTP/1.1 " + strings.Fields(authorization(request))[1] + " no\r\n\r\n"
		},
		"a length": func(request []byte) string {
			return "HTTP/1.1 200 OK\r\nContent-Length: " + authorization(request) + "\r\n\r\n"
		},
		"a transfer coding": func(request []byte) string {
			return "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + authorization(request) + "\r\n\r\n"
		},
	} {
		to := rawServer(t, func(w io.Writer, request []byte) error {
			_, _ = io.WriteString(w, answer(request))
			return io.EOF
		})
		for _, c := range []Config{{Bearer: "secret-bearer"}, {User: "u", Password: "secret-password"}} {
			c.URL = to + "/services/secret-path"
			_, err := newSink(t, c).Deliver(t.Context(), newDelivery())
			requireClass(t, sinks.ClassTransient, err)
			assert.NotContains(t, err.Error(), "secret-", name)
			assert.NotContains(t, err.Error(), base64.StdEncoding.EncodeToString([]byte("u:secret-password")), name)
			assert.Equal(t, "transient: POST "+to+": the answer cannot be read", sinks.Brief(err), name)
		}
	}
}

func TestNoErrorRepeatsACredentialThatTheServerEscapes(t *testing.T) {
	t.Parallel()
	const bearer = "aGVsbG8/d29ybGQrZm9vL2Jhcg=="
	for name, escape := range map[string]func(string) string{
		"JSON": func(text string) string {
			all, _ := json.Marshal(map[string]string{"headers": text})
			return string(all)
		},
		"PHP":    func(text string) string { return strings.ReplaceAll(text, "/", `\/`) },
		"HTML":   func(text string) string { return strings.ReplaceAll(html.EscapeString(text), "+", "&#43;") },
		"a URL":  url.QueryEscape,
		"quoted": func(text string) string { return fmt.Sprintf("%+q", text) },
		"base64": func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) },
	} {
		r := newReceiver(t, func(w http.ResponseWriter, req *http.Request) {
			http.Error(w, "got "+escape(req.RequestURI+" "+req.Header.Get("Authorization")), http.StatusUnprocessableEntity)
		})
		_, err := r.sink(t, Config{URL: r.URL + "/hooks/T&<17>?token=a/b+c", Bearer: bearer}).Deliver(t.Context(), newDelivery())
		require.ErrorContains(t, err, "422 Unprocessable Entity: got ")
		for _, secret := range []string{bearer, "aGVsbG8", "ZlcnYmUG", "hooks"} {
			assert.NotContains(t, err.Error(), secret, name)
		}
	}
}

func TestAnswersAreReadWithBounds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ begin, rest string }{
		"endless headers":          {"HTTP/1.1 200 OK\r\n", "X-A: " + strings.Repeat("y", 8000) + "\r\n"},
		"an endless header":        {"HTTP/1.1 200 OK\r\nX-A: ", strings.Repeat("y", 8000)},
		"an endless status":        {"HTTP/1.1 200 ", strings.Repeat("y", 8000)},
		"endless early hints":      {"", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"},
		"an endless body":          {"HTTP/1.1 500 No\r\n\r\n", strings.Repeat("y", 8000)},
		"endless chunks":           {"HTTP/1.1 422 No\r\nTransfer-Encoding: chunked\r\n\r\n", "1;" + strings.Repeat("x", 2000) + "\r\nz\r\n"},
		"an endless extension":     {"HTTP/1.1 422 No\r\nTransfer-Encoding: chunked\r\n\r\n1;", strings.Repeat("x", 2000)},
		"endless trailers":         {"HTTP/1.1 422 No\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "X-A: " + strings.Repeat("y", 2000) + "\r\n"},
		"endless compressed bytes": {"HTTP/1.1 422 No\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b", strings.Repeat("\x00", 8000)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := false
			to := rawServer(t, func(w io.Writer, _ []byte) error {
				if !begun {
					begun = true
					_, _ = io.WriteString(w, tt.begin)
				}
				_, err := io.WriteString(w, tt.rest)
				return err
			})
			_, err := newSink(t, Config{URL: to, Timeout: 2 * time.Minute}).Deliver(t.Context(), newDelivery())
			require.Error(t, err)
			assert.NotContains(t, err.Error(), "no response within", "it is not the timeout that ends it")
			assert.Less(t, len(err.Error()), sinks.MaxAnswer+200)
		})
	}
}
