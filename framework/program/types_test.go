package program

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/registry"
)

type typedPaid struct{ Order string }

func TestTypesShowsTheSinksOfEachType(t *testing.T) {
	t.Parallel()
	file := writeFile(t, conditional)
	offline := waybill(t, "types", "-c", file, "--offline")
	require.Equal(t, result{stdout: ` TYPE          VERSIONS  ROWS  PARKED  LAST  GOES TO
 order.placed  -            0       0  -     events, partner when payload.total > 100 && metadata.tenant == "acme" or key == "urgent"
`}, offline)

	r := waybill(t, "types", "-c", file, "--rows", "0", "--offline")
	require.Equal(t, result{code: exitUsage, stderr: "waybill: --rows is 0: use at least 1, or --all; see waybill types --help\n"}, r)
	r = waybill(t, "types", "-c", file, "--all", "--offline")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "leave one out")
}

func TestTypesCountsTheLog(t *testing.T) {
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
		require.Equal(t, result{stdout: ` TYPE          VERSIONS  ROWS  PARKED  LAST                  GOES TO
 order.moved   1            1       0  2026-01-02 03:04:06Z  partner when key == "urgent"
 order.placed  2            1       0  2026-01-02 03:04:05Z  events, partner when payload.total > 100 && metadata.tenant == "acme" or key == "urgent"
 parcel        1            2       0  2026-01-02 03:04:08Z  no route: parked as dead under _unrouted
`}, r)

		r = waybill(t, "types", "-c", file, "--database", o.address, "--rows", "2", "--json")
		require.JSONEq(t, `[
			{"type": "order.placed", "versions": [], "sinks": [
				{"sink": "events", "routes": [{"route": "order.placed"}]},
				{"sink": "partner", "routes": [
					{"route": "order.placed", "when": "payload.total > 100 && metadata.tenant == \"acme\"", "payload": {"order": "payload.id", "sum": "payload.total"}},
					{"route": "order.*", "when": "key == \"urgent\""}
				]}
			]},
			{"type": "parcel", "versions": [{"version": 1, "rows": 2, "parked": 0}], "occurred_on": "2026-01-02T03:04:08Z", "unrouted": "park", "sinks": []}
		]`, r.stdout)

		r = waybill(t, "types", "--database", o.address)
		require.Equal(t, result{stdout: ` TYPE          VERSIONS  ROWS  PARKED  LAST
 order.moved   1            1       0  2026-01-02 03:04:06Z
 order.placed  2            1       0  2026-01-02 03:04:05Z
 parcel        1            2       0  2026-01-02 03:04:08Z
`}, r, "of a program that declares its routes in Go")

		ignoring := writeFile(t, "forwarder: {unrouted: ignore}\n"+fmt.Sprintf("database: %q\n", o.address)+conditional)
		require.Contains(t, waybill(t, "types", "-c", ignoring).stdout, " parcel        1            2       0  2026-01-02 03:04:08Z  no route: skipped\n")
	})
}

func TestTypesShowsTheVersionsThatAreLeftAndThoseTheProgramCannotDecode(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[typedPaid](types, "order.paid", registry.Version(3), registry.Oldest(2), registry.Aliases("order.settled"),
		registry.Upcast(2, func(p struct{ ID string }) (typedPaid, error) { return typedPaid{p.ID}, nil })))
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox (type, version, payload) VALUES
			('_hooks', 1, '{}'), ('order.paid', 1, '{}'), ('order.paid', 2, '{}'), ('order.paid', 3, '{}'), ('order.settled', 4, '{}'), ('order.lost', 1, '{}')`)
		require.NoError(t, err)
		_, err = o.db.ExecContext(t.Context(), `INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt)
			SELECT 'events', "offset" + 100, 0, id, type, version, key, occurred_on, metadata, payload, 'dead', 1 FROM outbox WHERE type = 'order.paid'`)
		require.NoError(t, err)
		types := func(args ...string) result {
			var stdout, stderr bytes.Buffer
			code := Run(t.Context(), Call{append([]string{"types", "--database", o.address, "-c", writeFile(t, typedRoutes)}, args...), nil, &stdout, &stderr}, Types(types))
			return result{code, stdout.String(), stderr.String()}
		}
		r := types("--all")
		require.Empty(t, r.stderr)
		for _, want := range []string{
			`_hooks         1            1       0  .*  events +Waybill's own\n`,
			`order.lost     1            1       0  .*  unknown; cannot decode v1`,
			`order.paid     1, 2, 3      3       3  .*  program.typedPaid v3, reads from v2; cannot decode v1\n`,
			`order.settled  4            1       0  .*  alias of order.paid; cannot decode v4`,
		} {
			require.Regexp(t, want, r.stdout)
		}
		r = types("--rows", "2", "--json")
		require.Contains(t, r.stdout, `"decodes": false`)
		require.Zero(t, r.code)
	})
}

const typedRoutes = `
sinks: {events: {kind: jsonlines, with: {path: events}}}
routes: {"order.*": [events], _hooks: [events]}
`
