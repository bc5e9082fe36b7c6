package crashtest_test

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/jsonlines"
)

// personMoved has a private value that its publisher encrypts.
type personMoved struct{ ID, Person, Email string }

func (n personMoved) key() string { return n.Person }

// note is a row that the programs insert with SQL.
type note personMoved

const noteLeft = "note.left"

// The tables of the programs.
var personTables = []string{
	`CREATE TABLE moves (id VARCHAR(100) PRIMARY KEY, person VARCHAR(100))`,
	`CREATE TABLE erasures (person VARCHAR(100) PRIMARY KEY, done INTEGER)`,
}

const (
	personCache = 2 * time.Second // longer than a keyring waits before it remembers a key
	steadies    = 6               // persons about which all processes publish
	mostMoved   = 1000            // by one process
	perEffect   = 4               // requests, which are about as much work as an effect of the other programs
	mostErased  = 25
)

// emailOf is the private value of a notification. No other text contains it.
func emailOf(id string) string { return "mail-of-" + id + "@person.example" }

var anEmail = regexp.MustCompile(`mail-of-(.*?)@person\.example`)

// isErased reports whether a person is erased one day.
func isErased(person string) bool {
	number, _ := strings.CutPrefix(person[strings.LastIndexByte(person, '-'):], "-")
	return strings.ContainsAny(number[len(number)-1:], "02468")
}

// privacyOfStories encrypts private values.
func privacyOfStories() (privacy.Config, error) {
	master, err := privacy.LocalKeys("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
	return privacy.Config{Master: master, Cache: personCache, Rules: map[string]privacy.Rule{noteLeft: {Subject: "/Person", Fields: []string{"/Email"}}}}, err
}

// openPersons opens an outbox of persons. Failpoints may be in the way.
func (s *story) openPersons(ctx context.Context, o *waybill.Outbox) (err error) {
	waybill.Register[personMoved](o, "person.moved", waybill.Key(personMoved.key), waybill.Private(func(n personMoved) string { return n.Person }, "Email"))
	waybill.Register[note](o, noteLeft)
	if o.Privacy, err = privacyOfStories(); err != nil {
		return err
	}
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		if err = o.Open(ctx); err == nil || time.Since(start) > time.Minute {
			return err
		}
	}
}

// persons publishes what persons do, and delivers it to a sink that gets the private values, and to one that keeps them
// encrypted.
func (s *story) persons(ctx context.Context, o *waybill.Outbox) error {
	file, err := jsonlines.New(jsonlines.Config{Path: filepath.Join(s.Folder, fmt.Sprintf("%d.jsonl", os.Getpid()))})
	if err != nil {
		return err
	}
	patient(o.Deliver("revealed", &reporter{url: s.URL, began: time.Now()}, "person.*", noteLeft))
	patient(o.Deliver("kept", file, "person.*", noteLeft))
	if err := s.openPersons(ctx, o); err != nil {
		return err
	}
	for i := range 2 {
		go s.move(ctx, o, fmt.Sprintf("%d-%d", os.Getpid(), i))
	}
	return o.Run(ctx)
}

var moved atomic.Int64

// move publishes about persons whose keys exist, and about new ones. Of each it also publishes in transactions that are
// rolled back, some of them long after.
func (s *story) move(ctx context.Context, o *waybill.Outbox, source string) {
	for !s.Drain {
		n := moved.Add(1)
		if n > mostMoved {
			return
		}
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		person := fmt.Sprintf("fresh-%d-%d", os.Getpid(), n/8)
		if n%3 == 0 {
			person = fmt.Sprintf("steady-%d", rand.IntN(steadies))
		}
		id := fmt.Sprintf("%s_%s_%05d", person, source, n)
		_ = o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { // a failed transaction has no effect
			err := errors.Join(insert(ctx, tx, "moves", id, person), o.Publish(ctx, tx, personMoved{id, person, emailOf(id)}))
			switch {
			case err == nil && n%16 == 0 && isPostgres(s.Address): // others go on meanwhile
				time.Sleep(3 * personCache / 4)
				return errors.New("a change of mind")
			case err == nil && n%4 == 0:
				return errors.New("a change of mind")
			case err == nil && n%4 == 1:
				note := id + "_note"
				payload, failed := json.Marshal(personMoved{note, person, emailOf(note)})
				_, notInserted := tx.ExecContext(ctx, `INSERT INTO outbox (id, type, "key", payload) VALUES ($1, $2, $3, $4)`, note, noteLeft, person, string(payload))
				err = errors.Join(failed, notInserted, insert(ctx, tx, "moves", note, person))
			}
			return err
		})
	}
}

