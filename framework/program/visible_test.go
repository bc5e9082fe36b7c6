package program

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// hostile returns a name with what a terminal obeys, or shows as something else.
func hostile(name string) string {
	return name + "\x1b[2J\x1b]0;owned\x07\u202e\u200b\u2066\u0085\u009b\ufeff\r\x7f\t\nwaybill: all is well"
}

// leaveHostile fills an outbox with such names wherever publishers, receivers and forwarders choose one.
func (o outbox) leaveHostile(t *testing.T) {
	t.Helper()
	o.migrate(t)
	metadata, err := json.Marshal(map[string]string{hostile("m"): hostile("value"), "correlation-id": hostile("c"), "causation-id": hostile("cause")})
	require.NoError(t, err)
	exec := func(statement string, args ...any) {
		_, err := o.db.ExecContext(t.Context(), statement, args...)
		require.NoError(t, err, statement)
	}
	for i, id := range []string{"dead", "scheduled", "done"} {
		exec(`INSERT INTO outbox (id, type, key, metadata, payload) VALUES ($1, $2, $3, $4, $5)`, hostile(id), hostile("order"), hostile("k"), string(metadata), hostile("not JSON"))
		if id != "done" {
			exec(`INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, last_error, hook_error, receipt)
				VALUES ($1, $2, 0, $3, $4, 1, $5, '2026-01-02T12:00:00.000000Z', $6, $7, 'dead', 3, $8, $9, $10)`,
				hostile("sink"), i+1, hostile(id), hostile("order"), hostile("k"), string(metadata), hostile("not JSON"), hostile("permanent: "), hostile("hook: "), hostile("http 200 "))
		}
	}
	exec(`INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, last_error)
		VALUES ('_unrouted', 9, 0, $1, $2, 1, $3, '2026-01-02T12:00:00.000000Z', '{}', '{}', 'dead', 3, $4)`, hostile("lost"), hostile("parcel"), hostile("k"), hostile("no route"))
	exec(`INSERT INTO outbox_receipts (sink, "offset", id, receipt, attempt, delivered_at) VALUES ($1, 3, $2, $3, 1, '2026-01-02T12:00:00.000000Z')`, hostile("other"), hostile("done"), hostile("http 200 "))
	exec(`INSERT INTO outbox_cursors (sink, lane, lanes) VALUES ($1, 0, 1), ($2, 0, 1), ('_unrouted', 0, 1)`, hostile("sink"), hostile("other"))
	s, err := sqlite.Open(t.Context(), o.db, sqlite.Config{Receipts: true})
	require.NoError(t, err)
	states := map[string]store.SinkState{hostile("sink"): {
		BreakerOpen: true, OpenSince: time.Now(), Cause: hostile("cause"),
		Destinations: []store.DestinationState{{Destination: hostile("destination"), OpenSince: time.Now(), Cause: hostile("cause")}}, AllDestinations: 1,
	}}
	running := store.Running{Version: hostile("v"), Settings: hostile("s"), Sinks: []store.SinkRunning{{Sink: hostile("sink"), BreakerOpen: true, Cause: hostile("cause")}}}
	require.NoError(t, s.Heartbeat(t.Context(), store.Member{Owner: hostile("forwarder"), Sinks: []string{hostile("sink")}, States: states, Running: running}, time.Hour))
	require.NoError(t, s.AddSchedule(t.Context(), hostile("schedule")))
}

// requireVisible checks that an output has no character but visible ones, spaces and line ends, and that no line is
// one that a name begins.
func requireVisible(t *testing.T, output string, args []string) {
	t.Helper()
	for _, r := range output {
		require.True(t, r == '\n' || unicode.IsGraphic(r), "%q prints %q in %q", args, r, output)
	}
	require.NotContains(t, "\n"+output, "\nwaybill: all is well", "%q", args)
}

