package program

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
)

// insert publishes with plain SQL, with a causation id.
func (o outbox) insert(t *testing.T, id, typ, correlation, causation string) {
	t.Helper()
	metadata := "{}"
	if causation != "" {
		metadata = fmt.Sprintf(`{"correlation-id": %q, "causation-id": %q}`, correlation, causation)
	}
	_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox (id, type, metadata, payload) VALUES ($1, $2, $3, '{}')`, id, typ, metadata)
	require.NoError(t, err)
}

func TestTraceShowsWhatANotificationCausedAndWhereItIs(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		destination := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Waybill-Type") == "order.refused" {
				http.Error(w, "no such order", http.StatusBadRequest)
			}
		}))
		t.Cleanup(destination.Close)
		config := o.config(t, "15s", destination.URL)
		root := uuid.Must(uuid.NewV7()).String()
		o.insert(t, "other", "order.placed", "", "")
		o.insert(t, root, "order.placed", "", "")
		o.insert(t, "paid", "order.paid", root, root)
		o.insert(t, "refused", "order.refused", root, "paid")
		o.insert(t, "lost", "parcel.lost", root, root)
		f := startForward(t, "-c", config)
		require.Eventually(t, func() bool { return len(o.status(t).Parked) == 2 }, patience, 10*time.Millisecond)
		require.Zero(t, f.end(t).code)
		o.insert(t, "late", "order.closed", root, "gone")

		want := fmt.Sprintf(`^correlation: %[1]s
searched: what is parked, and offsets 1 \(.*\) to 6 \(.*\)

%[1]s  order.placed  -  \d+s  partner settled
  paid  order.paid  -  \d+s  partner settled
    refused  order.refused  -  \d+s  partner dead
        partner: .*400 Bad Request: no such order
  lost  parcel.lost  -  \d+s  _unrouted no route
      _unrouted: .*
caused by gone, which was not found:
late  order.closed  -  \d+s  partner pending
$`, root)
		for _, id := range []string{root, "paid", "late"} {
			r := waybill(t, "trace", id, "-c", config)
			require.Zero(t, r.code, r.stderr)
			require.Regexp(t, want, r.stdout)
		}
		r := waybill(t, "trace", root, "--from", "3", "-c", config)
		require.Contains(t, r.stdout, "caused by "+root+", which was not found:\npaid  order.paid")
		require.Contains(t, r.stdout, "offsets 3 (")
		require.Contains(t, r.stdout, "the log begins at offset 1")

		_, err := o.db.ExecContext(t.Context(), `DELETE FROM outbox WHERE "offset" < 6`)
		require.NoError(t, err)
		r = waybill(t, "trace", root, "--json", "-c", config)
		require.Zero(t, r.code, r.stderr)
		var tree admin.Tree
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &tree))
		require.Equal(t, 3, tree.Count, "what is parked needs no row: %s", r.stdout)
		require.Equal(t, "refused", tree.Roots[0].ID)
		require.Equal(t, admin.Dead, tree.Roots[0].Verdicts[0].Where)
		require.False(t, tree.Roots[0].InLog)

		r = waybill(t, "trace", "never", "-c", config)
		require.Equal(t, exitFailed, r.code)
		require.Empty(t, r.stdout)
		require.Contains(t, r.stderr, "found nothing of \"never\"; searched: what is parked, and offsets 6 (")
		for _, args := range []string{"trace", "trace a b", "trace a --from -1", "trace a --from x"} {
			require.Equal(t, exitUsage, waybill(t, append(strings.Fields(args), "-c", config)...).code, args)
		}
		require.Equal(t, exitUsage, waybill(t, "trace", "", "-c", config).code)
	})
}
