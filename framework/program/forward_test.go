package program

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

func TestWhatIsDoneAtASignalIsDoneHoweverFastTheProgramEnds(t *testing.T) {
	t.Parallel()
	for range 10_000 {
		ctx, cancel := context.WithCancel(t.Context())
		done := false
		end := onDone(ctx, func() { done = true })
		go cancel()
		<-ctx.Done()
		end()
		require.True(t, done)
	}
	end := onDone(t.Context(), func() { t.Error("the program ended by itself") })
	end()
}

func TestForwardDeliversWhatPlainSQLInserts(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		o.publish(t, 1, 20)
		destination := newReceiver(t)

		f := startForward(t, "-c", o.config(t, "15s", destination.URL))
		destination.await(t, 20)
		o.publish(t, 21, 40)
		destination.await(t, 40)

		r := f.end(t)
		require.Zero(t, r.code, r.stderr)
		require.Empty(t, r.stdout)
		require.NotContains(t, r.stderr, "level=ERROR")
		for line := range strings.Lines(r.stderr) {
			if !strings.Contains(line, "showing that this process is alive failed") { // as on a machine that stalls
				require.NotContains(t, line, "level=WARN")
			}
		}
		for body, count := range destination.counts {
			require.Equal(t, 1, count, body)
		}
	})
}

func TestForwardOnAnOutboxThatIsNotMigratedFails(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		r := waybill(t, "forward", "-c", o.config(t, "15s", "http://127.0.0.1:1/"))
		require.Equal(t, exitFailed, r.code)
		require.Regexp(t, "^waybill: the outbox is not migrated: .*: run `waybill migrate`, or call Migrate\n$", r.stderr)
	})
}

// running is a running process of the program.
type running struct {
	*exec.Cmd
	lines chan string // of stderr, until it ends
}

// start starts the program. If it still runs at the end of the test, it is killed.
func start(t testing.TB, args ...string) *running {
	t.Helper()
	return startIn(t, []string{}, args...) // without the developer's environment
}

func startIn(t testing.TB, environ []string, args ...string) *running {
	t.Helper()
	return startCommand(t, exec.Command(binary, args...), environ)
}

func startCommand(t testing.TB, command *exec.Cmd, environ []string) *running {
	t.Helper()
	p := &running{Cmd: command, lines: make(chan string, 1000)}
	p.Env = environ
	stderr, err := p.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	go func() {
		defer close(p.lines)
		for scanner := bufio.NewScanner(stderr); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		if p.ProcessState == nil {
			_ = p.Process.Kill()
			for line := range p.lines {
				if t.Failed() {
					t.Log(line)
				}
			}
			_ = p.wait()
		}
	})
	return p
}

// wait reads stderr to its end and returns the exit code.
func (p *running) wait() int {
	for range p.lines { //nolint:revive // discards the remaining lines
	}
	_ = p.Wait()
	return p.ProcessState.ExitCode()
}

// awaitLine waits for a line of stderr that contains a text.
func (p *running) awaitLine(t *testing.T, text string) string {
	t.Helper()
	late := time.After(patience)
	for {
		select {
		case line, ok := <-p.lines:
			require.True(t, ok, "the program ended without saying %q", text)
			if strings.Contains(line, text) {
				return line
			}
		case <-late:
			t.Fatalf("the program should log %q", text)
		}
	}
}

func (p *running) signal(t testing.TB, s os.Signal) {
	t.Helper()
	require.NoError(t, p.Process.Signal(s))
}

func TestForwardKilledInABacklogDeliversTheRestWhenStartedAgain(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		const backlog = 3000
		o.migrate(t)
		o.publish(t, 1, backlog)
		destination := newReceiver(t)
		config := o.config(t, "1s", destination.URL)

		first := start(t, "forward", "-c", config)
		destination.await(t, backlog/10)
		first.signal(t, syscall.SIGKILL)
		first.wait()
		got, _ := destination.bodies()
		require.Less(t, got, backlog, "the program was killed in the middle")

		second := start(t, "forward", "-c", config)
		destination.await(t, backlog)
		second.signal(t, syscall.SIGTERM)
		require.Zero(t, second.wait())
	})
}

