package privacy_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
	"github.com/waybill-go/waybill/sinks/jsonlines"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// signedUp has private values, of which each is unique and long enough to be found.
type signedUp struct {
	N       int
	Person  string
	Email   string
	Address struct{ Street string }
	Tags    []struct{ Name string }
}

// path is how the sinks treat a notification, by its number.
func (s signedUp) is(path int) bool { return s.N%6 == path }

// world is an outbox with every kind of way for a notification, and everything that keeps something of it.
type world struct {
	t       testing.TB
	o       *waybill.Outbox
	db      *sql.DB
	folder  string
	cluster *kafkatest.Cluster
	topic   string
	tables  func(t testing.TB) map[string]string // everything in the database, by where it stands

	mu       sync.Mutex
	accepts  bool             // the function refuses nothing
	told     map[int]signedUp // what the function got last
	failed   map[int]bool
	received strings.Builder // by HTTP receivers, which are outside
	log      bytes.Buffer
}

var errRefused = errors.New("refused")

// handle refuses some notifications for good and some at first, with their values in the error.
func (w *world) handle(_ context.Context, s signedUp) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told[s.N] = s
	switch again := w.failed[s.N]; {
	case w.accepts:
	case s.is(0):
		return sinks.Permanent(sinks.WithAnswer(fmt.Errorf("%w: %s", errRefused, s.Email), "<"+url.QueryEscape(s.Address.Street)+">"))
	case s.is(1) && !again:
		w.failed[s.N] = true
		panic("no " + base64.StdEncoding.EncodeToString([]byte(s.Email)))
	case s.is(2) && !again:
		w.failed[s.N] = true
		return fmt.Errorf("try again: %q", s.Address.Street)
	}
	return nil
}

func (w *world) handleMany(_ context.Context, all []signedUp) error {
	if all[0].is(3) {
		return sinks.Permanent(fmt.Errorf("%w: %v", errRefused, all))
	}
	return nil
}

// ServeHTTP refuses some requests with what they had.
func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.received.Write(body)
	var got struct {
		signedUp
		Data signedUp `json:"data"`
	}
	_ = json.Unmarshal(body, &got)
	s := got.signedUp
	if strings.Contains(r.URL.Path, "customer") {
		s = got.Data
	}
	if s.is(4) || s.is(5) {
		out.Header().Set("X-Echo", base64.URLEncoding.EncodeToString(body))
		out.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = fmt.Fprintf(out, "cannot take %s, hex %s", body, hex.EncodeToString([]byte(s.Email)))
	}
}

// got returns what the receivers have.
func (w *world) got() (told map[int]signedUp, received string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.told), w.received.String()
}

func (w *world) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(line)
}

func newWorld(t testing.TB, db *sql.DB, o *waybill.Outbox) *world {
	w := &world{t: t, o: o, db: db, folder: t.TempDir(), cluster: kafkatest.Fake(t), told: make(map[int]signedUp), failed: make(map[int]bool)}
	w.topic = w.cluster.CreateTopic(t, 1, nil)
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	o.Privacy = privacy.Config{Master: local(t, masterKey(3)), Cache: -1}
	o.Config.Logger = slog.New(slog.NewTextHandler(w, nil))
	waybill.Register[signedUp](o, "signed.up", waybill.Key(func(s signedUp) string { return s.Person }),
		waybill.Private(func(s signedUp) string { return s.Person }, "Email", "Address.Street", "Tags.Name"))

	soon := forwarder.Retry{Initial: time.Millisecond, Max: 2 * time.Millisecond, MaxAttempts: 3}
	waybill.Handle(o, "function", w.handle).Retry = soon
	many := waybill.HandleMany(o, "many", w.handleMany)
	many.Retry, many.Collect = soon, waybill.Sink{}.Collect
	many.Collect.Wait, many.Collect.Size = 10*time.Millisecond, 3
	to := o.Deliver("http", httpsink.Config{URL: server.URL}, "*")
	to.Private, to.Retry = sinks.PrivateReveal, soon
	hooks, err := webhooks.New(sinks.Instance{Types: o.Types()}, webhooks.Config{ClientConfig: httpsink.ClientConfig{AllowHTTP: true, Guard: httpsink.Guard{Mode: httpsink.GuardOff}}})
	require.NoError(t, err)
	to = o.Deliver("customers", hooks, "*")
	to.Private, to.Retry = sinks.PrivateReveal, soon
	o.Deliver("topic", kafka.Config{Brokers: w.cluster.Brokers, Topic: w.topic}, "*")
	for _, show := range []sinks.Private{sinks.PrivateKeep, sinks.PrivateDrop, sinks.PrivateMask} {
		o.Deliver(string(show), jsonlines.Config{Path: filepath.Join(w.folder, string(show)+".jsonl")}, "*").Private = show
	}
	require.NoError(t, o.Migrate(t.Context()))
	require.NoError(t, o.Open(t.Context()))
	_, _, err = o.Endpoints().Create(t.Context(), webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: server.URL + "/customer"}})
	require.NoError(t, err)
	return w
}

