package program

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store"
)

// leaveParked creates a sink with three dead deliveries, two of which have the same key, and a blocked one,
// and an unrouted delivery.
func (o outbox) leaveParked(t *testing.T) {
	t.Helper()
	o.migrate(t)
	for _, statement := range []string{
		`INSERT INTO outbox_cursors (sink, lane, lanes) VALUES ('partner', 0, 1), ('_unrouted', 0, 1)`,
		`INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, last_error) VALUES
			('partner', 1, 0, 'a', 'order.placed', 1, 'k', '2026-01-02T12:00:00.000000Z', '{"tenant": "x"}', '{"n": 1}', 'dead', 12, 'POST: 500 Internal'),
			('partner', 2, 0, 'b', 'order.placed', 1, 'k', '2026-01-02T12:00:00.000000Z', '{}', '{"n": 2}', 'dead', 3, 'context deadline exceeded'),
			('partner', 3, 0, 'c', 'order.paid', 1, '', '2026-01-02T12:00:00.000000Z', '{}', '{"n": 3}', 'dead', 1, 'POST: 410 Gone'),
			('partner', 4, 0, 'd', 'order.paid', 1, 'k', '2026-01-02T12:00:00.000000Z', '{}', '{"n": 4}', 'blocked', 0, ''),
			('_unrouted', 5, 0, 'e', 'parcel.lost', 1, '', '2026-01-02T12:00:00.000000Z', '{}', '{}', 'dead', 1, 'no route')`,
	} {
		_, err := o.db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
}

// states lists the parked deliveries as "id state", in log order.
func (o outbox) states(t *testing.T) (states []string) {
	t.Helper()
	r := waybill(t, "parked", "list", "--json", "--database", o.address)
	require.Zero(t, r.code, r.stderr)
	var list struct{ Parked []admin.ParkedView }
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &list))
	for _, p := range list.Parked {
		states = append(states, p.ID+" "+string(p.State))
	}
	return states
}

func (o outbox) lastAction(t *testing.T) store.Action {
	t.Helper()
	r := waybill(t, "actions", "--json", "--limit", "1", "--database", o.address)
	require.Zero(t, r.code, r.stderr)
	var list []store.Action
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &list))
	require.Len(t, list, 1)
	return list[0]
}

func TestParkedListsWhatMatches(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.leaveParked(t)
		r := waybill(t, "parked", "list", "--sink", "partner", "--error", "post", "--state", "dead", "--limit", "1", "--database", o.address)
		require.Zero(t, r.code, r.stderr)
		require.Regexp(t, `^ SINK +STATE +ID +TYPE +KEY +ATTEMPT +SINCE +DUE +CLASS +LAST ERROR
 partner +dead +a +order.placed +k +12 +\S+ \S+ +- +- +POST: 500 Internal

1 of 2: see --limit
$`, r.stdout)
		require.Equal(t, result{stdout: "nothing that matches is parked\n"}, waybill(t, "parked", "list", "--key", "nobody's", "--database", o.address))
		require.Equal(t, []string{"e dead", "a dead", "b dead", "c dead", "d blocked"}, o.states(t))

		r = waybill(t, "parked", "list", "--metadata", "tenant=x", "--json", "--database", o.address)
		require.Contains(t, r.stdout, `"id": "a"`)
		require.NotContains(t, r.stdout, `"id": "b"`)
		require.Equal(t, result{stdout: "nothing that matches is parked\n"}, waybill(t, "parked", "list", "--metadata", "tenant=x", "--metadata", "of=y", "--database", o.address))
		require.Equal(t, result{stdout: " SINK     PARKED  COUNT\n partner  dead        1\nwould discard 1 delivery\n"},
			waybill(t, "parked", "discard", "--metadata", "tenant=x", "--dry-run", "--database", o.address))
		for _, wrong := range []string{"tenant", "=x"} {
			r = waybill(t, "parked", "discard", "--metadata", wrong, "--yes", "--database", o.address)
			require.Equal(t, exitUsage, r.code)
			require.Contains(t, r.stderr, "such as tenant=acme")
		}

		r = waybill(t, "parked", "show", "a", "--database", o.address)
		require.Regexp(t, `(?s)sink: +partner\nstate: +dead, since .*attempts: +12\nlast error: +POST: 500 Internal\nmetadata: +tenant=x\npayload: +\{"n": 1\}\n$`, r.stdout)
		r = waybill(t, "parked", "show", "a", "--json", "--database", o.address)
		var whole []admin.WholeView
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &whole))
		require.Equal(t, map[string]any{"n": 1.0}, whole[0].Payload)
		r = waybill(t, "parked", "show", "z", "--database", o.address)
		require.Equal(t, result{code: exitFailed, stderr: "waybill: nothing of z is parked: waybill why z shows where it is\n"}, r)
	})
}

