package program

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/internal/testserver"
	"github.com/waybill-go/waybill/framework/program/internal/deploy"
)

// freeAddress returns a local address at which nothing listens.
func freeAddress(t testing.TB) string {
	t.Helper()
	port, err := testserver.FreePort()
	require.NoError(t, err)
	return testserver.Loopback(port)
}

// observed adds observe.address to a configuration.
func observed(t testing.TB, path string) (address string) {
	t.Helper()
	address = freeAddress(t)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(string(text)+"\nobserve: {address: \""+address+"\"}\n"), 0o600))
	return address
}

// page requests a page; the code is 0 if the program does not answer.
func page(t testing.TB, address, path string) (code int, body string) {
	t.Helper()
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + address + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

func awaitPage(t testing.TB, address, path string, code int, text string) {
	t.Helper()
	require.Eventually(t, func() bool {
		got, body := page(t, address, path)
		return got == code && strings.Contains(body, text)
	}, patience, 20*time.Millisecond, "%s %d %s", path, code, text)
}

func TestForwardServesMetricsAndProbesBeforeTheDatabaseIsUp(t *testing.T) {
	t.Parallel()
	o := databases["postgres"](t)
	o.migrate(t)
	o.publish(t, 1, 5)
	destination := newReceiver(t)
	door := newDoor(t, o.address)
	path := outbox{address: door.address}.config(t, "15s", destination.URL)
	address := observed(t, path)
	p := start(t, "forward", "-c", path)
	p.awaitLine(t, "the database cannot be reached")
	awaitPage(t, address, "/livez", http.StatusOK, "live")
	awaitPage(t, address, "/readyz", http.StatusServiceUnavailable, "no forwarder has opened the database yet")
	awaitPage(t, address, "/", http.StatusServiceUnavailable, "the database has not been reached yet")
	awaitPage(t, address, "/metrics", http.StatusOK, `waybill_attempts_total{result="delivered",sink="partner"} 0`)
	require.Zero(t, waybill(t, "health", "-c", path, "--timeout", "1m").code)
	r := waybill(t, "health", "-c", path, "--ready", "--timeout", "1m")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "not ready")

	door.open(t)
	destination.await(t, 5)
	awaitPage(t, address, "/readyz?verbose", http.StatusOK, "[+] database: a round trip")
	awaitPage(t, address, "/metrics", http.StatusOK, `waybill_attempts_total{result="delivered",sink="partner"} 5`)
	awaitPage(t, address, "/metrics", http.StatusOK, `waybill_sink_pending{sink="partner"} `)
	r = waybill(t, "health", "--ready", "--timeout", "1m", "--address", address)
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, "ready\n", r.stdout)
	awaitPage(t, address, "/", http.StatusOK, "partner")
	code, _ := page(t, address, "/debug/pprof/")
	require.Equal(t, http.StatusNotFound, code)
	p.signal(t, syscall.SIGTERM)
	require.Zero(t, p.wait())
	r = waybill(t, "health", "-c", path)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "waybill: no forwarder answers: Get ")
}

func TestAReloadOfTheProgramResetsNoTotal(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		first, second := newReceiver(t), newReceiver(t)
		path := o.config(t, "15s", first.URL)
		address := observed(t, path)
		f := start(t, "forward", "-c", path)
		o.publish(t, 1, 20)
		first.await(t, 20)
		change := func(old, to, answer string) {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Contains(t, string(text), old)
			require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), old, to, 1)), 0o600))
			f.signal(t, syscall.SIGHUP)
			f.awaitLine(t, answer)
		}
		change(first.URL, second.URL, "applied the changed configuration")
		o.publish(t, 21, 30)
		second.await(t, 10)
		awaitPage(t, address, "/metrics", http.StatusOK, `waybill_attempts_total{result="delivered",sink="partner"} 30`)

		change("shutdown_timeout: 10s", "shutdown_timeout: 11s", "a new forwarder takes over")
		o.publish(t, 31, 40)
		second.await(t, 20)
		awaitPage(t, address, "/metrics", http.StatusOK, `waybill_attempts_total{result="delivered",sink="partner"} 40`)
		awaitPage(t, address, "/metrics", http.StatusOK, "waybill_config_reload_success 1")

		change("threshold: 8", "threshold: -8", "the configuration was not applied")
		awaitPage(t, address, "/metrics", http.StatusOK, "waybill_config_reload_success 0")
		change("threshold: -8", "threshold: 8", "the configuration is unchanged")
		awaitPage(t, address, "/metrics", http.StatusOK, "waybill_config_reload_success 1")
		change(address, freeAddress(t), "observe.pprof applies when the program is started again")
		awaitPage(t, address, "/readyz", http.StatusOK, "ready")
		f.signal(t, syscall.SIGTERM)
		require.Zero(t, f.wait())
	})
}

