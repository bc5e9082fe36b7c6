package people

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"
)

// rewrite removes a name from payloads as a new action, and returns how many it has changed, in how many batches. between
// is called after each batch.
func rewrite(t *testing.T, o *kit.Outbox, action string, between func(), types ...string) (changed, batches int) {
	t.Helper()
	o.BeginAction(t, action)
	b := store.RewriteBatch{Action: action, Types: types, Change: func(e *notification.Envelope) ([]byte, bool) {
		require.Contains(t, types, e.Type)
		require.NotEmpty(t, e.ID)
		return bytes.ReplaceAll(e.Payload, []byte("zoe"), []byte("nul")), bytes.Contains(e.Payload, []byte("zoe"))
	}}
	for done := false; !done; batches++ {
		var result store.PersonalResult
		require.NoError(t, o.Repeat(func() (err error) { result, err = o.RewritePayloads(t.Context(), b); return err }))
		changed += result.Changed
		b.After, done = result.Next, result.Done
		between()
	}
	require.NoError(t, o.End(t.Context(), action))
	require.EqualValues(t, changed, o.ActionOf(t, action).Count)
	return changed, batches
}

// letter returns an envelope about a person.
func letter(typ, key, person string) notification.Envelope {
	e := kit.Envelope(typ, key)
	e.Payload = fmt.Appendf(nil, `{"by":%q}`, person)
	return e
}

func rewritten(t *testing.T, o *kit.Outbox) {
	const rows, sinks = 450, 2 // more than one batch of the log, and of parked deliveries
	persons := []string{"zoe", "bob"}
	types := []string{"note.left", "note.right", "other"}
	all := make([]notification.Envelope, rows)
	for i := range all {
		all[i] = letter(types[i%3], fmt.Sprint(i%7), persons[i%2])
	}
	o.Publish(t, all...)
	published, _ := o.Read(t, nil, kit.All, rows)
	require.Len(t, published, rows)
	for i := range sinks {
		parked := make([]store.Parked, rows)
		for j, e := range published {
			parked[j] = store.Parked{Envelope: e, State: store.StateDead, FirstParkedAt: kit.Moment, LastError: "boom", Attempts: kit.Attempts()}
		}
		o.ParkFor(t, fmt.Sprintf("sink%d", i), parked...)
	}
	before := everything(t, o)
	wanted := func(table string) string {
		var b strings.Builder
		for line := range strings.Lines(before[table]) {
			if strings.Contains(line, "type=note.") {
				line = strings.ReplaceAll(line, "zoe", "nul")
			}
			b.WriteString(line)
		}
		return b.String()
	}
	changed, batches := rewrite(t, o, "rewrite", func() {}, "note.left", "note.right")
	require.Equal(t, rows/3*(1+sinks), changed)
	require.Greater(t, batches, 3)
	after := everything(t, o)
	for table := range personalTables {
		if table != "outbox_actions" {
			require.Equal(t, wanted(table), after[table], table)
		}
	}
	require.NotEqual(t, before["outbox_parked"], after["outbox_parked"])
	changed, _ = rewrite(t, o, "again", func() {}, "note.left", "note.right")
	require.Zero(t, changed)
	changed, _ = rewrite(t, o, "unknown", func() {}, "note")
	require.Zero(t, changed)
}

func rewrittenUpToTheEnd(t *testing.T, o *kit.Outbox) {
	o.Publish(t, letter("note.left", "", "zoe"))
	late := letter("note.left", "", "zoe")
	changed, _ := rewrite(t, o, "rewrite", func() {
		if late.ID != "" {
			o.Publish(t, late)
			late.ID = ""
		}
	}, "note.left")
	require.Equal(t, 1, changed)
	require.Equal(t, 1, strings.Count(o.Dump(t, `SELECT payload FROM outbox`), "zoe"), "she is there again")
}

func rewriteCancelled(t *testing.T, o *kit.Outbox) {
	o.Publish(t, letter("note.left", "", "zoe"))
	o.Park(t, store.Parked{Envelope: o.Page(t, 1).Envelopes[0], State: store.StateDead, FirstParkedAt: kit.Moment})
	o.BeginAction(t, "rewrite")
	require.NoError(t, o.CancelAction(t.Context(), "rewrite", "op"))
	before := everything(t, o)
	for _, table := range []string{"log", "parked"} {
		_, err := o.RewritePayloads(t.Context(), store.RewriteBatch{Action: "rewrite", Types: []string{"note.left"}, After: store.PersonalPlace{Table: table, UpTo: 100},
			Change: func(*notification.Envelope) ([]byte, bool) { return []byte(`null`), true }})
		require.ErrorIs(t, err, store.ErrActionCancelled, table)
	}
	require.Equal(t, before, everything(t, o))
}

// rewrittenBesideReader reads the log once while rows are published and rewritten.
func rewrittenBesideReader(t *testing.T, o *kit.Outbox) {
	const rounds = 60
	var published []string
	var publishing sync.WaitGroup
	publishing.Add(1)
	go func() {
		defer publishing.Done()
		for i := range rounds {
			batch := []notification.Envelope{letter("note.left", "1", "zoe"), letter("note.left", fmt.Sprint(i%3), "bob"), letter("other", "2", "zoe")}
			published = append(published, kit.IDs(batch)...)
			o.Publish(t, batch...)
		}
	}()
	var read []string
	r := o.Reader(t, nil, kit.All)
	look := func() {
		got, _ := kit.Drain(t, r, o.Target(t), 2)
		read = append(read, kit.IDs(got)...)
	}
	for i := range 8 {
		look()
		rewrite(t, o, fmt.Sprintf("rewrite %d", i), look, "note.left")
	}
	publishing.Wait()
	look()
	rewrite(t, o, "rewrite", look, "note.left")
	look()
	require.Equal(t, published, read)
	left, _ := o.Read(t, nil, kit.All, 1000)
	require.Equal(t, published, kit.IDs(left))
	for _, e := range left {
		require.Equal(t, e.Type == "other", bytes.Contains(e.Payload, []byte("zoe")), e.ID)
	}
}