func TestForwardStoppedByASignalGivesItsLeasesBack(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		o.publish(t, 1, 10)
		destination := newReceiver(t)
		config := o.config(t, "1h", destination.URL)

		first := start(t, "forward", "-c", config)
		destination.await(t, 10)
		first.signal(t, syscall.SIGTERM)
		require.Zero(t, first.wait())

		o.publish(t, 11, 20)
		second := start(t, "forward", "-c", config)
		destination.await(t, 20) // long before the hour is over
		second.signal(t, syscall.SIGINT)
		require.Zero(t, second.wait())
	})
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.migrate(t)
	o.publish(t, 1, 1)
	entered, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	stuck := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		once.Do(func() { close(entered) })
		<-leave
	}))
	defer stuck.Close()
	defer close(leave)

	p := start(t, "forward", "-c", o.config(t, "15s", stuck.URL))
	<-entered
	p.signal(t, syscall.SIGTERM)
	p.awaitLine(t, "stopping")
	p.signal(t, syscall.SIGTERM)
	require.Equal(t, exitSignal, p.wait())
}

func TestForwardWaitsForADatabaseThatIsDown(t *testing.T) {
	t.Parallel()
	o := databases["postgres"](t)
	o.migrate(t)
	o.publish(t, 1, 5)
	destination := newReceiver(t)
	door := newDoor(t, o.address)

	p := start(t, "forward", "-c", outbox{address: door.address}.config(t, "15s", destination.URL))
	line := p.awaitLine(t, "the database cannot be reached")
	require.Contains(t, line, "level=WARN")
	door.open(t)
	p.awaitLine(t, "connected to the database")
	destination.await(t, 5)
	p.signal(t, syscall.SIGTERM)
	require.Zero(t, p.wait())
}

func TestForwardStopsWhileItWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	p := start(t, "forward", "-c", outbox{address: nowhere}.config(t, "15s", "http://127.0.0.1:1/"))
	line := p.awaitLine(t, "the database cannot be reached")
	require.NotContains(t, line, "hunter2")
	p.signal(t, syscall.SIGTERM)
	require.Zero(t, p.wait())
}

func TestForwardDoesNotWaitAfterPermanentErrors(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(postgrestest.DSN(t))
	require.NoError(t, err)
	missingDatabase, missingUser := *u, *u
	missingDatabase.Path = "/no_such_database"
	missingUser.User = url.UserPassword("no_such_user", "hunter2")
	for name, c := range map[string]struct {
		address *url.URL
		stderr  string
	}{
		"unknown database": {&missingDatabase, `database "no_such_database" does not exist`},
		"unknown user":     {&missingUser, `no_such_user`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := waybill(t, "forward", "-c", outbox{address: c.address.String()}.config(t, "15s", "http://127.0.0.1:1/"))
			require.Equal(t, exitFailed, r.code)
			require.Contains(t, r.stderr, c.stderr)
			require.NotContains(t, r.stderr, "hunter2")
			require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
		})
	}
}

// door is an address at which nothing listens until it is opened. Then it leads to a database.
type door struct {
	address string
	port    string
	target  string
}

func newDoor(t *testing.T, address string) *door {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	d := &door{port: freeAddress(t), target: u.Host}
	u.Host = d.port
	d.address = u.String()
	return d
}

func (d *door) open(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", d.port)
	require.NoError(t, err)
	var connections sync.WaitGroup
	connections.Go(func() {
		for {
			outside, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Go(func() { d.pass(outside) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		connections.Wait()
	})
}

// pass copies bytes in both directions until one side ends.
func (d *door) pass(outside net.Conn) {
	defer outside.Close()
	inside, err := net.Dial("tcp", d.target)
	if err != nil {
		return
	}
	defer inside.Close()
	done := make(chan struct{}, 2)
	carry := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		done <- struct{}{}
	}
	go carry(inside, outside)
	go carry(outside, inside)
	<-done
}

func TestForwardAppliesAChangedConfigurationWhileItRuns(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		first, second := newReceiver(t), newReceiver(t)
		path := o.config(t, "15s", first.URL)
		f := start(t, "forward", "-c", path)
		o.publish(t, 1, 20)
		first.await(t, 20)
		change := func(old, to string) {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			changed := strings.Replace(string(text), old, to, 1)
			require.NotEqual(t, string(text), changed)
			require.NoError(t, os.WriteFile(path, []byte(changed), 0o600))
		}
		reload := func(answer string) {
			f.signal(t, syscall.SIGHUP)
			f.awaitLine(t, answer)
		}

		reload("the configuration is unchanged")
		change("threshold: 8", "threshold: -8")
		reload("sinks.partner.parallelism.threshold is -8")
		f.awaitLine(t, "the configuration was not applied")
		change("threshold: -8", "threshold: 16")
		reload("applied the changed configuration")
		o.publish(t, 21, 40)
		first.await(t, 40)

		change(first.URL, second.URL)
		reload("applied the changed configuration")
		o.publish(t, 41, 60)
		second.await(t, 20)

		f.signal(t, syscall.SIGTERM)
		require.Zero(t, f.wait())
		require.Len(t, first.counts, 40)
		for _, counts := range []map[string]int{first.counts, second.counts} {
			for body, count := range counts {
				require.Equal(t, 1, count, body)
			}
		}
	})
}

