package program

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
)

func TestALogIsListedAndAKeyExplained(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox (id, type, key, payload) VALUES
			('one', 'order.placed', 'a-6', '1'), ('two', 'order.paid', 'a-6', '2'), ('three', 'order.placed', '', '3'), ('lost', 'parcel.lost', 'a-6', '{}')`)
		require.NoError(t, err)
		destination := newReceiver(t)
		config := o.config(t, "15s", destination.URL)
		list := func(args ...string) string {
			r := waybill(t, append([]string{"log", "-c", config}, args...)...)
			require.Zero(t, r.code, r.stderr)
			return r.stdout
		}
		require.Regexp(t, `(?m)^ OFFSET +OCCURRED ON +TYPE +KEY +ID +SINKS *
 +4 +\S+ \S+Z +parcel.lost +a-6 +lost +no route *
 +3 +\S+ \S+Z +order.placed +- +three +partner pending *
 +2 +\S+ \S+Z +order.paid +a-6 +two +partner pending *
 +1 +\S+ \S+Z +order.placed +a-6 +one +partner pending *
searched back to offset 1 \(\S+ \S+Z\)
$`, list())

		f := startForward(t, "-c", config)
		destination.await(t, 3)
		require.Eventually(t, func() bool { return len(o.status(t).Parked) == 1 }, patience, 10*time.Millisecond)
		require.Zero(t, f.end(t).code)
		out := list("--key", "a-6", "--since", "1h", "--limit", "2")
		require.Regexp(t, `(?m)^ +4 .* lost +_unrouted no route *\n +2 .* two +partner settled *\nsearched back to offset 2 \(\S+ \S+Z\); continue with --before 2\n$`, out)
		require.Regexp(t, `(?m)^ +1 .* one +partner settled *$`, list("--key", "a-6", "--before", "2"))
		require.Regexp(t, `^found nothing; searched `, list("--id", "never"))
		var page admin.LogPage
		require.NoError(t, json.Unmarshal([]byte(list("--type", "order.*", "--json")), &page))
		require.Len(t, page.Rows, 3)
		require.Equal(t, admin.Settled, page.Rows[0].Verdicts[0].Where)

		r := waybill(t, "why", "--key", "a-6", "-c", config)
		require.Zero(t, r.code, r.stderr)
		require.Regexp(t, `^lost  parcel.lost  offset 4  \S+ \S+Z
  _unrouted: no route matched parcel.lost when it was read; .*
two  order.paid  offset 2  \S+ \S+Z
  partner: settled: delivered, or skipped when the sink was new, or discarded by an operator \(receipts are off: set outbox.receipts: true to know next time\)
one  order.placed  offset 1  \S+ \S+Z
  partner: settled: .*
searched back to offset 1 \(\S+ \S+Z\)
$`, r.stdout)
		r = waybill(t, "why", "--key", "a-6", "--type", "order.*", "--limit", "1", "--json", "-c", config)
		var answer admin.KeyAnswer
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &answer))
		require.Len(t, answer.Answers, 1)
		require.Equal(t, "two", answer.Answers[0].ID)
		require.EqualValues(t, 2, answer.Next)
		r = waybill(t, "why", "--key", "c-8", "-c", config)
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.stderr, `found no notification of key "c-8"; searched back to offset 1 (`)

		for args, want := range map[string]string{
			"log --limit 0":               "--limit is 0: use 1 to 1000",
			"log --before -1":             "--before is -1: use an offset",
			"log --type order*":           `type "order*": use a type like`,
			"log --since soon":            "use a time like",
			"log --since 1h --until 2h":   "is not before until",
			"log a-6":                     `unexpected argument "a-6"`,
			"why":                         "give the id of a notification, or --key KEY",
			"why one two":                 `unexpected argument "two"`,
			"why one --key a-6":           "--key is instead of an id",
			"why --key=":                  "--key is empty",
			"why --key a-6 --limit 0":     "--limit is 0: use 1 to 100",
			"why --key a-6 --before -1":   "--before is -1",
			"why --key a-6 --type order*": `type "order*": use a type like`,
			"why one --type order.placed": "--type needs --key",
		} {
			r := waybill(t, append(strings.Fields(args), "-c", config)...)
			require.Equal(t, exitUsage, r.code, args)
			require.Contains(t, r.stderr, want, args)
		}
	})
}
