package program

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

func TestARouteThatIsAddedLaterGetsUnroutedNotifications(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		o.publish(t, 1, 1)
		_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox (id, type, payload) VALUES ('lost', 'parcel.lost', '{"n": 77}'), ('other', 'stock.counted', '{}')`)
		require.NoError(t, err)
		destination := newReceiver(t)
		before := o.config(t, "1s", destination.URL)
		f := startForward(t, "-c", before)
		destination.await(t, 1)
		require.Eventually(t, func() bool {
			var look store.Status
			r := waybill(t, "status", "--json", "--database", o.address)
			require.NoError(t, json.Unmarshal([]byte(r.stdout), &look))
			return len(look.Cursors) == 2 && look.Cursors[0].Pending == 0 && look.Cursors[1].Pending == 0
		}, patience, 10*time.Millisecond)
		r := waybill(t, "parked", "reroute", "--yes", "-c", before)
		require.Equal(t, result{stdout: "nothing to reroute\n"}, r)
		require.Zero(t, f.end(t).code)

		text, err := os.ReadFile(before)
		require.NoError(t, err)
		after := writeFile(t, string(text)+"  \"parcel.*\": [partner]\n")
		r = waybill(t, "parked", "reroute", "--dry-run", "-c", after)
		require.Zero(t, r.code, r.stderr)
		require.Regexp(t, `^ TYPE +PARKED +COUNT +GOES TO
 parcel.lost +dead +1 +partner
would reroute 1 delivery\n$`, r.stdout)
		require.ElementsMatch(t, []string{"lost dead", "other dead"}, o.states(t))

		f = startForward(t, "-c", after)
		r = waybill(t, "parked", "reroute", "--yes", "--by", "ada", "-c", after)
		require.Zero(t, r.code, r.stderr)
		require.Regexp(t, `\nrerouted 1 delivery \(action \S+\)\n$`, r.stdout)
		destination.await(t, 2)
		require.Eventually(t, func() bool { return len(o.states(t)) == 1 }, patience, 10*time.Millisecond)
		require.Equal(t, []string{"other dead"}, o.states(t))
		require.Zero(t, f.end(t).code)
		action := o.lastAction(t)
		require.Equal(t, "reroute", action.Name)
		require.Equal(t, "ada", action.Who)
		require.EqualValues(t, 1, action.Count)
	})
}