// reporter is a sink that gets private values, and says to the test what it got. The test answers with it.
type reporter struct {
	url   string
	began time.Time
}

func (*reporter) RevealsPrivate() bool { return true }

func (r *reporter) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var got arrival
	if err := json.Unmarshal(d.Payload, &got); err != nil {
		return "", err
	}
	got.Began = r.began.UnixNano()
	answer, err := post(ctx, r.url, got)
	return notification.Receipt("taken: " + answer), err
}

// post sends a value as JSON, and returns the answer.
func post(ctx context.Context, url string, value any) (answer string, err error) {
	body, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("refused: %s", raw)
	}
	return string(raw), err
}

// eraser erases the persons that the test names, and says which notifications were committed before.
func (s *story) eraser(ctx context.Context, o *waybill.Outbox, db *sql.DB) error {
	if err := s.openPersons(ctx, o); err != nil {
		return err
	}
	keys, err := privacy.New(o.Store(), o.Privacy)
	if err != nil {
		return err
	}
	for ; ; time.Sleep(time.Millisecond) {
		var person string
		if db.QueryRowContext(ctx, `SELECT person FROM erasures WHERE done = 0 ORDER BY person`).Scan(&person) != nil {
			continue
		}
		done := erasure{Person: person}
		if done.IDs, err = textsOf(ctx, db, `SELECT id FROM moves WHERE person = $1`, person); err != nil {
			continue
		}
		plan, err := o.Admin("eraser").Erase(ctx, keys, person)
		if err == nil {
			_, err = plan.Run(ctx, nil)
		}
		if err == nil {
			done.At = time.Now().UnixNano()
			_, err = post(ctx, s.URL+"/erased", done)
		}
		if err == nil {
			_, _ = db.ExecContext(ctx, `UPDATE erasures SET done = 1 WHERE person = $1`, person) // or it is erased again
		}
	}
}

func textsOf(ctx context.Context, db *sql.DB, query string, args ...any) (all []string, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, rows.Err()
}

// arrival is what came to the sink that gets private values, in a process that began at a time.
type arrival struct {
	ID, Email string
	Began     int64
}

// erasure is a person whose data was erased at a time, with the notifications that were committed before it began.
type erasure struct {
	Person string
	IDs    []string
	At     int64
}

// witness is what the test saw.
type witness struct {
	t        *testing.T
	server   *httptest.Server
	requests atomic.Int64

	mu       sync.Mutex
	arrived  map[string]bool
	arrivals []arrival
	erased   map[string]int64 // when, by notification
	asked    map[string]bool  // persons
}

func (w *witness) serve(to http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return // the process was killed
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.URL.Path == "/erased" {
		var e erasure
		assert.NoError(w.t, json.Unmarshal(raw, &e))
		for _, id := range e.IDs {
			w.erased[id] = cmp.Or(w.erased[id], e.At)
		}
		return
	}
	w.requests.Add(1)
	var a arrival
	assert.NoError(w.t, json.Unmarshal(raw, &a))
	if w.arrivals = append(w.arrivals, a); rand.IntN(6) == 0 {
		to.WriteHeader([]int{400, 500, 503}[rand.IntN(3)])
	} else {
		w.arrived[a.ID] = true
	}
	_, _ = to.Write(raw)
}

