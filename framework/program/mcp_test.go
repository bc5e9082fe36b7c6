package program

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/store"
)

// assistant is a client of waybill mcp.
type assistant struct {
	*mcp.ClientSession
}

// startMCP runs the command with pipes for its stdin and stdout, until the test ends. It must then end
// with exit code 0.
func startMCP(t *testing.T, args ...string) assistant {
	t.Helper()
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	var stderr bytes.Buffer
	p := &command.Invocation{Name: "waybill", Stdout: io.Discard, Raw: outWrite, Stderr: &stderr, Options: config.Options{Kinds: ownKinds(t)}}
	root := newRoot(p)
	root.SetArgs(append([]string{"mcp"}, args...))
	root.SetIn(inRead)
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(context.WithoutCancel(t.Context())) }()
	client := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil)
	session, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: outRead, Writer: inWrite}, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = session.Close()
		require.NoError(t, <-ended, "the end of stdin is not an error")
		require.Empty(t, stderr.String())
	})
	return assistant{session}
}

// call calls a tool and returns its text, which is the structured content too unless it is an error.
func (a assistant) call(t *testing.T, name string, arguments map[string]any) (text string, failed bool) {
	t.Helper()
	r, err := a.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
	require.NoError(t, err)
	require.Len(t, r.Content, 1)
	text = r.Content[0].(*mcp.TextContent).Text
	if !r.IsError {
		structured, err := json.Marshal(r.StructuredContent)
		require.NoError(t, err)
		require.JSONEq(t, text, string(structured))
	}
	require.NotContains(t, text, "\x1b")
	return text, r.IsError
}

// ask calls a tool that succeeds.
func (a assistant) ask(t *testing.T, name string, arguments map[string]any) string {
	t.Helper()
	text, failed := a.call(t, name, arguments)
	require.False(t, failed, text)
	return text
}

// refused calls a tool that fails.
func (a assistant) refused(t *testing.T, name string, arguments map[string]any) string {
	t.Helper()
	text, failed := a.call(t, name, arguments)
	require.True(t, failed, text)
	return text
}

func (a assistant) tools(t *testing.T) (reading, changing []string) {
	t.Helper()
	for tool, err := range a.Tools(t.Context(), nil) {
		require.NoError(t, err)
		require.Contains(t, tool.Description, "never instructions")
		if tool.Annotations.ReadOnlyHint {
			reading = append(reading, tool.Name)
		} else {
			changing = append(changing, tool.Name)
		}
	}
	return reading, changing
}

func TestAnAssistantHasToolsThatChangeSomethingOnlyIfAllowed(t *testing.T) {
	t.Parallel()
	reading, changing := startMCP(t).tools(t)
	require.ElementsMatch(t, []string{"status", "why", "parked", "log", "types", "doctor", "config_check"}, reading)
	require.Empty(t, changing)
	reading, changing = startMCP(t, "--allow-acts").tools(t)
	require.ElementsMatch(t, []string{"status", "why", "parked", "log", "types", "doctor", "config_check", "plan"}, reading)
	require.Equal(t, []string{"act"}, changing)

	a := startMCP(t)
	_, err := a.CallTool(t.Context(), &mcp.CallToolParams{Name: "act", Arguments: map[string]any{"operation": "requeue", "all": true, "count": 3}})
	require.ErrorContains(t, err, "act")
}

func TestAnAssistantGetsTheJSONOfTheCommands(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.leaveParked(t)
		o.publish(t, 1, 3)
		a := startMCP(t, "--database", o.address)
		for name, same := range map[string]struct {
			tool      string
			arguments map[string]any
			command   []string
		}{
			"why":     {"why", map[string]any{"id": "a"}, []string{"why", "a"}},
			"why key": {"why", map[string]any{"key": "k"}, []string{"why", "--key", "k"}},
			"parked":  {"parked", map[string]any{"sink": "partner", "states": []string{"dead"}, "metadata": map[string]string{"tenant": "x"}}, []string{"parked", "list", "--sink", "partner", "--state", "dead", "--metadata", "tenant=x"}},
			"causes":  {"parked", map[string]any{"by_cause": true}, []string{"parked", "causes"}},
			"log":     {"log", map[string]any{"limit": 2}, []string{"log", "--limit", "2"}},
		} {
			r := waybill(t, append(same.command, "--json", "--database", o.address)...)
			require.Zero(t, r.code, r.stderr)
			require.JSONEq(t, r.stdout, a.ask(t, same.tool, same.arguments), name)
		}
		require.NotContains(t, a.ask(t, "parked", nil), `"n"`, "payloads are not shown")
		require.Contains(t, a.ask(t, "parked", map[string]any{"limit": 1}), `"id":"e"`)
		require.NotContains(t, a.ask(t, "parked", map[string]any{"limit": 1}), `"id":"a"`)

		r := waybill(t, "types", "--json", "--database", o.address)
		require.JSONEq(t, `{"types": `+r.stdout+`}`, a.ask(t, "types", nil))
		require.Contains(t, a.ask(t, "types", map[string]any{"limit": 1}), `"more":true`)
		require.Contains(t, a.ask(t, "status", nil), `"sink":"_unrouted"`)
		require.NotContains(t, a.ask(t, "status", map[string]any{"sink": "partner"}), `"sink":"_unrouted","lane"`)
		require.Regexp(t, `^\{"findings":\[\{"id":"dead","status":"(warn|fail)"`, a.ask(t, "doctor", map[string]any{"only": []string{"dead"}}))
	})
}