func TestCommandsPrintHostileValuesVisibly(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.leaveHostile(t)
	file := o.config(t, "15s", "http://127.0.0.1:1/")
	commands := [][]string{
		{"status"}, {"types"}, {"actions"}, {"schedules"}, {"doctor"}, {"parked", "list"}, {"parked", "list", "--key", hostile("k")}, {"parked", "list", "--sink", hostile("no")},
		{"parked", "show", hostile("dead")}, {"parked", "show", hostile("no")}, {"why", hostile("dead")}, {"why", hostile("done")}, {"why", hostile("no")},
		{"trace", hostile("c")}, {"trace", hostile("dead")}, {"trace", hostile("no")}, {"replay", "--sink", hostile("no"), "--all", "--dry-run"}, {"replay", "--sink", "partner", "--type", hostile("x"), "--dry-run"},
		{"pause", hostile("sink"), "--by", hostile("eve")}, {"pause", hostile("no"), "--by", hostile("eve")}, {"resume", hostile("sink"), "--by", hostile("eve")}, {"status"}, {"actions"},
		{"schedules", "pause", hostile("schedule")}, {"schedules", "run", hostile("schedule")}, {"schedules", "forget", hostile("no")}, {"schedules"},
		{"parked", "requeue", "--all", "--dry-run"}, {"parked", "reroute", "--all", "--dry-run"}, {"parked", "skip", "--all", "--dry-run"}, {"parked", "requeue", "--sink", hostile("sink"), "--yes", "--by", hostile("eve")},
		{"parked", "discard", "--sink", hostile("sink"), "--yes", "--by", hostile("eve")}, {"actions"}, {"actions", "cancel", hostile("no")}, {"forget", hostile("sink"), "--yes"}, {"forget", hostile("no"), "--yes"},
		{"config", "explain", hostile("order")}, {"config", "explain"}, {"config", "check"}, {"config", "show"}, {"config", "secret", hostile("no"), "http://x"}, {"mail", "preview", hostile("order")}, {"export", "--output", hostile("/no/such/folder")},
		{hostile("no such command")}, {"status", "--" + hostile("flag")}, {"status", hostile("argument")}, {"-c", hostile("no")}, {"status", "--log-format", hostile("no")}, {"health", "--address", hostile("no")},
	}
	for _, args := range commands {
		for _, more := range [][]string{nil, {"--json"}} {
			args := append(append([]string{}, args...), more...)
			if needsFile(args) {
				args = append(args, "-c", file)
			}
			r := waybill(t, args...)
			requireVisible(t, r.stdout, args)
			requireVisible(t, r.stderr, args)
			if more != nil && r.code == 0 {
				require.True(t, json.Valid([]byte(r.stdout)), "%q: %s", args, r.stdout)
			}
		}
	}
}

// needsFile reports whether a command takes -c.
func needsFile(args []string) bool { return !strings.HasPrefix(args[0], "no such") && args[0] != "-c" }

func TestLogsPrintHostileValuesVisibly(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		var out strings.Builder
		p := &command.Invocation{Stderr: &out, LogFormat: format, LogLevel: "info"}
		require.NoError(t, p.MakeLogger())
		p.Logger.With(hostile("a"), hostile("b")).WithGroup(hostile("g")).Warn(hostile("message"), "error", fmt.Errorf("%s", hostile("e")), "id", hostile("id"), hostile("key"), []string{hostile("list")})
		requireVisible(t, out.String(), []string{format})
		require.Equal(t, 1, strings.Count(out.String(), "\n"), format)
	}
}

func TestJSONKeepsTheValuesOfHostileNames(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.leaveHostile(t)
	r := waybill(t, "parked", "show", hostile("dead"), "--json", "--database", o.address)
	require.Zero(t, r.code, r.stderr)
	var found []struct {
		ID        string `json:"id"`
		Class     string `json:"class"`
		LastError string `json:"last_error"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &found))
	require.Equal(t, hostile("dead"), found[0].ID)
	require.Equal(t, []string{"permanent", hostile("")}, []string{found[0].Class, found[0].LastError})
}