func TestAReloadReadsFilesWithValuesAgain(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.migrate(t)
	first, second := newReceiver(t), newReceiver(t)
	path := o.config(t, "15s", "file:url")
	file := filepath.Join(filepath.Dir(path), "url")
	require.NoError(t, os.WriteFile(file, []byte(first.URL+"\n"), 0o600))
	f := start(t, "forward", "-c", path)
	o.publish(t, 1, 20)
	first.await(t, 20)

	require.NoError(t, os.Remove(file))
	f.signal(t, syscall.SIGHUP)
	f.awaitLine(t, "sinks.partner.with.url: the file "+file+" does not exist")
	f.awaitLine(t, "the configuration was not applied")
	require.NoError(t, os.WriteFile(file, []byte(second.URL+"\n"), 0o600))
	f.signal(t, syscall.SIGHUP)
	f.awaitLine(t, "applied the changed configuration")
	o.publish(t, 21, 40)
	second.await(t, 20)

	f.signal(t, syscall.SIGTERM)
	require.Zero(t, f.wait())
	require.Len(t, first.counts, 20)
}

// A sink that cannot be opened does not delay other sinks, and does not end a forwarder at a reload.
func TestASinkThatCannotBeOpenedDelaysNoOther(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		good := newReceiver(t)
		folder := filepath.Join(t.TempDir(), "later")
		path := o.config(t, "15s", good.URL)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		archive := func(sink string) string {
			return strings.Replace(strings.Replace(string(text), "sinks:\n", "sinks:\n  "+sink+": {kind: jsonlines, start: oldest, with: {path: "+filepath.Join(folder, sink)+"}}\n", 1), "[partner]", "[partner, "+sink+"]", 1)
		}
		require.NoError(t, os.WriteFile(path, []byte(archive("first")), 0o600))
		f := start(t, "forward", "-c", path)
		f.awaitLine(t, "the sink is unavailable")
		o.publish(t, 1, 20)
		good.await(t, 20)

		require.NoError(t, os.WriteFile(path, []byte(archive("second")), 0o600))
		f.signal(t, syscall.SIGHUP)
		f.awaitLine(t, "the configuration was not applied")
		o.publish(t, 21, 40)
		good.await(t, 40)

		require.NoError(t, os.Mkdir(folder, 0o700))
		require.Eventually(t, func() bool {
			lines, _ := os.ReadFile(filepath.Join(folder, "first"))
			return strings.Count(string(lines), "\n") == 40
		}, patience, 50*time.Millisecond, "it is opened with a later delivery")
		f.signal(t, syscall.SIGTERM)
		require.Zero(t, f.wait())
	})
}

// Waiting for another database must not block later reloads.
func TestAReloadToADatabaseThatIsDownIsRefused(t *testing.T) {
	t.Parallel()
	o := databases["postgres"](t)
	o.migrate(t)
	first, second := newReceiver(t), newReceiver(t)
	path := o.config(t, "15s", first.URL)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	f := start(t, "forward", "-c", path)
	o.publish(t, 1, 20)
	first.await(t, 20)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), "database: ", "database: postgres://nowhere@127.0.0.1:1/nothing #", 1)), 0o600))
	f.signal(t, syscall.SIGHUP)
	o.publish(t, 21, 40)
	first.await(t, 40)
	f.awaitLine(t, "connection refused")
	f.awaitLine(t, "the configuration was not applied")
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), first.URL, second.URL, 1)), 0o600))
	f.signal(t, syscall.SIGHUP)
	f.awaitLine(t, "applied the changed configuration")
	o.publish(t, 41, 60)
	second.await(t, 20)
	f.signal(t, syscall.SIGTERM)
	require.Zero(t, f.wait())
}

