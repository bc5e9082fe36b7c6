package languages_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/examples/internal/readmetest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// drivers is the folder into which .ci/test-languages installs the drivers.
const drivers = "../../.cache/languages"

// language is the example in one language.
type language struct {
	needs   []string // files and programs without which the test is skipped
	command func(task string, arguments []string) []string
	first   string // output of handle for a new notification
}

// appendTask returns a command function that adds the task and its arguments to a command line.
func appendTask(command ...string) func(string, []string) []string {
	return func(task string, arguments []string) []string {
		return slices.Concat(command, []string{task}, arguments)
	}
}

var programs = map[string]language{
	"psql":       {[]string{"psql"}, psql, "t"},
	"python":     {[]string{drivers + "/python/bin/python"}, appendTask(drivers+"/python/bin/python", "python/orders.py"), "first"},
	"java":       {[]string{"java", "javac", drivers + "/postgresql.jar"}, appendTask("java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", drivers+"/postgresql.jar", "java/Orders.java"), "first"},
	"typescript": {[]string{"node", drivers + "/typescript/build/orders.js"}, appendTask("node", drivers+"/typescript/build/orders.js"), "first"},
}

// psql returns the command line of psql, which gets the arguments as variables.
func psql(task string, arguments []string) []string {
	names := map[string][]string{"place": {"id", "customer", "product"}, "handle": {"id", "order"}}[task]
	command := []string{"psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "-f", "psql/" + task + ".sql"}
	for i, name := range names {
		command = append(command, "-v", name+"="+arguments[i])
	}
	return command
}

// required reports whether the test must fail, and not skip, if a language is missing.
func required(language string) bool {
	return slices.Contains(strings.Fields(os.Getenv("WAYBILL_TEST_LANGUAGES")), language)
}

func TestEachLanguagePublishesAndConsumes(t *testing.T) {
	t.Parallel()
	for language, p := range programs {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			for _, needed := range p.needs {
				if _, err := exec.LookPath(needed); err != nil && !isFile(needed) {
					require.False(t, required(language), "%s is missing", needed)
					t.Skipf("needs %s; .ci/test-languages prepares it", needed)
				}
			}
			address := postgrestest.DSN(t)
			db, err := postgres.OpenDB(address)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			_, err = postgres.Migrate(t.Context(), db, postgres.Config{})
			require.NoError(t, err)
			_, err = db.ExecContext(t.Context(), `CREATE TABLE orders (id text PRIMARY KEY, product text NOT NULL); CREATE TABLE invoices (order_id text PRIMARY KEY)`)
			require.NoError(t, err)
			run := func(task string, arguments ...string) (string, error) { return p.run(t, address, task, arguments) }

			const product = `Drachen "Ä" 'quoted' \ 🪁`
			first, err := run("place", "o-1", "c-1", product)
			require.NoError(t, err, first)
			out, err := run("place", "o-1", "c-1", "again")
			require.Error(t, err, "the order exists: %s", out)
			second, err := run("place", "o-2", "c-1", "hat")
			require.NoError(t, err, second)

			envelopes := read(t, db)
			require.Len(t, envelopes, 2, "the rollback removes the notification")
			for i, output := range []string{first, second} {
				e := envelopes[i]
				id, payload, printed := strings.Cut(output, " ")
				require.Equal(t, id, e.ID)
				require.Equal(t, "order.placed", e.Type)
				require.Equal(t, "c-1", e.Key)
				require.Equal(t, envelopes[0].Slot, e.Slot, "the same key has the same slot")
				if printed {
					require.Equal(t, payload, string(e.Payload), "byte for byte")
				}
				var got map[string]string
				require.NoError(t, json.Unmarshal(e.Payload, &got))
				require.Equal(t, map[string]string{"order_id": []string{"o-1", "o-2"}[i], "product": []string{product, "hat"}[i]}, got)
			}

			for _, want := range []bool{true, false} {
				out, err := run("handle", envelopes[0].ID, "o-1")
				require.NoError(t, err, out)
				require.Equal(t, want, out == p.first, out)
			}
			out, err = run("handle", "another", "o-1")
			require.Error(t, err, "the invoice exists: %s", out)
			var count int
			require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM outbox_inbox`).Scan(&count))
			require.Equal(t, 1, count, "the rollback removes the id from the inbox")
			require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM invoices`).Scan(&count))
			require.Equal(t, 1, count)

			if language != "python" {
				return
			}
			shown, payload, _ := strings.Cut(strings.TrimSpace(readmetest.Output(t, "python orders.py place o-17 c-1 kite")), " ")
			out, err = run("place", "o-17", "c-1", "kite")
			require.NoError(t, err, out)
			id, printed, _ := strings.Cut(out, " ")
			require.Equal(t, payload, printed, "README.md shows the output")
			out, err = run("handle", id, "o-17")
			require.NoError(t, err, out)
			require.Equal(t, readmetest.Output(t, "python orders.py handle "+shown+" o-17"), out+"\n")
		})
	}
}

// run runs a task. It returns the program's standard output, or its standard error if it fails.
func (p language) run(t *testing.T, address, task string, arguments []string) (string, error) {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	jdbc := url.URL{Scheme: "postgresql", Host: u.Host, Path: u.Path, RawQuery: url.Values{"user": {u.User.Username()}, "sslmode": {"disable"}}.Encode()}
	plain := url.URL{Scheme: "postgresql", User: u.User, Host: u.Host, Path: u.Path, RawQuery: "sslmode=disable"}
	line := p.command(task, arguments)
	if strings.HasPrefix(line[0], "psql") {
		line = append(line, plain.String())
	}
	command := exec.CommandContext(t.Context(), line[0], line[1:]...)
	command.Env = append(os.Environ(), "DATABASE_URL="+plain.String(), "JDBC_URL=jdbc:"+jdbc.String(), "LC_ALL=C.UTF-8", "PGCLIENTENCODING=UTF8")
	command.WaitDelay = time.Minute
	var output, errors bytes.Buffer
	command.Stdout, command.Stderr = &output, &errors
	if err := command.Run(); err != nil {
		return errors.String(), err
	}
	return strings.TrimSpace(output.String()), nil
}

// read returns the whole log, with the reader that a forwarder uses.
func read(t *testing.T, db *sql.DB) (envelopes []notification.Envelope) {
	t.Helper()
	ctx := t.Context()
	s, err := postgres.Open(ctx, db, postgres.Config{})
	require.NoError(t, err)
	reader, err := s.NewReader(nil, store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Types: notification.AllTypes})
	require.NoError(t, err)
	target, err := s.Probe(ctx)
	require.NoError(t, err)
	for {
		page, err := reader.Next(ctx, target, 100)
		require.NoError(t, err)
		envelopes = append(envelopes, page.Envelopes...)
		if page.CaughtUp {
			return envelopes
		}
	}
}

func isFile(path string) bool {
	_, err := os.Stat(filepath.Clean(path))
	return err == nil
}