func TestRequeueShowsTheCountAndAsks(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.leaveParked(t)
		const shown = " SINK     PARKED  COUNT\n partner  dead        3\n"
		for _, text := range []string{"", "\n", "no\n"} {
			r := answer(t, text, "parked", "requeue", "--sink", "partner", "--database", o.address)
			require.Equal(t, result{stdout: shown + "Requeue 3 deliveries? [y/N] nothing was done\n"}, r, text)
		}
		require.Equal(t, result{stdout: shown + "would requeue 3 deliveries\n"},
			waybill(t, "parked", "requeue", "--sink", "partner", "--dry-run", "--database", o.address))
		require.Equal(t, []string{"e dead", "a dead", "b dead", "c dead", "d blocked"}, o.states(t))

		r := answer(t, "y\n", "parked", "requeue", "--sink", "partner", "--by", "ada", "--database", o.address)
		action := o.lastAction(t)
		require.Equal(t, result{stdout: shown + "Requeue 3 deliveries? [y/N] requeued 3 deliveries (action " + action.ID + ")\n"}, r)
		require.Equal(t, []string{"e dead", "a retrying", "b blocked", "c retrying", "d blocked"}, o.states(t))
		require.Equal(t, "ada", action.Who)
		require.Equal(t, "requeue", action.Name)
		require.EqualValues(t, 3, action.Count)
		require.False(t, action.EndedAt.IsZero())
		require.JSONEq(t, `{"sink": "partner", "states": ["dead"]}`, string(action.Filter))
		require.Equal(t, result{stdout: "nothing to requeue\n"}, waybill(t, "parked", "requeue", "--all", "--yes", "--database", o.address))
	})
}

func TestDiscardAndSkipDeleteWhatTheyShow(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.leaveParked(t)
		r := waybill(t, "parked", "skip", "--key", "k", "--yes", "--database", o.address)
		require.Zero(t, r.code, r.stderr)
		require.Equal(t, []string{"e dead", "b dead", "c dead", "d blocked"}, o.states(t))
		r = waybill(t, "parked", "discard", "--type", "order.*", "--yes", "--json", "--database", o.address)
		require.Zero(t, r.code, r.stderr)
		var action store.Action
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &action))
		require.EqualValues(t, 2, action.Count)
		require.Equal(t, []string{"e dead", "d blocked"}, o.states(t))
	})
}

