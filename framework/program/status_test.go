package program

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store"
)

func TestStatusBeforeMigrateSaysWhatToRun(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		r := waybill(t, "status", "--database", o.address)
		require.Equal(t, exitFailed, r.code)
		require.Empty(t, r.stdout)
		require.Regexp(t, "^waybill: the outbox is not migrated: .*: run `waybill migrate`, or call Migrate\n$", r.stderr)
	})
}

func TestStatusCreatesNoFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	r := waybill(t, "status", "--database", "sqlite:"+path)
	require.Equal(t, result{code: exitFailed, stderr: "waybill: the outbox is not migrated: the file " + path + " does not exist: run `waybill migrate`\n"}, r)
	require.NoFileExists(t, path)
}

func TestStatusOfAFreshOutbox(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		r := waybill(t, "status", "--database", o.address)
		require.Equal(t, result{stdout: "last offset: 0\n\nno cursors: no forwarder has run yet\n\nnothing is parked\n"}, r)

		r = waybill(t, "status", "--json", "--database", o.address)
		require.Zero(t, r.code, r.stderr)
		sampled := regexp.MustCompile(`"sampled_at": "20[^"]+Z",`)
		require.Regexp(t, sampled, r.stdout)
		require.JSONEq(t, `{"last_offset": 0, "oldest": null, "cursors": [], "parked": [], "holders": [], "conditions": [], "forwarders": []}`, sampled.ReplaceAllString(r.stdout, ""))
	})
}