func TestAnAddressThatIsTakenEndsTheProgram(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.migrate(t)
	path := o.config(t, "15s", "http://127.0.0.1:1/")
	address := observed(t, path)
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	defer listener.Close()
	r := waybill(t, "forward", "-c", path)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "observe.address: ")
}

func TestHealthWithoutAnAddressIsWrongUsage(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "database: sqlite:nothing.db\n")
	require.Equal(t, exitUsage, waybill(t, "health", "-c", path).code)
	require.Equal(t, exitUsage, waybill(t, "health", "--address", "8090").code)
	r := waybill(t, "health", "-c", writeFile(t, "observe: {address: here}\n"))
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "observe.address is \"here\"")
}

// systemd is a socket to which a service sends its state, in place of systemd's.
type systemd struct {
	path     string
	messages chan string
}

func newSystemd(t testing.TB) *systemd {
	t.Helper()
	folder, err := os.MkdirTemp("", "notify") // t.TempDir's names are too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	s := &systemd{filepath.Join(folder, "socket"), make(chan string, 1000)}
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: s.path, Net: "unixgram"})
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buffer := make([]byte, 4096)
		for {
			n, err := socket.Read(buffer)
			if err != nil {
				return
			}
			s.messages <- string(buffer[:n])
		}
	}()
	t.Cleanup(func() { _ = socket.Close(); <-ended })
	return s
}

// await waits for a message that begins with a text, and returns it.
func (s *systemd) await(t testing.TB, text string) string {
	t.Helper()
	late := time.After(patience)
	for {
		select {
		case message := <-s.messages:
			if strings.HasPrefix(message, text) {
				return message
			}
		case <-late:
			t.Fatalf("systemd should receive %q", text)
		}
	}
}

func TestSystemdIsNotified(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.migrate(t)
	destination := newReceiver(t)
	path := o.config(t, "15s", destination.URL)
	manager := newSystemd(t)
	p := startIn(t, []string{"NOTIFY_SOCKET=" + manager.path, "WATCHDOG_USEC=100000"}, "forward", "-c", path)
	require.Contains(t, manager.await(t, "READY=1"), "STATUS=waiting for the database")
	manager.await(t, "STATUS=forwarding")
	manager.await(t, "WATCHDOG=1")
	manager.await(t, "WATCHDOG=1")
	p.signal(t, syscall.SIGHUP)
	require.Regexp(t, `^RELOADING=1\nMONOTONIC_USEC=\d+`, manager.await(t, "RELOADING=1"))
	manager.await(t, "READY=1")
	p.signal(t, syscall.SIGTERM)
	manager.await(t, "STOPPING=1")
	require.Zero(t, p.wait())
}

func TestPrintPrintsTheArtifacts(t *testing.T) {
	t.Parallel()
	for name := range deploy.Names() {
		r := waybill(t, "print", name)
		require.Zero(t, r.code, r.stderr)
		text, _ := deploy.Text(name)
		require.Equal(t, text, r.stdout)
	}
	for _, args := range [][]string{{"print"}, {"print", "nothing"}, {"print", "rules", "systemd"}} {
		r := waybill(t, args...)
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.stderr, "name one of compose, grafana, kubernetes, rules, systemd")
	}
}

func TestTheSystemdUnitIsValid(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("THE UNIT IS NOT CHECKED: there is no systemd-analyze; it comes with the package systemd")
	}
	text, _ := deploy.Text("systemd")
	// The programs that the unit names must exist.
	text = regexp.MustCompile(`(?m)^(Exec\w+=)waybill `).ReplaceAllString(text, "${1}/bin/true ")
	unit := filepath.Join(t.TempDir(), "waybill.service")
	require.NoError(t, os.WriteFile(unit, []byte(text), 0o600))
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", unit).CombinedOutput()
	require.NoError(t, err, string(out))
	require.NotContains(t, string(out), "waybill.service", "systemd-analyze finds no mistake")
	out, err = exec.CommandContext(t.Context(), analyze, "security", "--offline=yes", "--threshold=20", unit).CombinedOutput()
	require.NoError(t, err, "%s", fmt.Sprint(string(out)))
}