func TestAnAssistantSeesNoCharactersThatATerminalObeys(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.leaveParked(t)
	_, err := o.db.ExecContext(t.Context(), `UPDATE outbox_parked SET last_error = $1 WHERE id = 'a'`, "red \x1b[31m, \u202eback, <b> \\ and\nline")
	require.NoError(t, err)
	var list struct {
		Parked []struct {
			LastError string `json:"last_error"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(startMCP(t, "--database", o.address).ask(t, "parked", map[string]any{"id": "a"})), &list))
	require.Equal(t, "red \\u001b[31m, \\u202eback, <b> \\ and\nline", list.Parked[0].LastError)
}

func TestAnActNeedsThePlannedCount(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.leaveParked(t)
		a := startMCP(t, "--database", o.address, "--allow-acts", "--by", "ada")
		arguments := map[string]any{"operation": "requeue", "sink": "partner"}
		var plan struct {
			Count     int64
			PlannedAt string `json:"planned_at"`
			Counts    []store.ParkedCount
		}
		require.NoError(t, json.Unmarshal([]byte(a.ask(t, "plan", arguments)), &plan))
		require.EqualValues(t, 3, plan.Count)
		require.Equal(t, store.StateDead, plan.Counts[0].State)

		arguments["count"] = 3
		require.Equal(t, `planned_at is "": call plan first, and pass the planned_at that it answers with`, a.refused(t, "act", arguments))
		arguments["planned_at"] = "2100-01-01T00:00:00Z"
		require.Contains(t, a.refused(t, "act", arguments), "call plan first", "what is parked after the plan would be included")
		arguments["planned_at"], arguments["reason"] = plan.PlannedAt, strings.Repeat("x", 501)
		require.Contains(t, a.refused(t, "act", arguments), "reason has more than 500 bytes")
		arguments["reason"] = ""
		for _, wrong := range []int{2, 4} {
			arguments["count"] = wrong
			require.Contains(t, a.refused(t, "act", arguments), "but this would requeue 3 now: nothing was done; call plan again")
		}
		require.Equal(t, []string{"e dead", "a dead", "b dead", "c dead", "d blocked"}, o.states(t))

		arguments["count"], arguments["reason"] = plan.Count, "OPS-7"
		a.ask(t, "act", arguments)
		require.Equal(t, []string{"e dead", "a retrying", "b blocked", "c retrying", "d blocked"}, o.states(t))
		action := o.lastAction(t)
		require.Equal(t, "ada (mcp)", action.Who)
		require.Equal(t, "OPS-7", action.Reason)
		require.EqualValues(t, 3, action.Count)
	})
}

func TestAnAssistantPausesASinkInTwoSteps(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.leaveParked(t)
	a := startMCP(t, "--database", o.address, "--allow-acts")
	pause := map[string]any{"operation": "pause", "sink": "partner"}
	require.Contains(t, a.ask(t, "plan", pause), `"count":1`)
	pause["count"] = 1
	require.JSONEq(t, `{"paused": ["partner"]}`, a.ask(t, "act", pause))
	require.Contains(t, a.refused(t, "act", pause), "this would pause 0 now")
	require.JSONEq(t, `{"resumed": ["partner"]}`, a.ask(t, "act", map[string]any{"operation": "resume", "sink": "partner", "count": 1}))
	require.Contains(t, o.lastAction(t).Who, " (mcp)")
}

func TestAToolNamesTheArgumentThatIsWrong(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.leaveParked(t)
	a := startMCP(t, "--database", o.address, "--allow-acts")
	for _, wrong := range []struct {
		tool      string
		arguments map[string]any
		text      string
	}{
		{"parked", map[string]any{"limit": 101}, `limit is 101: use 1 to 100`},
		{"parked", map[string]any{"limit": "many"}, `limit: type: many has type "string", want "integer"`},
		{"parked", map[string]any{"zone": "partner"}, `unexpected additional properties ["zone"]; the tool's input schema lists its arguments`},
		{"parked", map[string]any{"older_than": "long"}, `older_than is "long": use a duration like 90m, 12h or 7d`},
		{"parked", map[string]any{"states": []string{"alive"}}, `alive`},
		{"log", map[string]any{"since": "ever"}, `since is "ever": use a time like`},
		{"log", map[string]any{"before": -1}, `before is -1: use an offset of at least 1`},
		{"why", nil, `id or key: give one of them`},
		{"why", map[string]any{"id": "a", "limit": 3}, `type, before and limit need key`},
		{"types", map[string]any{"rows": -1}, `rows is -1: use 1 to `},
		{"doctor", map[string]any{"only": []string{"luck"}}, `only or skip: there is no check "luck": use `},
		{"plan", map[string]any{}, `missing properties: ["operation"]`},
		{"plan", map[string]any{"operation": "replay"}, `operation is "replay": use requeue, discard`},
		{"plan", map[string]any{"operation": "requeue"}, `all is missing: select deliveries`},
		{"plan", map[string]any{"operation": "requeue", "sink": "partner", "all": true}, `all contradicts`},
		{"plan", map[string]any{"operation": "reroute"}, `start the server with -c`},
		{"plan", map[string]any{"operation": "pause"}, `sink: to pause, name one sink and nothing else`},
		{"plan", map[string]any{"operation": "pause", "sink": "nowhere"}, `sink is "nowhere", which has no cursors`},
	} {
		require.Contains(t, a.refused(t, wrong.tool, wrong.arguments), wrong.text, wrong.tool)
	}
}

func TestWithoutADatabaseACallFailsAndTheServerGoesOn(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	path := strings.TrimPrefix(o.address, "sqlite:")
	require.NoError(t, os.Rename(path, path+".away"))
	a := startMCP(t, "--database", o.address)
	a.refused(t, "status", nil)
	require.NoError(t, os.Rename(path+".away", path))
	o.migrate(t)
	a.ask(t, "status", nil)
}

func TestAnAssistantGetsErrorsOfReceiversWithMasks(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.leaveParked(t)
		for column, repeated := range map[string]string{"last_error": "POST: 422 {\"email\":\"ada@shop.example\"}, and ada@shop.example is taken", "hook_error": "Key (email)=(ada@shop.example) exists", "receipt": "of ada@shop.example"} {
			_, err := o.db.ExecContext(t.Context(), `UPDATE outbox_parked SET payload = '{"email": "ada@shop.example"}', `+column+` = '`+repeated+`' WHERE id = 'a'`)
			require.NoError(t, err)
		}
		masked := "database: '" + o.address + "'\nroutes: {'order.*': [partner]}\nsinks: {partner: {kind: http, with: {url: http://127.0.0.1:1}}}\nobserve: {masks: {'order.*': [email]}}\n"
		a := startMCP(t, "-c", writeFile(t, masked))
		why := a.ask(t, "why", map[string]any{"id": "a"})
		require.Contains(t, why, "••• is taken")
		for _, text := range []string{why, a.ask(t, "parked", nil), a.ask(t, "parked", map[string]any{"by_cause": true}), a.ask(t, "log", nil), a.ask(t, "status", nil), a.ask(t, "doctor", map[string]any{"skip": []string{"sinks"}})} {
			require.NotContains(t, text, "ada@shop.example")
		}
		require.Contains(t, waybill(t, "why", "a", "--database", o.address).stdout, "ada@shop.example", "a person on the machine sees the database")
	})
}

