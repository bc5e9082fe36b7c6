package program

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestACaptureIsCreatedListedAndRemoved(t *testing.T) {
	t.Parallel()
	o := databases["postgres"](t)
	migrate := func(args ...string) result {
		return waybill(t, append([]string{"migrate", "--database", o.address}, args...)...)
	}
	capture := []string{"--capture", "orders", "--key", "id", "--columns", "id,product"}
	r := migrate(capture...)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "run `waybill migrate`")
	require.Zero(t, migrate().code)
	_, err := o.db.ExecContext(t.Context(), `CREATE TABLE orders (id text PRIMARY KEY, product text, card text)`)
	require.NoError(t, err)

	require.Equal(t, result{stdout: "no table is captured\n"}, migrate("--captures"))
	require.Equal(t, result{code: exitFailed, stderr: "waybill: capture orders: name the columns that the notifications have: --columns; the table has id, product, card\n"},
		migrate("--capture", "orders", "--key", "id"))
	require.Equal(t, result{code: exitFailed, stderr: "waybill: capture orders: the key \"order_id\" is no column of the table, or a virtual one; the table has id, product, card\n"},
		migrate("--capture", "orders", "--key", "order_id", "--columns", "id"))
	require.Equal(t, result{code: exitFailed, stderr: "waybill: capture orders: all columns are never captured: name each, since what is added later may be secret; the table has id, product, card\n"},
		migrate("--capture", "orders", "--key", "id", "--columns", "*"))
	require.Equal(t, result{stdout: "no table is captured\n"}, migrate("--captures"))

	r = migrate(append(capture, "--print")...)
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, `CREATE TRIGGER "outbox_capture_insert" AFTER INSERT ON public.orders`)
	require.JSONEq(t, `[]`, migrate("--captures", "--json").stdout)

	r = migrate(capture...)
	require.Zero(t, r.code, r.stderr)
	require.Regexp(t, `public.orders +orders +insert, update, delete +id +id, product`, r.stdout)
	r = migrate(append(capture, "--on", "insert,delete", "--type", "order", "--json")...)
	require.JSONEq(t, `[{"table": "public.orders", "key": "id", "columns": ["id", "product"], "type": "order", "on": ["insert", "delete"]}]`, r.stdout)
	_, err = o.db.ExecContext(t.Context(), `INSERT INTO orders VALUES ('o-1', 'kite', '4111'); UPDATE orders SET product = 'hat'`)
	require.NoError(t, err)
	require.Equal(t, 1, o.count(t, `SELECT count(*) FROM outbox WHERE type = 'order.inserted' AND key = 'o-1'`))
	require.Equal(t, 1, o.count(t, `SELECT count(*) FROM outbox`))

	require.Equal(t, result{stdout: "orders is no longer captured\nno table is captured\n"}, migrate("--uncapture", "orders"))
	require.Equal(t, result{code: exitFailed, stderr: "waybill: capture orders: it is not captured; waybill migrate --captures lists the tables that are\n"}, migrate("--uncapture", "orders"))
}

func TestInvalidCapturesAreRefused(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"--key belongs to --capture":                                    {"--key", "id"},
		"--on belongs to --capture":                                     {"--captures", "--on", "insert"},
		"--capture and --uncapture are separate tasks":                  {"--capture", "a", "--uncapture", "b"},
		"--captures and --print-grants are separate tasks":              {"--captures", "--print-grants", "shop"},
		"--capture and --partition-rows are separate tasks":             {"--capture", "a", "--partition-rows", "5"},
		"--captures prints no SQL: leave out --print":                   {"--captures", "--print"},
		"--print prints SQL and --json prints JSON":                     {"--capture", "a", "--print", "--json"},
		"captures need PostgreSQL: in other databases, write a trigger": {"--capture", "a", "--database", "sqlite:x.db"},
	} {
		r := waybill(t, append([]string{"migrate"}, args...)...)
		require.NotZero(t, r.code)
		require.Contains(t, r.stderr, want)
	}
}
