package program

import (
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
		require.JSONEq(t, `{"last_offset": 0, "oldest": null, "cursors": [], "parked": [], "holders": [], "troubles": [], "forwarders": []}`, sampled.ReplaceAllString(r.stdout, ""))
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
 _unrouted +0 +0 +\S+/\d+/\w+ +(1m0s|[1-5]\d(\.\d)?s)
 partner +0 +0 +\S+/\d+/\w+ +(1m0s|[1-5]\d(\.\d)?s)

 SINK +PARKED +COUNT
 _unrouted +dead +1

 SINK +TROUBLE
 _unrouted +1 delivery dead: no route matches its type; add one, and run: waybill parked reroute

 FORWARDER +DELIVERED +FAILED +DEAD +PER SECOND +IN FLIGHT +PENDING +BREAKERS OPEN
 \S+/\d+/\w+ +\d +0 +\d +\d\.\d +\d +\d +0
$`, r.stdout)

		require.Zero(t, f.end(t).code)
		r = waybill(t, "status", "--database", o.address)
		require.Regexp(t, `\n partner +0 +0 +- +-\n`, r.stdout, "the lease is given back")

		_, err = o.db.ExecContext(t.Context(), `INSERT INTO outbox (type, payload) VALUES ('parcel.lost', '{}')`)
		require.NoError(t, err)
		for _, of := range [][]string{{"-c", o.config(t, "60s", destination.URL)}, {"--database", o.address}} {
			r = waybill(t, append([]string{"status"}, of...)...)
			require.Regexp(t, `\n _unrouted +0 +1 .*\n partner +0 +0 `, r.stdout, "the sink does not take the type")
			require.NotContains(t, r.stdout, "all types")
		}
	})
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
