package program

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/store"
)

// answer runs a command at a terminal where a user types text.
func answer(t *testing.T, text string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	p := &command.Invocation{Stdout: &stdout, Stderr: &stderr, Options: config.Options{Kinds: ownKinds(t)}}
	root := newRoot(p)
	root.SetArgs(args)
	root.SetIn(strings.NewReader(text))
	err := root.ExecuteContext(t.Context())
	p.Print(err)
	return result{exitCode(err), stdout.String(), stderr.String()}
}

// leaveTraces creates two sinks as a stopped forwarder leaves them.
func (o outbox) leaveTraces(t *testing.T) {
	t.Helper()
	o.migrate(t)
	o.publish(t, 1, 3)
	for _, statement := range []string{
		`INSERT INTO outbox_cursors (sink, lane, lanes) VALUES ('mail', 0, 1), ('old', 0, 1)`,
		`INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt)
			SELECT 'old', "offset", 0, id, type, version, key, occurred_on, metadata, payload, 'dead', 1 FROM outbox WHERE "offset" < 3`,
		`INSERT INTO outbox_receipts (sink, "offset", id, receipt, attempt, delivered_at) VALUES ('old', 3, '3', 'r', 1, '2026-01-02T12:00:00.000000Z')`,
	} {
		_, err := o.db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
}

func (o outbox) status(t *testing.T) store.Status {
	t.Helper()
	r := waybill(t, "status", "--json", "--database", o.address)
	require.Zero(t, r.code, r.stderr)
	var look store.Status
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &look))
	return look
}

func TestForgetShowsWhatItWillDeleteAndAsks(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.leaveTraces(t)
		require.Len(t, o.status(t).Holders, 2)
		const question = "old has 1 cursor, 2 parked deliveries and 1 receipt. Delete them? [y/N] "
		for _, text := range []string{"", "\n", "n\n", "maybe\n"} {
			r := answer(t, text, "forget", "old", "--database", o.address)
			require.Equal(t, result{stdout: question + "nothing was deleted\n"}, r, text)
		}
		require.Len(t, o.status(t).Cursors, 2)

		r := answer(t, "Yes\n", "forget", "old", "--database", o.address)
		require.Equal(t, result{stdout: question + "deleted 1 cursor, 2 parked deliveries and 1 receipt of old\n"}, r)
		look := o.status(t)
		require.Len(t, look.Cursors, 1)
		require.Empty(t, look.Parked)
		require.Len(t, look.Holders, 1)
	})
}

func TestForgetNeedsYesWithoutATerminal(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.leaveTraces(t)
		r := waybill(t, "forget", "old", "--database", o.address)
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.stderr, "use --yes")
		require.Len(t, o.status(t).Cursors, 2)

		r = waybill(t, "forget", "old", "--yes", "--json", "--database", o.address)
		require.Zero(t, r.code, r.stderr)
		require.JSONEq(t, `{"sink": "old", "cursors": 1, "parked": 2, "receipts": 1}`, r.stdout)
		r = waybill(t, "forget", "old", "--yes", "--database", o.address)
		require.Equal(t, result{code: exitFailed, stderr: "waybill: forget sink old: unknown sink \"old\": the outbox knows mail\n"}, r)
	})
}

func TestForgetRefusesASinkWithAForwarder(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		o.publish(t, 1, 3)
		destination := newReceiver(t)
		f := startForward(t, "-c", o.config(t, "60s", destination.URL))
		destination.await(t, 3)
		r := waybill(t, "forget", "partner", "--yes", "--database", o.address)
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.stderr, store.ErrLeaseHeld.Error())
		require.Contains(t, r.stderr, "remove the sink from the configuration of that forwarder first")

		require.Zero(t, f.end(t).code)
		r = waybill(t, "forget", "partner", "--yes", "--database", o.address)
		require.Zero(t, r.code, r.stderr)
	})
}
