package program

import (
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
)

// severalDatabases returns a configuration with three databases and a control database. eu and us have
// tables.
func severalDatabases(t *testing.T) (file, folder string) {
	t.Helper()
	folder = t.TempDir()
	file = writeFile(t, fmt.Sprintf(`
databases: {asia: "sqlite:%[1]s/asia.db", eu: "sqlite:%[1]s/eu.db", us: "sqlite:%[1]s/us.db"}
fleet: {control: "sqlite:%[1]s/control.db"}
sinks:
  lines: {kind: jsonlines, with: {path: "%[1]s/out.jsonl"}}
routes:
  "*": [lines]
`, folder))
	r := waybill(t, "migrate", "-c", file, "--in", "eu,us")
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "database eu: ")
	require.Contains(t, r.stdout, "database us: ")
	return file, folder
}

func publishTo(t *testing.T, path, id string) {
	t.Helper()
	db, err := sqlite.OpenDB(path)
	require.NoError(t, err)
	defer func(db *sql.DB) { require.NoError(t, db.Close()) }(db)
	_, err = db.ExecContext(t.Context(), `INSERT INTO outbox (id, type, payload) VALUES (?, 't', '{}')`, id)
	require.NoError(t, err)
}

func TestReadOnlyCommandsShowEachOfSeveralDatabases(t *testing.T) {
	t.Parallel()
	file, folder := severalDatabases(t)
	publishTo(t, filepath.Join(folder, "us.db"), "one")

	r := waybill(t, "status", "-c", file)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stdout, "database eu\n\nlast offset: 0\n")
	require.Contains(t, r.stdout, "database us\n\nlast offset: 1\n")
	require.Contains(t, r.stderr, "database asia: ")
	require.Contains(t, r.stderr, "waybill migrate")

	r = waybill(t, "status", "-c", file, "--json", "--in", "us")
	require.Zero(t, r.code, r.stderr)
	var found struct {
		Databases map[string]struct {
			LastOffset int64 `json:"last_offset"`
		} `json:"databases"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &found))
	require.Len(t, found.Databases, 1)
	require.Equal(t, int64(1), found.Databases["us"].LastOffset)

	r = waybill(t, "why", "one", "-c", file, "--in", "eu,us")
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "database us\n\nid:          one\n")
	require.NotContains(t, r.stdout, "database eu")
	r = waybill(t, "why", "none", "-c", file, "--in", "eu,us")
	require.Equal(t, exitFailed, r.code)
}

func TestCommandsThatChangeSomethingNeedOneOfSeveralDatabases(t *testing.T) {
	t.Parallel()
	file, folder := severalDatabases(t)
	for _, args := range [][]string{{"pause", "lines"}, {"parked", "requeue", "--id", "x", "--yes"}, {"forget", "lines", "--yes"}, {"migrate"}} {
		r := waybill(t, append(args, "-c", file)...)
		require.Equal(t, exitUsage, r.code, args)
		require.Contains(t, r.stderr, "there are several databases: choose one with --in: asia, eu, us", args)
	}
	r := waybill(t, "pause", "lines", "-c", file, "--in", "mars")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, `--in names the unknown database "mars"; the configuration has asia, eu, us`)
	r = waybill(t, "pause", "lines", "-c", file, "--database", "sqlite:"+folder+"/eu.db", "--in", "eu")
	require.Equal(t, exitUsage, r.code)

	r = waybill(t, "migrate", "-c", file, "--in", "*")
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "database eu: the outbox is up to date\n")
	require.Contains(t, r.stdout, "database control: ")
	db, err := sqlite.OpenDB(filepath.Join(folder, "control.db"))
	require.NoError(t, err)
	defer db.Close()
	var n int
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM waybill_fleet_cursors`).Scan(&n), "the fleet's tables have another prefix")
}

func TestAQueryOfTheControlDatabaseListsDatabases(t *testing.T) {
	t.Parallel()
	_, folder := severalDatabases(t)
	control := filepath.Join(folder, "control.db")
	db, err := sqlite.OpenDB(control)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), `CREATE TABLE tenants (name text, url text); INSERT INTO tenants VALUES ('eu', ?)`, "sqlite:"+folder+"/eu.db")
	require.NoError(t, err)
	file := writeFile(t, fmt.Sprintf(`
fleet: {control: "sqlite:%s", query: "SELECT name, url FROM tenants"}
sinks:
  lines: {kind: jsonlines, with: {path: "%s/out.jsonl"}}
routes:
  "*": [lines]
`, control, folder))
	r := waybill(t, "status", "-c", file)
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "database eu\n")
	_, err = db.ExecContext(t.Context(), `ALTER TABLE tenants ADD COLUMN more text; DELETE FROM tenants`)
	require.NoError(t, err)
	r = waybill(t, "status", "-c", file)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "no database is listed")
}

