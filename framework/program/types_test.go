package program

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTypesTellsWhereEachGoes(t *testing.T) {
	t.Parallel()
	file := writeFile(t, conditional)
	offline := waybill(t, "types", "-c", file, "--offline")
	require.Equal(t, result{stdout: ` TYPE          VERSION  ROWS  LAST  GOES TO
 order.placed  -           0  -     events, partner when payload.total > 100 && metadata.tenant == "acme" or key == "urgent"
`}, offline)

	r := waybill(t, "types", "-c", file, "--rows", "0", "--offline")
	require.Equal(t, result{code: exitUsage, stderr: "waybill: --rows is 0: use at least 1; see waybill types --help\n"}, r)
}

func TestTypesCountsThoseOfTheLog(t *testing.T) {
	t.Parallel()
	file := writeFile(t, conditional)
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox (type, version, payload, occurred_on) VALUES
			('order.placed', 2, '{}', '2026-01-02T03:04:05.000000Z'),
			('order.moved', 1, '{}', '2026-01-02T03:04:06.000000Z'),
			('parcel', 1, '{}', '2026-01-02T03:04:07.000000Z'),
			('parcel', 1, '{}', '2026-01-02T03:04:08.000000Z')`)
		require.NoError(t, err)
		r := waybill(t, "types", "-c", file, "--database", o.address)
		require.Equal(t, result{stdout: ` TYPE          VERSION  ROWS  LAST                  GOES TO
 order.moved   1           1  2026-01-02 03:04:06Z  partner when key == "urgent"
 order.placed  2           1  2026-01-02 03:04:05Z  events, partner when payload.total > 100 && metadata.tenant == "acme" or key == "urgent"
 parcel        1           2  2026-01-02 03:04:08Z  no route: parked as dead under _unrouted
`}, r)

		r = waybill(t, "types", "-c", file, "--database", o.address, "--rows", "2", "--json")
		require.JSONEq(t, `[
			{"type": "order.placed", "count": 0, "sinks": [
				{"sink": "events", "routes": [{"route": "order.placed"}]},
				{"sink": "partner", "routes": [
					{"route": "order.placed", "when": "payload.total > 100 && metadata.tenant == \"acme\"", "payload": {"order": "payload.id", "sum": "payload.total"}},
					{"route": "order.*", "when": "key == \"urgent\""}
				]}
			]},
			{"type": "parcel", "version": 1, "count": 2, "occurred_on": "2026-01-02T03:04:08Z", "unrouted": "park", "sinks": []}
		]`, r.stdout)

		ignoring := writeFile(t, "forwarder: {unrouted: ignore}\n"+fmt.Sprintf("database: %q\n", o.address)+conditional)
		require.Contains(t, waybill(t, "types", "-c", ignoring).stdout, " parcel        1           2  2026-01-02 03:04:08Z  no route: passed over\n")
	})
}