func TestBulkActionsRefuseInvalidArguments(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.leaveParked(t)
		for args, want := range map[string]struct {
			code   int
			stderr string
		}{
			"parked requeue --sink partner":               {exitUsage, "there is no terminal to ask on: check with --dry-run, then use --yes"},
			"parked discard --sink partner --json":        {exitUsage, "there is no terminal to ask on"},
			"parked requeue --yes":                        {exitUsage, "select deliveries, such as with --sink partner, or use --all"},
			"parked requeue --yes --all --key k":          {exitUsage, "leave one of them out"},
			"parked requeue --yes --sink mial":            {exitFailed, `unknown sink "mial": the outbox knows _unrouted, partner`},
			"parked requeue --yes --state blocked":        {exitUsage, "blocked deliveries cannot be requeued"},
			"parked requeue --yes --state ded":            {exitUsage, `unknown state "ded": use retrying, scheduled, blocked, quiet, dead, settling, collecting or cancelled`},
			"parked requeue --yes --sink _unrouted":       {exitUsage, "add a route, and reroute it"},
			"parked list --older-than 3x":                 {exitUsage, "use a duration like 90m, 12h or 7d"},
			"parked list --older-than 2h --newer-than 1h": {exitUsage, "nothing is older than 2h0m0s and newer than 1h0m0s"},
			"pause":                                  {exitUsage, "name a sink, or use --all"},
			"pause mial":                             {exitFailed, `unknown sink "mial"`},
			"pause partner --all":                    {exitUsage, "leave the names out"},
			"replay --sink partner --yes":            {exitUsage, "a replay needs the configuration's routes"},
			"replay --yes":                           {exitUsage, "name the sink to deliver to"},
			"replay --continue x --sink y --yes":     {exitUsage, "leave the other flags out"},
			"replay --continue x --yes":              {exitFailed, "unknown action"},
			"replay --sink partner --since tomorrow": {exitUsage, "use a time like"},
			"parked reroute --yes":                   {exitUsage, "rerouting needs the configuration's routes"},
			"why":                                    {exitUsage, "give the id of a notification"},
		} {
			r := waybill(t, append(strings.Fields(args), "--database", o.address)...)
			require.Equal(t, want.code, r.code, args)
			require.Contains(t, r.stderr, want.stderr, args)
			require.Empty(t, r.stdout, args)
		}
		require.Len(t, o.states(t), 5)
		r := waybill(t, "actions", "--database", o.address)
		require.Equal(t, result{stdout: "no actions yet\n"}, r)
	})
}