// secrets returns private values of a notification.
func secretsOf(s signedUp) []string { return []string{s.Email, s.Address.Street, s.Tags[0].Name} }

func newSignedUp(n int, person, random string) signedUp {
	s := signedUp{N: n, Person: person, Email: fmt.Sprintf("%s%d@example.com", random, n), Tags: []struct{ Name string }{{fmt.Sprintf("tag \"%s\" %d", random, n)}}}
	s.Address.Street = fmt.Sprintf("%s street %d", random, n)
	return s
}

func (w *world) publish(s signedUp, fail error) {
	err := w.o.InTx(w.t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(w.o.Publish(ctx, tx, waybill.With(s, waybill.Metadata("tenant", "acme"))), fail)
	})
	require.ErrorIs(w.t, err, fail)
}

// settle waits until everything is delivered, or dead.
func (w *world) settle() {
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		sample, err := w.o.Store().Sample(w.t.Context(), store.SampleQuery{Types: w.o.Routing().Filters()})
		require.NoError(c, err)
		for _, s := range sample.Sinks {
			require.True(c, len(s.Lanes) > 0 || s.Sink == store.SinkUnrouted, "%s has no cursors yet", s.Sink)
			require.Zero(c, s.Pending, s.Sink)
		}
		parked, err := w.o.Admin("test").Count(w.t.Context(), admin.Filter{})
		require.NoError(c, err)
		for _, p := range parked {
			require.Equal(c, store.StateDead, p.State, p.Sink)
		}
	}, 40*time.Second, 20*time.Millisecond)
}

// copies returns all texts that are kept: tables, dump, files, topic, export and log.
func (w *world) copies() map[string]string {
	all := w.tables(w.t)
	files, err := filepath.Glob(filepath.Join(w.folder, "*"))
	require.NoError(w.t, err)
	for _, name := range files {
		content, err := os.ReadFile(name)
		require.NoError(w.t, err)
		all[name] = string(content)
	}
	for _, r := range w.cluster.ConsumeAll(w.t, w.topic, w.cluster.Count(w.t, w.topic)) {
		all["topic"] += fmt.Sprintf("%s %s %v\n", r.Key, r.Value, r.Headers)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all["log"] = w.log.String()
	return all
}

func (w *world) export() {
	file, err := os.Create(filepath.Join(w.folder, "export.jsonl"))
	require.NoError(w.t, err)
	_, err = w.o.Admin("test").Export(w.t.Context(), admin.ExportRequest{}, func(e *admin.Exported) error { return json.NewEncoder(file).Encode(e) }, func(admin.Exporting) {})
	require.NoError(w.t, errors.Join(err, file.Close()))
}

func (w *world) erase(person string) {
	plan, err := w.o.Admin("test").Erase(w.t.Context(), w.o.Keyring(), person)
	require.NoError(w.t, err)
	action, err := plan.Run(w.t.Context(), nil)
	require.NoError(w.t, err)
	require.Equal(w.t, store.ActionDone, action.State)
	again, err := w.o.Admin("test").Erase(w.t.Context(), w.o.Keyring(), person)
	require.NoError(w.t, err)
	require.Zero(w.t, again.Keys)
}

func (w *world) requireNowhere(values []string) {
	w.t.Helper()
	for where, text := range w.copies() {
		for _, v := range values {
			quoted, err := json.Marshal(v)
			require.NoError(w.t, err)
			for _, spelled := range []string{v, string(quoted[1 : len(quoted)-1]), url.QueryEscape(v), hex.EncodeToString([]byte(v)), base64.StdEncoding.EncodeToString([]byte(v)), base64.RawURLEncoding.EncodeToString([]byte(v))} {
				if i := strings.Index(text, spelled); i >= 0 {
					require.Failf(w.t, "a private value is kept", "%s in %s: …%s", v, where, text[max(0, i-300):min(len(text), i+100)])
				}
			}
		}
	}
}

// readable counts the values of a person that the copies outside of the database can still be decrypted to.
func (w *world) readable(values []string) (n int) {
	content, err := os.ReadFile(filepath.Join(w.folder, "keep.jsonl"))
	require.NoError(w.t, err)
	for line := range strings.Lines(string(content)) {
		var e struct {
			ID, Type string
			Version  int
			Metadata notification.Metadata
			Payload  json.RawMessage
		}
		require.NoError(w.t, json.Unmarshal([]byte(line), &e))
		v := w.o.Keyring().Views(w.t.Context(), []*notification.Envelope{{ID: e.ID, Type: e.Type, Version: e.Version, Metadata: e.Metadata, Payload: e.Payload}}, sinks.PrivateReveal, false)[0]
		require.NoError(w.t, v.Err)
		for _, text := range v.Revealed {
			for _, value := range values {
				if text == value {
					n++
				}
			}
		}
	}
	return n
}

func TestNothingPrivateStandsAnywhereThroughEveryPath(t *testing.T) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		dsn := postgrestest.DSN(t)
		db, err := postgres.OpenDB(dsn)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		w := newWorld(t, db, waybill.Postgres(db, waybill.PostgresConfig{Receipts: true}))
		tools, err := filepath.Glob("/usr/lib/postgresql/*/bin/pg_dump")
		require.NoError(t, err)
		require.NotEmpty(t, tools)
		w.tables = func(t testing.TB) map[string]string {
			dump, err := exec.CommandContext(t.Context(), tools[len(tools)-1], "--inserts", dsn).CombinedOutput()
			require.NoError(t, err, "%s", dump)
			require.Contains(t, string(dump), "signed.up")
			return map[string]string{"dump": string(dump)}
		}
		through(t, w)
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := outboxtest.File(t)
		db, err := sqlite.OpenDB(path)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		w := newWorld(t, db, waybill.SQLite(db, waybill.SQLiteConfig{Receipts: true}))
		w.tables = func(t testing.TB) map[string]string {
			copied := filepath.Join(t.TempDir(), "dump.db")
			_, err := db.ExecContext(t.Context(), `VACUUM INTO ?`, copied)
			require.NoError(t, err)
			dump, err := os.ReadFile(copied)
			require.NoError(t, err)
			require.Contains(t, string(dump), "signed.up")
			require.NoError(t, os.Remove(copied))
			return map[string]string{"dump": string(dump)}
		}
		through(t, w)
	})
}