// ask asks for erasures until ctx is done.
func (w *witness) ask(ctx context.Context, db *sql.DB) {
	for len(w.asked) < mostErased && ctx.Err() == nil {
		known, err := textsOf(ctx, db, `SELECT DISTINCT person FROM moves`)
		if err == nil && len(known) > 0 {
			person := known[rand.IntN(len(known))]
			w.mu.Lock()
			isNew := isErased(person) && !w.asked[person]
			if isNew {
				w.asked[person] = true
			}
			w.mu.Unlock()
			if isNew {
				_, err = db.ExecContext(context.WithoutCancel(ctx), `INSERT INTO erasures VALUES ($1, 0)`, person)
				assert.NoError(w.t, err)
			}
		}
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
	}
}

// personOf returns the person of a notification.
func personOf(id string) string {
	person, _, _ := strings.Cut(id, "_")
	return person
}

// check returns what is wrong with what came.
func (w *witness) check(committed map[string]int) (wrong []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, seen := make(map[string]string), make(map[string]bool)
	for _, a := range w.arrivals {
		person := personOf(a.ID)
		source := a.ID[:len(a.ID)-len("_00000")]
		if rest, isNote := strings.CutSuffix(a.ID, "_note"); isNote {
			source = rest[:len(rest)-len("_00000")]
		}
		switch at := w.erased[a.ID]; {
		case committed[a.ID] == 0:
			wrong = append(wrong, a.ID+" was not committed")
		case a.Email == "" && !w.asked[person]:
			wrong = append(wrong, a.ID+" is unreadable")
		case a.Email != "" && a.Email != emailOf(a.ID):
			wrong = append(wrong, a.ID+" has "+a.Email)
		case a.Email != "" && at != 0 && a.Began > at && !strings.HasSuffix(a.ID, "_note"):
			wrong = append(wrong, a.ID+" was decrypted by a process that began after the erasure")
		case !seen[a.ID] && last[source] > a.ID:
			wrong = append(wrong, a.ID+" after "+last[source])
		}
		if !seen[a.ID] {
			seen[a.ID], last[source] = true, a.ID
		}
	}
	return wrong
}

// missing returns how many committed notifications have not arrived.
func (w *witness) missing(committed map[string]int) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range committed {
		if !w.arrived[id] {
			n++
		}
	}
	return n
}

// dump returns all columns of all tables of the outbox as text, by table.
func (d database) dump(t *testing.T) map[string]string {
	t.Helper()
	query := `SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'outbox%'`
	if isPostgres(d.address) {
		query = `SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relname LIKE 'outbox%'`
	}
	all := make(map[string]string)
	for table := range d.texts(t, query) {
		all[table] = d.content(t, table)
	}
	return all
}

// content returns all columns of all rows of a table.
func (d database) content(t *testing.T, table string) string {
	t.Helper()
	rows, err := d.QueryContext(t.Context(), `SELECT * FROM `+table)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	columns, err := rows.Columns()
	require.NoError(t, err)
	var b strings.Builder
	for rows.Next() {
		values, dest := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		require.NoError(t, rows.Scan(dest...))
		for _, v := range values {
			if raw, isBytes := v.([]byte); isBytes {
				v = string(raw)
			}
			fmt.Fprintln(&b, v)
		}
	}
	require.NoError(t, rows.Err())
	return b.String()
}

// requireSecret requires that no table has a private value, besides what was inserted with SQL and is not erased, and
// that none names a person but by the key of the rows.
func (w *witness) requireSecret(t *testing.T, d database) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for table, text := range d.dump(t) {
		for _, found := range anEmail.FindAllStringSubmatch(text, -1) {
			id := found[1]
			require.True(t, strings.HasSuffix(id, "_note") && w.erased[id] == 0, "%s has %s", table, found[0])
		}
		if table == "outbox_keys" || table == "outbox_actions" {
			require.NotContains(t, text, "steady-", table)
			require.NotContains(t, text, "fresh-", table)
		}
	}
}