func TestReplayCoversOnlyTypesOfTheSink(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		o.publish(t, 1, 20)
		_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox (type, payload) VALUES ('parcel.lost', '{}')`)
		require.NoError(t, err)
		destination := newReceiver(t)
		config := o.config(t, "15s", destination.URL)
		f := startForward(t, "-c", config)
		destination.await(t, 20)
		require.Eventually(t, func() bool { return len(o.status(t).Parked) == 1 }, patience, 10*time.Millisecond)
		require.Zero(t, f.end(t).code)

		require.Equal(t, result{stdout: "would replay 20 deliveries\n"}, waybill(t, "replay", "--sink", "partner", "--since", "1h", "--dry-run", "-c", config))
		require.Equal(t, result{stdout: "nothing to replay\n"}, waybill(t, "replay", "--sink", "partner", "--type", "parcel.lost", "--yes", "-c", config))
		r := waybill(t, "replay", "--sink", "other", "--yes", "-c", config)
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.stderr, `no route of the configuration leads to sink "other"`)

		_, err = o.db.ExecContext(t.Context(), `DELETE FROM outbox WHERE "offset" <= 3`)
		require.NoError(t, err)
		r = waybill(t, "replay", "--sink", "partner", "--since", "7d", "--rate", "0", "--yes", "-c", config)
		require.Zero(t, r.code, r.stderr)
		require.Regexp(t, `^retention has deleted the rows before offset 4, of \S+ \S+\nreplayed 17 deliveries \(action \S+\)\n$`, r.stdout)
		f = startForward(t, "-c", config)
		require.Eventually(t, func() bool {
			destination.mu.Lock()
			defer destination.mu.Unlock()
			twice := 0
			for _, n := range destination.counts {
				twice += n - 1
			}
			return twice == 17
		}, patience, 10*time.Millisecond)
		require.Zero(t, f.end(t).code)
	})
}

func TestAnInterruptedReplayShowsHowToContinue(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		o.publish(t, 1, 20)
		destination := newReceiver(t)
		config := o.config(t, "15s", destination.URL)
		f := startForward(t, "-c", config)
		destination.await(t, 20)
		require.Zero(t, f.end(t).code)

		p := start(t, "replay", "--sink", "partner", "--rate", "2", "--yes", "-c", config)
		require.Eventually(t, func() bool {
			var n int
			require.NoError(t, o.db.QueryRowContext(t.Context(), `SELECT count(*) FROM outbox_parked`).Scan(&n))
			return n > 0
		}, patience, 10*time.Millisecond)
		p.signal(t, syscall.SIGINT)
		line := p.awaitLine(t, "replayed")
		require.Equal(t, exitSignal, p.wait())
		action := o.lastAction(t)
		require.True(t, action.EndedAt.IsZero())
		require.Contains(t, line, fmt.Sprintf("replayed %d of 20 deliveries, then stopped; continue with waybill replay --continue %s", action.Count, action.ID))
		require.Len(t, o.states(t), int(action.Count))

		r := waybill(t, "replay", "--continue", action.ID, "--yes", "-c", config)
		require.Zero(t, r.code, r.stderr)
		require.Len(t, o.states(t), 20)
		action = o.lastAction(t)
		require.EqualValues(t, 20, action.Count)
		require.False(t, action.EndedAt.IsZero())
		r = waybill(t, "replay", "--continue", action.ID, "--yes", "-c", config)
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.stderr, "the action has ended")
	})
}

func TestPauseStopsDeliveriesAndResumeContinuesThem(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		o.publish(t, 1, 3)
		destination := newReceiver(t)
		f := startForward(t, "-c", o.config(t, "8s", destination.URL))
		destination.await(t, 3)
		require.Equal(t, result{stdout: "paused partner\n"}, waybill(t, "pause", "partner", "--reason", "OPS-7", "--database", o.address))
		require.Equal(t, result{stdout: "partner was paused already\n"}, waybill(t, "pause", "partner", "--database", o.address))
		require.Equal(t, result{stdout: "no sink was paused\n"}, waybill(t, "pause", "--all", "--database", o.address))
		require.Eventually(t, func() bool { // the forwarder releases the lane
			for _, c := range o.status(t).Cursors {
				if c.Sink == "partner" {
					return c.Paused && c.Owner == ""
				}
			}
			return false
		}, patience, 10*time.Millisecond)
		require.Regexp(t, `(?m)^ partner +the sink is paused since \S+ \S+Z by \S+: OPS-7$`, waybill(t, "status", "--database", o.address).stdout)
		o.publish(t, 4, 6)
		require.Equal(t, result{stdout: "resumed partner\n"}, waybill(t, "resume", "--all", "--database", o.address))
		destination.await(t, 6)
		ended := f.end(t)
		require.Zero(t, ended.code)
		require.Regexp(t, `msg="sink is paused: its lanes are released until it is resumed" .*by=\S+ since=\S+ reason=OPS-7`, ended.stderr)
		require.Equal(t, "resume", o.lastAction(t).Name)
		r := waybill(t, "actions", "--database", o.address)
		require.Regexp(t, `(?m)^ \S+ \S+ +\S+ +pause +1 +- +done +\S+ \S+ +\{"sinks": ?\["partner"\]\}`, r.stdout)
		require.Contains(t, waybill(t, "actions", "--json", "--database", o.address).stdout, `"reason": "OPS-7"`)
	})
}

func TestAnActionIsCancelledByItsID(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.leaveParked(t)
		_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox_actions (id, who, action, filter, planned, count) VALUES ('a', 'ada', 'replay', '{}', 9, 4)`)
		require.NoError(t, err)
		require.Regexp(t, `(?m)^ \S+ \S+ +ada +replay +4 +9 +running +- `, waybill(t, "actions", "--database", o.address).stdout)
		require.Equal(t, result{stdout: "cancelled replay a: 4 done\n"}, waybill(t, "actions", "cancel", "a", "--by", "eve", "--database", o.address))
		require.Regexp(t, `(?m)^ \S+ \S+ +ada +replay +4 +9 +cancelled +- `, waybill(t, "actions", "--database", o.address).stdout)
		action := o.lastAction(t)
		require.Equal(t, "eve", action.CancelledBy)
		for _, args := range [][]string{{"a"}, {"b"}} {
			require.Equal(t, exitFailed, waybill(t, append([]string{"actions", "cancel", "--database", o.address}, args...)...).code)
		}
		require.Equal(t, exitUsage, waybill(t, "actions", "cancel", "--database", o.address).code)
	})
}

