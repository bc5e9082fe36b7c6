package languages_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/framework/waybilltest"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

type placed struct {
	Order   string `json:"order"`
	Product string `json:"product"`
}

// receivers are the programs that receive webhooks. Those for secrets verify with the libraries of Standard Webhooks,
// which have no ed25519.
var receivers = []struct {
	name, language string
	needs          []string
	command        []string
	variable       string // has what the program verifies with
	asymmetric     bool
}{
	{"python", "python", []string{drivers + "/python/bin/python"}, []string{drivers + "/python/bin/python", "python/receive.py"}, "WEBHOOK_SECRET", false},
	{"javascript", "typescript", []string{"node", drivers + "/typescript/receive.js"}, []string{"node", drivers + "/typescript/receive.js"}, "WEBHOOK_SECRET", false},
	{"javascript-ed25519", "typescript", []string{"node"}, []string{"node", "typescript/receive-ed25519.js"}, "WEBHOOK_KEY", true},
}

// wire carries each request to all receivers, and answers with the last status that is not 2xx.
type wire struct {
	mu      sync.Mutex
	to      []string
	tamper  func(r *http.Request, body []byte) []byte // nil: not at all
	answers []int
}

func (w *wire) ServeHTTP(answer http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	if w.tamper != nil {
		body = w.tamper(r, body)
	}
	status := http.StatusNoContent
	for _, to := range w.to {
		onward, err := http.NewRequestWithContext(r.Context(), http.MethodPost, to, bytes.NewReader(body))
		if err != nil {
			panic(err)
		}
		onward.Header = r.Header
		got, err := http.DefaultClient.Do(onward)
		if err != nil {
			panic(err) // the connection is aborted
		}
		_ = got.Body.Close()
		w.answers = append(w.answers, got.StatusCode)
		if got.StatusCode > 299 {
			status = got.StatusCode
		}
	}
	answer.WriteHeader(status)
}

// take returns the answers since the last call, and tampers with the next requests.
func (w *wire) take(tamper func(*http.Request, []byte) []byte) []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	answers := w.answers
	w.answers, w.tamper = nil, tamper
	return answers
}

