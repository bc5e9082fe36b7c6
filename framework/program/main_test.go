package program

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/sinks"
)

// patience limits the wait for something that should happen at once.
const patience = 2 * time.Minute

// binary is the program, built once for the tests that need a process.
var binary string

func TestTheLogOfTheLibraryQuotesNoAnswers(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	for _, line := range []string{"Unsolicited response received on idle HTTP channel starting with \"secret\"; err=<nil>\n", "other starting with \"x\"\n"} {
		n, err := withoutAnswers{&out}.Write([]byte(line))
		require.NoError(t, err)
		require.Equal(t, len(line), n)
	}
	require.Equal(t, "Unsolicited response received on idle HTTP channel\nother starting with \"x\"\n", out.String())
}

func TestMain(m *testing.M) {
	if os.Getenv(hangingUp) != "" {
		os.Exit(hangUp())
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) (code int) {
	folder, err := os.MkdirTemp("", "waybill")
	if err != nil {
		return complain(err)
	}
	defer os.RemoveAll(folder)
	binary = filepath.Join(folder, "waybill")
	if output, err := exec.Command("go", "build", "-o", binary, "../../cmd/waybill").CombinedOutput(); err != nil {
		return complain(fmt.Errorf("build the program: %w: %s", err, output))
	}
	code = m.Run()
	metrics := goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick") // sarama never stops this goroutine
	if err := errors.Join(postgrestest.Stop(), mysqltest.Stop(), goleak.Find(metrics)); err != nil {
		return complain(err)
	}
	return code
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// result is the exit code and the output of a command.
type result struct {
	code           int
	stdout, stderr string
}

// waybill runs a command in this process, without an environment.
func waybill(t testing.TB, args ...string) result {
	t.Helper()
	return waybillWith(t, nil, args...)
}

func waybillWith(t testing.TB, environ []string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := Run(t.Context(), Call{args, environ, &stdout, &stderr})
	return result{code, stdout.String(), stderr.String()}
}

// ownKinds returns the kinds of the program without options.
func ownKinds(t testing.TB) *sinks.Set {
	t.Helper()
	made, err := partsOf(nil)
	require.NoError(t, err)
	return made.Kinds
}

// outbox is a fresh database, not migrated yet.
type outbox struct {
	address string // as in the configuration
	db      *sql.DB
}

// databases are the databases on which commands are tested.
var databases = map[string]func(t testing.TB) outbox{
	"postgres": func(t testing.TB) outbox {
		dsn := postgrestest.DSN(t)
		db, err := sql.Open("postgres", dsn)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return outbox{dsn, db}
	},
	"sqlite": func(t testing.TB) outbox {
		path := filepath.Join(t.TempDir(), "outbox.db")
		db, err := sqlite.OpenDB(path)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return outbox{"sqlite:" + path, db}
	},
}

// onEach runs a test on each database.
func onEach(t *testing.T, test func(t *testing.T, o outbox)) {
	t.Helper()
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// migrate creates the tables.
func (o outbox) migrate(t testing.TB) {
	t.Helper()
	r := waybill(t, "migrate", "--database", o.address)
	require.Zero(t, r.code, r.stderr)
}

// publish inserts rows as any program can, with type, key and payload only.
func (o outbox) publish(t testing.TB, first, last int) {
	t.Helper()
	tx, err := o.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	insert := `INSERT INTO outbox (type, key, payload) VALUES ('order.placed', $1, $2)`
	if strings.HasPrefix(o.address, "mysql:") {
		insert = "INSERT INTO outbox (type, `key`, payload) VALUES ('order.placed', ?, ?)"
	}
	for n := first; n <= last; n++ {
		_, err := tx.ExecContext(t.Context(), insert, fmt.Sprintf("order-%d", n%50), fmt.Sprintf(`{"n":%d}`, n))
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit())
}

// config writes a configuration that forwards everything to an address, and returns its path.
func (o outbox) config(t testing.TB, lease, url string) (path string) {
	t.Helper()
	return writeFile(t, fmt.Sprintf(`
database: %q
forwarder: {lease: %s, shutdown_timeout: 10s}
sinks:
  partner:
    kind: http
    with: {url: %q}
    parallelism: {threshold: 8}
routes:
  "order.*": [partner]
`, o.address, lease, url))
}

func writeFile(t testing.TB, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "waybill.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// receiver is a destination that counts its deliveries by body.
type receiver struct {
	*httptest.Server

	mu      sync.Mutex
	counts  map[string]int
	changed chan struct{} // closed and replaced with each request
}

func newReceiver(t testing.TB) *receiver {
	r := &receiver{counts: make(map[string]int), changed: make(chan struct{})}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[string(body)]++
	close(r.changed)
	r.changed = make(chan struct{})
}

// bodies returns the number of different bodies that have arrived, and a channel that is closed at the next
// arrival.
func (r *receiver) bodies() (int, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.counts), r.changed
}

// await waits until the receiver has received a number of different bodies.
func (r *receiver) await(t testing.TB, wanted int) {
	t.Helper()
	late := time.After(patience)
	for {
		got, changed := r.bodies()
		if got >= wanted {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("%d of %d notifications came within %s", got, wanted, patience)
		}
	}
}

// forwarding is a forward command that runs in this process.
type forwarding struct {
	stop   context.CancelFunc
	result chan result
}

func startForward(t *testing.T, args ...string) *forwarding {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &forwarding{stop: cancel, result: make(chan result, 1)}
	go func() {
		var stdout, stderr bytes.Buffer
		code := Run(ctx, Call{append([]string{"forward"}, args...), nil, &stdout, &stderr})
		f.result <- result{code, stdout.String(), stderr.String()}
	}()
	t.Cleanup(cancel)
	return f
}

// end stops the command like a signal, and returns its result.
func (f *forwarding) end(t *testing.T) result {
	t.Helper()
	f.stop()
	select {
	case r := <-f.result:
		return r
	case <-time.After(patience):
		t.Fatal("forward should stop")
		return result{}
	}
}