func TestWhyShowsWhereANotificationIs(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox (id, type, key, payload) VALUES ('mine', 'order.placed', 'k', '{}'), ('lost', 'parcel.lost', '', '{}')`)
		require.NoError(t, err)
		destination := newReceiver(t)
		config := o.config(t, "15s", destination.URL)
		r := waybill(t, "why", "mine", "-c", config)
		require.Zero(t, r.code, r.stderr)
		require.Regexp(t, `(?m)^ partner +unread +not read yet: no forwarder has started with this sink$`, r.stdout)
		f := startForward(t, "-c", config)
		destination.await(t, 1)
		require.Eventually(t, func() bool { return len(o.status(t).Parked) == 1 }, patience, 10*time.Millisecond)
		require.Zero(t, f.end(t).code)
		r = waybill(t, "why", "mine", "-c", config)
		require.Regexp(t, `^id: +mine\ntype: +order.placed\nkey: +k\noffset: +1\noccurred on: .*\n\n SINK +WHERE +WHY\n partner +settled +delivered, or skipped when the sink was new, or discarded by an operator \(receipts are off: set outbox.receipts: true to know next time\)\n$`, r.stdout)
		r = waybill(t, "why", "mine", "--database", o.address)
		require.Regexp(t, `(?m)^ partner +settled +delivered, or not for this sink$`, r.stdout)
		r = waybill(t, "why", "lost", "-c", config)
		require.Regexp(t, `(?m)^ _unrouted +no route +no route matched parcel.lost when it was read`, r.stdout)
		r = waybill(t, "why", "nobody's", "--json", "-c", config)
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.stdout, `"known": false`)
		require.Contains(t, r.stderr, "unknown id")
	})
}

func TestWhatFailedIsShownWithItsAttempts(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.leaveParked(t)
		_, err := o.db.ExecContext(t.Context(), `UPDATE outbox_parked SET last_error = '422: no email', attempts = $1 WHERE id = 'a'`, store.EncodePastAttempts([]store.PastAttempt{
			{Began: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Duration: 12 * time.Millisecond, Number: 1, Class: "permanent", Error: "422: no email", Forwarder: "host-1"},
			{Began: time.Date(2026, 1, 1, 3, 4, 5, 0, time.UTC), Duration: 10 * time.Second, Number: 12, Class: "timeout", Error: "no answer", Forwarder: "host-2"},
		}))
		require.NoError(t, err)
		attempts := ` 2026-01-02 03:04:05Z +1 +permanent +12ms +host-1 +422: no email
 (?:partner  )?2026-01-01 03:04:05Z +12 +timeout +10s +host-2 +no answer
`
		r := waybill(t, "parked", "show", "a", "--database", o.address)
		require.Regexp(t, `\nlast error: +permanent: 422: no email\n\n +FAILED AT +ATTEMPT +CLASS +TOOK +BY +ERROR *\n`+attempts, r.stdout)
		r = waybill(t, "why", "a", "--database", o.address)
		require.Regexp(t, `after attempt 12: permanent: 422: no email\n\n SINK +FAILED AT .*\n partner `+attempts+`$`, r.stdout)
		r = waybill(t, "parked", "list", "--id", "a", "--json", "--database", o.address)
		require.Contains(t, r.stdout, `"class": "permanent"`)
		require.Contains(t, r.stdout, `"last_error": "422: no email"`)
		require.Contains(t, r.stdout, `"forwarder": "host-2"`)
	})
}

func TestACauseIsRequeuedAsListed(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.leaveParked(t)
		r := waybill(t, "parked", "causes", "--database", o.address)
		require.Equal(t, result{stdout: "nothing that matches has failed\n"}, waybill(t, "parked", "causes", "--key", "none", "--database", o.address))
		require.Contains(t, waybill(t, "parked", "causes", "--sink", "absent", "--database", o.address).stderr, `unknown sink "absent": the outbox knows`)
		require.Regexp(t, `(?m)^ COUNT +CLASS +ERROR +TYPE +SINK +OLDEST +CAUSE *\n 1 × +- `, r.stdout)
		r = waybill(t, "parked", "causes", "--error", "gone", "--json", "--database", o.address)
		var causes admin.Causes
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &causes))
		require.Len(t, causes.Causes, 1)
		require.Equal(t, "POST: 410 Gone", causes.Causes[0].Error)
		r = waybill(t, "parked", "requeue", "--cause", causes.Causes[0].ID, "--yes", "--database", o.address)
		require.Zero(t, r.code, r.stderr)
		require.Equal(t, []string{"e dead", "a dead", "b dead", "c retrying", "d blocked"}, o.states(t))
		r = waybill(t, "parked", "requeue", "--cause", "none", "--yes", "--database", o.address)
		require.Zero(t, r.code, r.stderr)
		require.Equal(t, []string{"e dead", "a dead", "b dead", "c retrying", "d blocked"}, o.states(t))
	})
}

func TestCollectionsAreListedAndExplained(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		for _, statement := range []string{
			`INSERT INTO outbox_cursors (sink, lane, lanes) VALUES ('partner', 0, 1)`,
			`INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, due_at, last_error, collect_group, collection) VALUES
				('partner', 1, 0, 'a', 'order.placed', 1, 'k', '2026-01-02T12:00:00.000000Z', '{}', '{}', 'collecting', 0, NULL, '', 'cart-17', ''),
				('partner', 2, 0, 'b', 'order.placed', 1, '', '2026-01-02T12:00:00.000000Z', '{}', '{}', 'collecting', 0, NULL, '', 'cart-17', ''),
				('partner', 3, 0, 'c', 'order.placed', 1, '', '2026-01-02T12:00:00.000000Z', '{}', '{}', 'collecting', 2, '2100-01-02T12:00:00.000000Z', '503', 'cart-18', 'n1'),
				('partner', 4, 0, 'd', 'order.placed', 1, '', '2026-01-02T12:00:00.000000Z', '{}', '{}', 'dead', 2, NULL, '404', '', '')`,
			`INSERT INTO outbox_collections (sink, collect_group, slot, members, due_at, due_by, closed) VALUES
				('partner', 'cart-17', 0, 2, '2100-01-02T12:00:00.000000Z', '2100-01-02T13:00:00.000000Z', ''),
				('partner', 'cart-18', 0, 0, '2026-01-02T12:00:00.000000Z', '2026-01-02T13:00:00.000000Z', 'n1')`,
		} {
			_, err := o.db.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		r := waybill(t, "parked", "list", "--group", "cart-17", "--state", "collecting", "--database", o.address)
		require.Zero(t, r.code, r.stderr)
		require.Regexp(t, `^ SINK +STATE +ID +TYPE +KEY +GROUP +ATTEMPT +SINCE +DUE +CLASS +LAST ERROR
 partner +collecting +a +order.placed +k +cart-17 +0 .*
 partner +collecting +b +order.placed +- +cart-17 +0 .*
$`, r.stdout)
		r = waybill(t, "parked", "show", "c", "--database", o.address)
		require.Regexp(t, `(?s)\nkey: +-\ngroup: +cart-18\ncollection: +4576aa7e-6dff-550f-8964-56e401045171\n`, r.stdout)
		r = waybill(t, "why", "a", "--database", o.address)
		require.Regexp(t, `(?m)^ partner +collecting +waits in collection cart-17 with 1 other, due at 2100-01-02 12:00:00Z`, r.stdout)
		r = waybill(t, "status", "--database", o.address)
		require.Regexp(t, `(?m)^ partner +collecting +3 in 2 groups$`, r.stdout)
		require.NotContains(t, r.stdout, "overdue")
		require.Equal(t, result{stdout: " SINK     PARKED      COUNT\n partner  collecting      1\nwould requeue 1 delivery\n"},
			waybill(t, "parked", "requeue", "--state", "collecting", "--dry-run", "--database", o.address))
		require.Equal(t, result{stdout: " SINK     PARKED      COUNT\n partner  collecting      2\nwould discard 2 deliveries\n"},
			waybill(t, "parked", "discard", "--group", "cart-17", "--state", "collecting", "--dry-run", "--database", o.address))
	})
}