func TestStatusAfterForwarding(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		o.publish(t, 1, 3)
		_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox (type, payload) VALUES ('parcel.lost', '{}')`)
		require.NoError(t, err)
		destination := newReceiver(t)
		f := startForward(t, "-c", o.config(t, "60s", destination.URL))
		destination.await(t, 3)
		require.Eventually(t, func() bool { // the checkpoint follows the delivery
			var look store.Status
			r := waybill(t, "status", "--json", "--database", o.address)
			require.NoError(t, json.Unmarshal([]byte(r.stdout), &look))
			return len(look.Cursors) == 2 && look.Cursors[0].Pending == 0 && look.Cursors[1].Pending == 0 && len(look.Parked) == 1
		}, patience, 10*time.Millisecond)

		r := waybill(t, "status", "--database", o.address)
		require.Regexp(t, `^last offset: 4
oldest row:  1, of 20\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ

 SINK +LANE +PENDING +OWNER +LEASE LEFT
 _unrouted +0 +0 +\S+/\d+/\w+ +(1m0s|5\d(\.\d)?s)
 partner +0 +0 +\S+/\d+/\w+ +(1m0s|5\d(\.\d)?s)
PENDING of _unrouted, partner counts rows of all types: the configuration has no routes to them, or none was read

 SINK +PARKED +COUNT
 _unrouted +dead +1

 FORWARDER +DELIVERED +FAILED +DEAD +PER SECOND +IN FLIGHT +PENDING +BREAKERS OPEN
 \S+/\d+/\w+ +\d +0 +\d +\d\.\d +\d +\d +0
$`, r.stdout)

		require.Zero(t, f.end(t).code)
		r = waybill(t, "status", "--database", o.address)
		require.Regexp(t, `\n partner +0 +0 +- +-\n`, r.stdout, "the lease is given back")

		_, err = o.db.ExecContext(t.Context(), `INSERT INTO outbox (type, payload) VALUES ('parcel.lost', '{}')`)
		require.NoError(t, err)
		r = waybill(t, "status", "-c", o.config(t, "60s", destination.URL))
		require.Regexp(t, `\n _unrouted +0 +1 .*\n partner +0 +0 `, r.stdout, "its routes do not bring the type")
		require.NotContains(t, r.stdout, "all types")
		r = waybill(t, "status", "--database", o.address)
		require.Regexp(t, `\n partner +0 +1 .*\nPENDING of _unrouted, partner counts rows of all types`, r.stdout)
	})
}

func TestStatusStopsCounting(t *testing.T) {
	t.Parallel()
	now := time.Now()
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	var b bytes.Buffer
	printStatus(&b, store.Status{
		LastOffset: 7,
		Cursors: []store.CursorStatus{
			{Sink: "mail", Lane: 1, Pending: store.PendingLimit, Owner: "a/1/x", LeaseUntil: now.Add(-time.Second)},
			{Sink: "mail", Lane: 2, Pending: store.PendingLimit - 1},
		},
		Parked: []store.ParkedCount{{Sink: "mail", State: store.StateBlocked, Count: 12}},
		Oldest: &store.Row{Offset: 3, OccurredOn: noon},
		Holders: []store.Holder{
			{Sink: "mail", Row: store.Row{Offset: 5, OccurredOn: noon.Add(time.Hour)}},
			{Sink: "old", Row: store.Row{Offset: 3, OccurredOn: noon}, Reason: "1 of its 2 lanes have a cursor"},
		},
	}, []store.Condition{
		{Sink: "mail", Kind: store.ConditionBreakerOpen, Forwarder: "a/1/x", Since: noon, Cause: "refused"},
		{Sink: "old", Kind: store.ConditionPaused},
	}, now)
	require.Equal(t, `last offset: 7
oldest row:  3, of 2026-01-02 12:00:00Z

 SINK  LANE  PENDING  OWNER  LEASE LEFT
 mail     1  10000+   a/1/x  expired
 mail     2  9999     -      -

 SINK  PARKED   COUNT
 mail  blocked     12

 SINK  KEEPS FROM  OF                    WHY
 mail           5  2026-01-02 13:00:00Z  not settled
 old            3  2026-01-02 12:00:00Z  1 of its 2 lanes have a cursor

 SINK  CONDITION     SINCE                 UNTIL  AS SEEN BY  CAUSE
 mail  breaker open  2026-01-02 12:00:00Z  -      a/1/x       refused
 old   paused        -                     -      -           -
`, b.String())
}

func TestStatusNamesThrottledAndFailingDestinations(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	printStatus(&b, store.Status{}, []store.Condition{
		{Sink: "hooks", Destination: "https://a.example", Kind: store.ConditionBreakerOpen, Forwarder: "w", Since: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), Cause: "refused"},
	}, time.Now())
	require.Contains(t, b.String(), "\n hooks to https://a.example  breaker open  2026-01-02 12:00:00Z  -      w           refused\n")
}

func TestStatusHasALineForEachForwarderWithTheSumsOverItsSinks(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	printForwarders(&b, []admin.ForwarderStatus{
		{Forwarder: "a/1/x", Running: []store.SinkRunning{
			{Sink: "events", Delivered: 100, Failed: 2, PerSecond: 1.25, InFlight: 3, Threshold: 16, Pending: 7},
			{Sink: "mail", Delivered: 10, Dead: 1, PerSecond: 0.5, BreakerOpen: true, Cause: "refused"},
		}},
		{Forwarder: "b/2/y"},
	})
	require.Equal(t, `
 FORWARDER  DELIVERED  FAILED  DEAD  PER SECOND  IN FLIGHT  PENDING  BREAKERS OPEN
 a/1/x            110       2     1         1.8          3        7              1
 b/2/y              0       0     0         0.0          0        0              0
`, b.String())
}

func TestStatusAsJSONHasTheWorkOfEachForwarderForEachSink(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		o.publish(t, 1, 3)
		destination := newReceiver(t)
		f := startForward(t, "-c", o.config(t, "1s", destination.URL)) // with a heartbeat each third of the lease
		require.Eventually(t, func() bool {
			var look struct{ Forwarders []admin.ForwarderStatus }
			r := waybill(t, "status", "--json", "--database", o.address)
			if r.code != 0 { // not migrated yet, or not yet begun
				return false
			}
			require.NoError(t, json.Unmarshal([]byte(r.stdout), &look))
			if len(look.Forwarders) != 1 || len(look.Forwarders[0].Running) != 2 {
				return false
			}
			partner := look.Forwarders[0].Running[1]
			return partner.Sink == "partner" && partner.Delivered == 3 && partner.Threshold == 8 && partner.InFlight == 0 && partner.PerSecond > 0
		}, patience, 10*time.Millisecond)
		require.Zero(t, f.end(t).code)
	})
}