func TestAnAssistantSeesNoSecrets(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "database: postgres://app:hunter2@127.0.0.1:1/app\nroutes: {'*': [partner]}\nsinks:\n  partner:\n    kind: http\n    with: {url: http://127.0.0.1:1/hunter2, headers: {X-Token: hunter2}}\n")
	a := startMCP(t, "-c", file)
	shown := a.ask(t, "config_check", map[string]any{"show": true, "reach": true})
	require.Contains(t, shown, "***")
	require.Contains(t, shown, `"health":"not healthy"`)
	answers := shown + a.ask(t, "config_check", nil) + a.refused(t, "status", nil) + a.refused(t, "log", nil)
	findings, _ := a.call(t, "doctor", nil)
	require.NotContains(t, answers+findings, "hunter2")

	mistaken := writeFile(t, "database: postgres://app:hunter2@127.0.0.1:1/app\nforwarder: {leese: hunter2}\n")
	found := startMCP(t, "-c", mistaken).ask(t, "config_check", nil)
	require.Contains(t, found, "leese")
	require.NotContains(t, found, "hunter2")
}

func TestASignalEndsTheServerWithoutAnError(t *testing.T) {
	t.Parallel()
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	p := &command.Invocation{Name: "waybill", Stdout: io.Discard, Raw: outWrite, Stderr: io.Discard, Options: config.Options{Kinds: ownKinds(t)}}
	root := newRoot(p)
	root.SetArgs([]string{"mcp"})
	root.SetIn(inRead)
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(), &mcp.IOTransport{Reader: outRead, Writer: inWrite}, nil)
	require.NoError(t, err)
	stop()
	require.NoError(t, <-ended)
	_ = session.Close()
}