func TestAWrongRowOfTheQueryHidesNoOtherDatabase(t *testing.T) {
	t.Parallel()
	_, folder := severalDatabases(t)
	file := writeFile(t, fmt.Sprintf(`
fleet:
  control: "sqlite:%[1]s/eu.db"
  query: >-
    VALUES ('eu', 'sqlite:%[1]s/eu.db'), ('a/b', 'sqlite:%[1]s/us.db'), (NULL, 'sqlite:%[1]s/us.db'), ('us', NULL),
    ('moon', 'postgres://app:hunter2@ho st/app'), ('mars', 'sqlite:%[1]s/us.db'), ('mars', 'sqlite:%[1]s/eu.db')
sinks:
  lines: {kind: jsonlines, with: {path: "%[1]s/out.jsonl"}}
routes:
  "*": [lines]
`, folder))
	r := waybill(t, "status", "-c", file)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stdout, "database eu\n\nlast offset: 0\n")
	for _, is := range []string{
		"database a/b: a database's name is", "database ?: a database's name is", "database us: its address is missing",
		"database moon: its address is not a valid URL", "database mars: the list has this name with several addresses",
	} {
		require.Contains(t, r.stderr, is)
	}
	require.NotContains(t, r.stderr, "hunter2")
	r = waybill(t, "migrate", "-c", file, "--in", "moon,eu")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stdout, "database eu: the outbox is up to date\n")
	require.Contains(t, r.stderr, "database moon: its address is not a valid URL")
	r = waybill(t, "pause", "lines", "-c", file, "--in", "us")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "database us: its address is missing")

	r = waybill(t, "migrate", "-c", file, "--in", "control")
	require.Zero(t, r.code, r.stderr)
	p := start(t, "forward", "-c", file)
	publishTo(t, filepath.Join(folder, "eu.db"), "one")
	p.awaitLine(t, "database=us")
	require.Eventually(t, func() bool {
		text, _ := os.ReadFile(filepath.Join(folder, "out.jsonl"))
		return strings.Contains(string(text), `"one"`)
	}, patience, 20*time.Millisecond)
	p.signal(t, syscall.SIGTERM)
	require.Zero(t, p.wait())
}

// The keys of a person are those of the database whose pages are open.
func TestADashboardFindsPersonsInEachOfSeveralDatabases(t *testing.T) {
	t.Parallel()
	file, folder := severalDatabases(t)
	r := waybill(t, "migrate", "-c", file, "--in", "control,asia")
	require.Zero(t, r.code, r.stderr)
	address := observed(t, file)
	key := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("a", 32)))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, fmt.Appendf(text, "\nprivacy: {keys: [%q]}\n", key), 0o600))

	db, err := sqlite.OpenDB(filepath.Join(folder, "eu.db"))
	require.NoError(t, err)
	s, err := sqlite.Open(t.Context(), db, sqlite.Config{})
	require.NoError(t, err)
	master, err := privacy.LocalKeys(key)
	require.NoError(t, err)
	keys, err := privacy.New(s, privacy.Config{Master: master, Cache: -1})
	require.NoError(t, err)
	require.NoError(t, keys.Prepare(t.Context()))
	e := &notification.Envelope{ID: "one", Type: "t", Version: 1, Payload: []byte(`{}`), Metadata: notification.Metadata{}}
	require.NoError(t, keys.Seal(t.Context(), nil, []privacy.Sealing{{Envelope: e, Values: []registry.PrivateValues{{Subject: "lovelace", At: []registry.Pointer{{}}}}}}))
	require.NoError(t, db.Close())

	p := start(t, "forward", "-c", file)
	awaitPage(t, address, "/readyz", http.StatusOK, "ready")
	for name, has := range map[string]string{"eu": `"keys": 1`, "us": `"keys": 0`} {
		awaitPage(t, address, "/in/"+name+"/privacy", http.StatusOK, `name="subject"`)
		answer, err := http.Post("http://"+address+"/in/"+name+"/api/v1/plans", "application/json", strings.NewReader(`{"action": "erase", "erase": {"subject": "lovelace"}}`))
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode, string(body))
		require.Contains(t, string(body), has, name)
	}
	p.signal(t, syscall.SIGTERM)
	for line := range p.lines {
		require.NotContains(t, line, "lovelace")
	}
	require.Zero(t, p.wait())
}

func TestForwardDeliversFromSeveralDatabasesAndShowsEach(t *testing.T) {
	t.Parallel()
	file, folder := severalDatabases(t)
	r := waybill(t, "migrate", "-c", file, "--in", "control")
	require.Zero(t, r.code, r.stderr)
	address := observed(t, file)
	publishTo(t, filepath.Join(folder, "eu.db"), "one")
	p := start(t, "forward", "-c", file)
	await := func(lines int) {
		t.Helper()
		require.Eventually(t, func() bool {
			text, _ := os.ReadFile(filepath.Join(folder, "out.jsonl"))
			return strings.Count(string(text), "\n") == lines
		}, patience, 20*time.Millisecond, "%d lines", lines)
	}
	await(1)
	p.awaitLine(t, "waybill migrate --in asia")
	awaitPage(t, address, "/readyz", http.StatusOK, "ready")
	awaitPage(t, address, "/metrics", http.StatusOK, `waybill_database_state{database="asia",state="failing"} 1`)
	awaitPage(t, address, "/metrics", http.StatusOK, `waybill_sink_pending{database="eu",sink="lines"} `)
	awaitPage(t, address, "/", http.StatusOK, `<a href="/in/us/">us</a>`)
	awaitPage(t, address, "/in/eu/", http.StatusOK, "lines")
	awaitPage(t, address, "/in/asia/", http.StatusServiceUnavailable, "has not been reached yet")
	awaitPage(t, address, "/in/mars/", http.StatusNotFound, "")

	text, err := os.ReadFile(file)
	require.NoError(t, err)
	r = waybill(t, "migrate", "--database", "sqlite:"+folder+"/mars.db")
	require.Zero(t, r.code, r.stderr)
	more := strings.Replace(string(text), "databases: {", fmt.Sprintf(`databases: {mars: "sqlite:%s/mars.db", `, folder), 1)
	require.NoError(t, os.WriteFile(file, []byte(more), 0o600))
	p.signal(t, syscall.SIGHUP)
	publishTo(t, filepath.Join(folder, "mars.db"), "two")
	await(2)
	publishTo(t, filepath.Join(folder, "us.db"), "three")
	await(3)
	p.signal(t, syscall.SIGTERM)
	require.Zero(t, p.wait())
}