// through lets notifications go every way, erases some persons, and looks for the values of all.
func through(t *testing.T, w *world) {
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- w.o.Run(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-ran) })
	random := func(n int) string { return rapid.StringMatching(`[a-z]{16}`).Example(n + int(time.Now().UnixNano()&0xffffff)) }

	var all []signedUp
	for n := range 48 {
		s := newSignedUp(n, fmt.Sprint("person-", n%7), random(n))
		w.publish(s, nil)
		all = append(all, s)
		w.publish(newSignedUp(1000+n, fmt.Sprint("person-", n%9), random(n)), errRefused)
	}
	w.settle()
	told, received := w.got()
	require.Len(t, told, len(all), "%s", w.log.String())
	for _, s := range all {
		require.Equal(t, s, told[s.N], "the function gets what was published")
		require.Contains(t, received, s.Email)
	}
	admins := w.o.Admin("test")
	replay, err := admins.Replay(t.Context(), admin.ReplayRequest{Sink: "function"})
	require.NoError(t, err)
	_, err = replay.Run(t.Context(), nil)
	require.NoError(t, err)
	w.settle()
	dead, err := admins.Requeue(t.Context(), admin.Filter{Sink: "function"})
	require.NoError(t, err)
	require.Positive(t, dead.Total())
	_, err = dead.Run(t.Context(), nil)
	require.NoError(t, err)
	w.settle()
	w.export()

	var values, erased, kept []string
	for _, s := range all {
		values = append(values, secretsOf(s)...)
		if s.Person <= "person-3" {
			erased = append(erased, secretsOf(s)...)
		} else {
			kept = append(kept, secretsOf(s)...)
		}
	}
	w.requireNowhere(values)
	require.Equal(t, len(values), w.readable(values))
	for n := range 4 {
		w.erase(fmt.Sprint("person-", n))
	}
	w.requireNowhere(values)
	require.Zero(t, w.readable(erased), "what the files have is unreadable")
	require.Equal(t, len(kept), w.readable(kept))

	w.mu.Lock()
	w.accepts = true
	w.mu.Unlock()
	dead, err = admins.Requeue(t.Context(), admin.Filter{Sink: "function"})
	require.NoError(t, err)
	_, err = dead.Run(t.Context(), nil)
	require.NoError(t, err)
	w.settle()
	told, _ = w.got()
	for _, s := range all {
		if s.is(0) {
			got, want := told[s.N], s
			if s.Person <= "person-3" {
				want.Email, want.Address.Street, want.Tags = "", "", []struct{ Name string }{{}}
			}
			require.Equal(t, want, got, "a delivery that was pending comes without what was erased")
		}
	}
	w.requireNowhere(values)
	var actions strings.Builder
	done, err := admins.Actions(t.Context(), 100)
	require.NoError(t, err)
	require.NoError(t, json.NewEncoder(&actions).Encode(done))
	require.Contains(t, actions.String(), `"erase"`)
	require.NotContains(t, actions.String(), "person-1")
}
