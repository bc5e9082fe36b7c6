package program

import (
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

func TestASecondMigrateHasNothingToDo(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		r := waybill(t, "migrate", "--database", o.address)
		applied := strings.Fields(strings.ReplaceAll(r.stdout, "applied ", ""))
		require.Equal(t, []string{"00001_outbox.sql", "00002_values.sql", "00003_routes.sql"}, applied[:3])
		require.Equal(t, result{stdout: "applied " + strings.Join(applied, "\napplied ") + "\n"}, r)

		r = waybill(t, "migrate", "--database", o.address)
		require.Equal(t, result{stdout: "the outbox is up to date\n"}, r)

		r = waybillWith(t, []string{"WAYBILL_DATABASE=" + o.address, "WAYBILL_OUTBOX_PREFIX=second"}, "migrate", "--json")
		require.Zero(t, r.code, r.stderr)
		require.JSONEq(t, `{"applied": ["`+strings.Join(applied, `", "`)+`"]}`, r.stdout)

		r = waybillWith(t, []string{"WAYBILL_DATABASE=" + o.address}, "migrate", "--json")
		require.JSONEq(t, `{"applied": []}`, r.stdout)
	})
}

func TestPrintedSQLCreatesTheSameOutbox(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		r := waybill(t, "migrate", "--print", "--database", o.address)
		require.Zero(t, r.code, r.stderr)
		require.Contains(t, r.stdout, `CREATE TABLE "outbox" `)

		// An SQL client sends the whole text.
		_, err := o.db.ExecContext(t.Context(), r.stdout)
		require.NoError(t, err)

		if strings.HasPrefix(o.address, "sqlite:") {
			_, err = sqlite.Open(t.Context(), o.db, sqlite.Config{})
		} else {
			_, err = postgres.Open(t.Context(), o.db, postgres.Config{})
		}
		require.NoError(t, err)
		r = waybill(t, "migrate", "--database", o.address)
		require.Equal(t, result{stdout: "the outbox is up to date\n"}, r)
	})
}

func TestPrintedSQLSuitsPsql(t *testing.T) {
	t.Parallel()
	psql, err := exec.LookPath("psql")
	if err != nil {
		t.Log("there is no psql here; lib/pq has to do in TestPrintedSQLCreatesTheSameOutbox")
		return
	}
	o := databases["postgres"](t)
	r := waybillWith(t, []string{"WAYBILL_OUTBOX_PAYLOAD=bytea"}, "migrate", "--print", "--database", o.address)
	require.Zero(t, r.code, r.stderr)

	command := exec.CommandContext(t.Context(), psql, "--no-psqlrc", "--single-transaction", "--set", "ON_ERROR_STOP=1", psqlAddress(t, o.address))
	command.Stdin = strings.NewReader(r.stdout)
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))

	s, err := postgres.Open(t.Context(), o.db, postgres.Config{})
	require.NoError(t, err)
	require.True(t, s.BinaryPayload())
}

// psqlAddress removes parameters that only lib/pq accepts.
func psqlAddress(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	q := u.Query()
	q.Del("binary_parameters")
	u.RawQuery = q.Encode()
	return u.String()
}

func TestPrintNeedsNoDatabase(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"postgres://nobody@127.0.0.1:1/nothing", "sqlite:/does/not/exist.db"} {
		r := waybill(t, "migrate", "--print", "--database", address)
		require.Zero(t, r.code, r.stderr)
		require.Contains(t, r.stdout, `CREATE TABLE "outbox_cursors" `)
	}
}

func TestMigratePartitionsANewLogOnPostgreSQLOnly(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		r := waybill(t, "migrate", "--partition-rows", "1000", "--database", o.address)
		if strings.HasPrefix(o.address, "sqlite:") {
			require.Equal(t, result{code: exitFailed, stderr: "waybill: SQLite has no partitions: leave out --partition-rows\n"}, r)
			return
		}
		require.Zero(t, r.code, r.stderr)
		o.publish(t, 1, 3)
		destination := newReceiver(t)
		f := startForward(t, "-c", o.config(t, "60s", destination.URL))
		destination.await(t, 3)
		require.Zero(t, f.end(t).code)

		r = waybill(t, "migrate", "--partition-rows", "1000", "--database", o.address)
		require.Equal(t, result{stdout: "the outbox is up to date\n"}, r)
		r = waybill(t, "migrate", "--partition-rows", "1000", "--print", "--database", o.address)
		require.Contains(t, r.stdout, "PARTITION BY RANGE")
	})
}