// requireReadable requires that a process without memory can decrypt everything but what was erased.
func (w *witness) requireReadable(t *testing.T, d database) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	c, err := privacyOfStories()
	require.NoError(t, err)
	keys, err := privacy.New(d.store.(store.PrivateKeys), c)
	require.NoError(t, err)
	rows, err := d.QueryContext(t.Context(), `SELECT id, type, version, metadata, payload FROM outbox WHERE type = 'person.moved'`)
	require.NoError(t, err)
	defer rows.Close()
	var all []*notification.Envelope
	for rows.Next() {
		var e notification.Envelope
		var metadata []byte
		require.NoError(t, rows.Scan(&e.ID, &e.Type, &e.Version, &metadata, &e.Payload))
		require.NoError(t, json.Unmarshal(metadata, &e.Metadata))
		all = append(all, &e)
	}
	require.NoError(t, rows.Err())
	var wrong []string
	for i, v := range keys.Views(t.Context(), all, sinks.PrivateReveal, false) {
		var n personMoved
		require.NoError(t, v.Err, all[i].ID)
		require.NoError(t, json.Unmarshal(v.Envelope.Payload, &n))
		switch {
		case w.erased[n.ID] != 0 && n.Email != "":
			wrong = append(wrong, n.ID+" is not erased")
		case n.Email != "" && n.Email != emailOf(n.ID), n.Email == "" && !w.asked[n.Person]:
			wrong = append(wrong, n.ID+" has "+n.Email)
		}
	}
	require.Empty(t, wrong)
	require.NotEmpty(t, all)
}

func TestPrivateValuesAreReadableUntilTheyAreErasedThroughCrashes(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s *stage, newDatabase func() database) {
		d := newDatabase()
		for _, statement := range personTables {
			_, err := d.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		w := &witness{t: t, arrived: make(map[string]bool), erased: make(map[string]int64), asked: make(map[string]bool)}
		w.server = httptest.NewServer(http.HandlerFunc(w.serve))
		t.Cleanup(w.server.Close)
		folder := t.TempDir()
		persons := story{Program: "persons", Address: d.address, URL: w.server.URL, Folder: folder}
		eraser := persons
		eraser.Program = "eraser"
		programs := []*actor{{story: persons}, {story: eraser}}
		if isPostgres(d.address) {
			programs = append(programs, &actor{story: persons})
		}
		ctx, stop := context.WithCancel(t.Context())
		var asking sync.WaitGroup
		defer asking.Wait()
		defer stop()
		asking.Go(func() { w.ask(ctx, d.DB) })
		left := ""
		t.Cleanup(func() {
			if t.Failed() {
				t.Log("left:", left)
			}
		})
		moves := func() map[string]int { return d.texts(t, `SELECT id FROM moves`) }
		s.killRepeatedly(programs, func() int { return int(w.requests.Load()) / perEffect }, func() bool {
			stop()
			asking.Wait()
			left = fmt.Sprint(w.missing(moves()), d.left(t), d.count(t, `SELECT count(*) FROM erasures WHERE done = 0`))
			return left == "0 [] 0"
		})
		committed := moves()
		require.Empty(t, w.check(committed))
		w.requireSecret(t, d)
		w.requireReadable(t, d)
		kept, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
		require.NoError(t, err)
		var lines strings.Builder
		for _, path := range kept {
			raw, err := os.ReadFile(path)
			require.NoError(t, err)
			lines.Write(raw)
		}
		require.NotContains(t, lines.String(), "@person.example")
		for id := range committed {
			require.Contains(t, lines.String(), `"`+id+`"`)
		}
		t.Logf("%d committed, %d erased of %d persons, %d keys", len(committed), len(w.erased), len(w.asked), d.count(t, `SELECT count(*) FROM outbox_keys`))
		require.NotEmpty(t, w.erased)
		require.Less(t, len(w.erased), len(committed))
	})
}