func TestReceiversInOtherLanguagesVerifyWebhooks(t *testing.T) {
	t.Parallel()
	for _, r := range receivers {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			for _, needed := range r.needs {
				if _, err := exec.LookPath(needed); err != nil && !isFile(needed) {
					require.False(t, required(r.language), "%s is missing", needed)
					t.Skipf("needs %s; .ci/test-languages prepares it", needed)
				}
			}
			db, err := sqlite.OpenDB(filepath.Join(t.TempDir(), "shop.db"))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			o := waybill.SQLite(db, waybill.SQLiteConfig{})
			o.Config.Logger = slog.New(slog.DiscardHandler)
			hooks, err := webhooks.New(sinks.Instance{}, webhooks.Config{
				ClientConfig: httpsink.ClientConfig{AllowHTTP: true, Guard: httpsink.Guard{Mode: httpsink.GuardOff}},
			})
			require.NoError(t, err)
			waybill.Register[placed](o, "order.placed")
			o.Deliver("customers", hooks, "order.*")
			require.NoError(t, o.Migrate(t.Context()))
			require.NoError(t, o.Open(t.Context()))
			forwarding, err := o.Forwarding()
			require.NoError(t, err)

			w := new(wire)
			server := httptest.NewServer(w)
			t.Cleanup(server.Close)
			made, first, err := o.Endpoints().Create(t.Context(), webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: server.URL}, Asymmetric: r.asymmetric})
			require.NoError(t, err)
			publish := func(order string) {
				tx, err := db.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				require.NoError(t, o.Publish(t.Context(), tx, waybill.With(placed{order, `Drachen "ä" <b>&\ 🪁`}, waybill.Metadata("tenant", "acme"))))
				require.NoError(t, tx.Commit())
				waybilltest.Drain(t, forwarding)
			}

			before := receive(t, r.command, r.variable+"="+first)
			w.to = []string{before.url}
			publish("o-1")
			require.Equal(t, []int{204}, w.take(nil))
			require.Regexp(t, `^\S+_`+made.ID+` order.placed .*o-1.*🪁`, before.out.String())

			// What was changed on the way is refused. The next attempt is signed again.
			for i, tamper := range []func(*http.Request, []byte) []byte{
				func(_ *http.Request, body []byte) []byte { return bytes.Replace(body, []byte("o-2"), []byte("o-3"), 1) },
				func(r *http.Request, body []byte) []byte { r.Header.Set("Webhook-Id", "another"); return body },
				func(r *http.Request, body []byte) []byte { return shift(r, 1, body) },
				func(r *http.Request, body []byte) []byte { return shift(r, -600, body) },
				func(r *http.Request, body []byte) []byte { r.Header.Set("Webhook-Signature", "v1,AAAA"); return body },
				func(r *http.Request, body []byte) []byte { r.Header.Del("Webhook-Signature"); return body },
			} {
				w.take(tamper)
				if i == 0 {
					publish("o-2")
				} else {
					waybilltest.Advance(t, forwarding, webhooks.Pauses[i-1]*5/4) // pauses vary
				}
				require.Equal(t, []int{401}, w.take(nil), "change %d", i)
			}
			require.NotContains(t, before.out.String(), "o-2")
			waybilltest.Advance(t, forwarding, webhooks.Pauses[5]*5/4)
			require.Equal(t, []int{204}, w.take(nil))
			require.Contains(t, before.out.String(), "o-2")

			// Both secrets verify after a rotation.
			_, second, err := o.Endpoints().Rotate(t.Context(), "acme", made.ID)
			require.NoError(t, err)
			require.NotEqual(t, first, second)
			after := receive(t, r.command, r.variable+"="+second)
			w.to = []string{before.url, after.url}
			time.Sleep(webhooks.Freshness) // an endpoint is read again then
			publish("o-4")
			require.Equal(t, []int{204, 204}, w.take(nil))
			for _, p := range []*receiver{before, after} {
				require.Contains(t, p.out.String(), "o-4")
			}
		})
	}
}

// shift moves the time of a request.
func shift(r *http.Request, seconds int, body []byte) []byte {
	at, _ := strconv.Atoi(r.Header.Get("Webhook-Timestamp"))
	r.Header.Set("Webhook-Timestamp", strconv.Itoa(at+seconds))
	return body
}

// receiver is a program that receives webhooks.
type receiver struct {
	url string
	out *output
}

// output is what a program has printed.
type output struct {
	mu sync.Mutex
	bytes.Buffer
}

func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Buffer.Write(text)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Buffer.String()
}

// receive starts a receiver until the end of the test.
func receive(t *testing.T, command []string, variable string) *receiver {
	t.Helper()
	address := free()
	ctx, stop := context.WithCancel(context.Background())
	p := exec.CommandContext(ctx, command[0], command[1:]...)
	r := &receiver{"http://" + address, new(output)}
	_, port, _ := strings.Cut(address, ":")
	p.Env = append(os.Environ(), variable, "PORT="+port, "PYTHONIOENCODING=utf-8")
	p.Stdout, p.Stderr = r.out, new(output)
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		stop()
		_ = p.Wait() // it was killed
		if t.Failed() {
			t.Log(r.out, p.Stderr)
		}
	})
	require.Eventually(t, func() bool {
		connection, err := net.Dial("tcp", address)
		if err == nil {
			_ = connection.Close()
		}
		return err == nil
	}, time.Minute, 20*time.Millisecond, "%s", p.Stderr)
	return r
}

// free returns an address at a port below those that systems assign to connections, so that none takes it before the
// program does.
func free() string {
	for {
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))); err == nil {
			defer func() { _ = listener.Close() }()
			return listener.Addr().String()
		}
	}
}