func TestForwardWorksOnlyOnTheSinksOfItsFlags(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		one, two := newReceiver(t), newReceiver(t)
		path := writeFile(t, fmt.Sprintf(`
database: %q
sinks:
  one: {kind: http, with: {url: %q}}
  two: {kind: http, start: oldest, with: {url: %q}}
routes:
  "order.*": [one, two]
`, o.address, one.URL, two.URL))
		f := start(t, "forward", "-c", path, "--sink", "one", "--listen=false")
		o.publish(t, 1, 20)
		one.await(t, 20)
		f.signal(t, syscall.SIGTERM)
		require.Zero(t, f.wait())
		require.Empty(t, two.counts)
		f = start(t, "forward", "-c", path, "--sink", "two")
		two.await(t, 20)
		f.signal(t, syscall.SIGTERM)
		require.Zero(t, f.wait())
		require.Len(t, one.counts, 20)
		require.Len(t, two.counts, 20)

		f = start(t, "forward", "-c", path, "--sink", "three")
		f.awaitLine(t, "--sink three: there is no such sink; the configuration has one, two")
		require.NotZero(t, f.wait())
	})
}

func TestForwardGoesOnWithTheFileThatReplacedItsDatabase(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path, lines := filepath.Join(folder, "outbox.db"), filepath.Join(folder, "lines")
	config := writeFile(t, fmt.Sprintf("database: sqlite:%s\nsinks: {s: {kind: jsonlines, with: {path: %s}}}\nroutes: {'*': [s]}\n", path, lines))
	address := observed(t, config)
	require.Zero(t, waybill(t, "migrate", "-c", config).code)
	f := start(t, "forward", "-c", config)
	publishTo(t, path, "first")
	f.awaitFile(t, lines, `"id":"first"`)
	awaitPage(t, address, "/readyz", http.StatusOK, "ready")

	for _, ending := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(path + ending); !errors.Is(err, fs.ErrNotExist) { // the forwarder may remove the last two first
			require.NoError(t, err)
		}
	}
	f.awaitLine(t, "was removed")
	awaitPage(t, address, "/readyz", http.StatusServiceUnavailable, "no forwarder has opened the database yet")
	require.Zero(t, waybill(t, "migrate", "-c", config).code)
	publishTo(t, path, "second")
	f.awaitFile(t, lines, `"id":"second"`)
	awaitPage(t, address, "/readyz", http.StatusOK, "ready")

	require.NoError(t, os.Rename(path, path+".old"))
	f.awaitLine(t, "outbox.db-wal still belongs to the old file")
	require.Equal(t, exitFailed, f.wait())
}

// awaitFile waits until a file contains a text.
func (p *running) awaitFile(t *testing.T, path, text string) {
	t.Helper()
	require.Eventually(t, func() bool {
		content, _ := os.ReadFile(path)
		return strings.Contains(string(content), text)
	}, patience, 10*time.Millisecond, "%s should contain %s", path, text)
}

func TestForwardOutlivesTheReadersOfItsOutputAndItsLog(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path, lines := filepath.Join(folder, "outbox.db"), filepath.Join(folder, "lines")
	config := writeFile(t, fmt.Sprintf("database: sqlite:%s\nsinks: {s: {kind: jsonlines, with: {path: %s}}, o: {kind: jsonlines}}\nroutes: {'*': [s, o]}\n", path, lines))
	require.Zero(t, waybill(t, "migrate", "-c", config).code)
	output, writer, err := os.Pipe()
	require.NoError(t, err)
	p := &running{Cmd: exec.Command(binary, "forward", "-c", config)}
	p.Env, p.Stdout, p.Stderr = []string{}, writer, writer
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill() })
	require.NoError(t, writer.Close())
	publishTo(t, path, "first")
	p.awaitFile(t, lines, `"id":"first"`)

	require.NoError(t, output.Close())
	p.signal(t, syscall.SIGHUP) // which it logs
	for _, id := range []string{"second", "third"} {
		publishTo(t, path, id)
		p.awaitFile(t, lines, `"id":"`+id+`"`)
	}
	r := waybill(t, "status", "-c", config)
	require.Regexp(t, ` o +0  [23] `, r.stdout, "the sink on stdout waits")
	p.signal(t, syscall.SIGTERM)
	require.NoError(t, p.Wait())
}

func TestLineEndsOfVariablesDoNotReachTheLibrariesThatReadThem(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(postgrestest.DSN(t))
	require.NoError(t, err)
	config := writeFile(t, "database: \"postgres:///?sslmode=disable\"\n")
	p := startIn(t, []string{"PGHOST=" + u.Hostname() + "\n", "PGPORT=" + u.Port() + "\r\n", "PGUSER=" + u.User.Username() + "\n", "PGDATABASE=" + u.Path[1:] + "\n"}, "migrate", "-c", config)
	require.Zero(t, p.wait())
}
