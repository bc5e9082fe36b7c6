package people

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"
)

// personalFacts are about finding and removing the notifications of one person.
var personalFacts = []kit.Fact{
	{"a purge removes what a filter selects from every table, and nothing else", purged},
	{"a count says what a purge will change, and what is not delivered yet", countedPersonal},
	{"a purge is done once, and in parts of any number", purgedAgain},
	{"a purge of ids finds what retention has left of them", purgedRemains},
	{"a purge lets a cancellation stand as long as what it has cancelled", purgedCancellations},
	{"a purge takes members out of collections, and the others of a group stay", purgedCollections},
	{"a purge raises the revisions of the sinks whose deliveries it removes", purgedRevisions},
	{"a purge removes the names from actions, and keeps actions that only look alike", purgedActions},
	{"a purge that was cancelled changes nothing", purgeCancelled},
	{"a cut removes the texts of sinks, and no row", cutTexts},
	{"a reader beside a purge misses and repeats nothing of others", purgedBesideReader},
	{"a rewrite replaces payloads of its types once, in the log and of parked deliveries, and nothing else", rewritten},
	{"a rewrite leaves alone what was published after it began", rewrittenUpToTheEnd},
	{"a rewrite that was cancelled changes nothing", rewriteCancelled},
	{"a reader beside a rewrite misses and repeats nothing", rewrittenBesideReader},
}

// personalTables are the tables in which a person can be named, with the order of their rows.
var personalTables = map[string]string{
	"outbox": "{offset}", "outbox_parked": "sink, {offset}", "outbox_receipts": "sink, id", "outbox_inbox": "consumer, id", "outbox_cancelled": "id",
	"outbox_unique": "type", "outbox_actions": "id", "outbox_attempts": "id", "outbox_collections": "sink, collect_group",
}

// everything returns what the tables have, by table.
func everything(t *testing.T, o *kit.Outbox) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for table, order := range personalTables {
		found[table] = o.Dump(t, "SELECT * FROM "+table+" ORDER BY "+order)
	}
	return found
}

// purge runs a purge, or a cut, as a new action, and returns how much it has changed.
func purge(t *testing.T, o *kit.Outbox, action string, f store.PersonalFilter) (changed int) {
	t.Helper()
	o.BeginAction(t, action)
	do := o.PurgePersonal
	if strings.HasPrefix(action, "cut") {
		do = o.CutPersonal
	}
	for b := (store.PersonalBatch{Action: action, Filter: f}); ; {
		var result store.PersonalResult
		require.NoError(t, o.Repeat(func() (err error) { result, err = do(t.Context(), b); return err }))
		changed += result.Changed
		if b.After = result.Next; result.Done {
			break
		}
	}
	require.NoError(t, o.End(t.Context(), action))
	require.EqualValues(t, changed, o.ActionOf(t, action).Count)
	return changed
}

// seedPerson publishes and parks a notification of a person, and lets every table have something of it.
func seedPerson(t *testing.T, o *kit.Outbox, id, key string, m notification.Metadata) {
	t.Helper()
	e := kit.Envelope("order.placed", key)
	e.ID, e.Metadata = id, m
	o.Publish(t, e)
	own := kit.Envelope("_webhooks", "ep-1/"+key)
	if own.ID = id + "_ep-1"; key == "" {
		own.Key = ""
	}
	own.Metadata = m
	o.Publish(t, own)
	rows := make([]notification.Envelope, 0, 2)
	for _, row := range o.Page(t, 1000).Envelopes {
		if row.ID == e.ID || row.ID == own.ID {
			rows = append(rows, row)
		}
	}
	for _, sink := range []string{"mail", "web"} {
		var parked []store.Parked
		for _, row := range rows {
			parked = append(parked, store.Parked{Envelope: row, State: store.StateSettling, FirstParkedAt: kit.Moment, LastError: "boom", Receipt: "r", HookError: "h", HookFailures: 1, Attempts: kit.Attempts()})
		}
		lease := o.ParkFor(t, sink, parked...)
		o.Write(t, lease, func(c *store.Checkpoint) {
			c.Receipts = []store.Receipt{{Offset: rows[0].Offset, ID: id, Receipt: notification.Receipt("echo of " + id), Attempt: 1, DeliveredAt: kit.Moment}}
		})
		require.NoError(t, o.Release(t.Context(), lease))
	}
	tx := o.Tx(t)
	for _, consumer := range []string{"billing", "mail"} {
		_, err := o.First(t.Context(), tx, consumer, id)
		require.NoError(t, err)
	}
	_, err := o.Claim(t.Context(), tx, store.Claim{Type: "order.placed", Key: "key of " + id, Period: time.Hour})
	require.NoError(t, err)
	if key != "" {
		_, err = o.Claim(t.Context(), tx, store.Claim{Type: "order.placed", Key: key, Period: time.Hour})
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit())
	require.NoError(t, o.AddAttempts(t.Context(), nil, []store.Attempt{{ID: "attempt " + id, Endpoint: "ep-1", EndpointCreatedAt: kit.Moment, Tenant: "acme", Delivery: own.ID, Notification: id,
		Type: "order.placed", Number: 1, At: kit.Moment, Status: 400, Error: "echo", Request: store.Exchange{Body: "body"}, Answer: store.Exchange{Body: "echo"}, Until: kit.Later()}}))
}

// persons are what seedPersons seeds: each is selected by something else, and the others only look alike.
func seedPersons(t *testing.T, o *kit.Outbox) {
	t.Helper()
	seedPerson(t, o, "n-1", "ada", notification.Metadata{})
	seedPerson(t, o, "n-2", "", notification.Metadata{notification.MetadataPrivateKeys: "aaaa bbbb"})
	seedPerson(t, o, "n-3", "bob", notification.Metadata{})
	seedPerson(t, o, "n-30", "ADA", notification.Metadata{notification.MetadataPrivateKeys: "cccc", "other": "bbbb"})
	seedPerson(t, o, "n-4", "ada/bob", notification.Metadata{})
	seedPerson(t, o, "n-5", "", notification.Metadata{})
	o.Exec(t, `DELETE FROM outbox_parked WHERE id = 'n-1'`) // it is delivered
}

var person = store.PersonalFilter{IDs: []string{"n-3", ""}, Keys: []string{"ada", ""}, PrivateKeys: []string{"bbbb", ""}}

func purged(t *testing.T, o *kit.Outbox) {
	seedPersons(t, o)
	before := everything(t, o)
	purge(t, o, "purge", person)
	o.Exec(t, `DELETE FROM outbox_actions`)
	after := everything(t, o)
	for table, rows := range before {
		var want strings.Builder
		for line := range strings.Lines(rows) {
			gone := false
			for _, name := range []string{"n-1", "n-2", "n-3"} {
				gone = gone || strings.Contains(line, "id="+name+" ") || strings.Contains(line, "id="+name+"_ep-1 ") || strings.Contains(line, "notification="+name+" ")
			}
			if !gone && (table != "outbox_unique" || !strings.Contains(line, "key=ada ")) {
				want.WriteString(line)
			}
		}
		require.Equal(t, want.String(), after[table], table)
		if table != "outbox_actions" && table != "outbox_cancelled" && table != "outbox_collections" {
			require.NotEmpty(t, after[table], table)
			require.NotEqual(t, rows, after[table], table)
		}
	}
}

func countedPersonal(t *testing.T, o *kit.Outbox) {
	seedPersons(t, o)
	o.Pass(t, "mail", "web")
	late := kit.Envelope("order.placed", "ada")
	late.OccurredOn = kit.After(time.Hour)
	o.Publish(t, late)
	count := func() (total int, of map[string]store.PersonalCount) {
		counts, err := o.CountPersonal(t.Context(), person)
		require.NoError(t, err)
		of = make(map[string]store.PersonalCount)
		for _, c := range counts {
			total, of[c.Table] = total+int(c.Rows), c
		}
		return total, of
	}
	total, of := count()
	require.EqualValues(t, 7, of["log"].Rows)
	require.EqualValues(t, 1, of["log"].Undelivered)
	kit.RequireTime(t, kit.Moment, of["log"].Oldest)
	kit.RequireTime(t, late.OccurredOn, of["log"].Newest)
	require.EqualValues(t, 10, of["parked"].Rows)
	kit.RequireTime(t, kit.Moment, of["parked"].Newest)
	require.EqualValues(t, 6, of["receipts"].Rows)
	require.EqualValues(t, 6, of["inbox"].Rows)
	require.EqualValues(t, 3, of["attempts"].Rows)
	require.EqualValues(t, 1, of["unique"].Rows)
	require.NotContains(t, of, "cancelled")
	require.Equal(t, total, purge(t, o, "purge", person))
	total, of = count()
	require.Zero(t, total, of)
}

func purgedAgain(t *testing.T, o *kit.Outbox) {
	const rows = 5_200 // more than one part of the log
	all := make([]notification.Envelope, rows)
	for i := range all {
		if all[i] = kit.Envelope("order.placed", fmt.Sprint(i)); i%8 == 0 {
			all[i].Key = "ada"
		}
	}
	o.Publish(t, all...)
	parked := make([]store.Parked, 600) // more than one part of them
	for i := range parked {
		parked[i] = kit.Dead(int64(i+1), "ada")
	}
	o.Park(t, parked...)
	o.ParkFor(t, "web", parked[:3]...)
	f := store.PersonalFilter{Keys: []string{"ada"}}
	require.Equal(t, rows/8+603, purge(t, o, "purge", f))
	require.Zero(t, purge(t, o, "purge once more", f))
	got, _ := o.Read(t, nil, kit.All, rows)
	require.Len(t, got, rows-rows/8)
	require.Empty(t, find(t, o, store.ParkedFilter{}))
	require.Zero(t, purge(t, o, "purge nothing", store.PersonalFilter{}))
	require.Zero(t, purge(t, o, "purge empty texts", store.PersonalFilter{Keys: []string{""}, IDs: []string{""}, PrivateKeys: []string{""}}))
}

func purgedRemains(t *testing.T, o *kit.Outbox) {
	seedPersons(t, o)
	o.Exec(t, `DELETE FROM outbox`, `DELETE FROM outbox_parked`)
	require.Equal(t, 1, purge(t, o, "purge a key", store.PersonalFilter{Keys: []string{"ada"}}), "the uniqueness key")
	require.Equal(t, 2+2+1, purge(t, o, "purge an id", store.PersonalFilter{IDs: []string{"n-1"}}))
	require.Equal(t, 0, strings.Count(o.Dump(t, `SELECT * FROM outbox_attempts`), "n-1"))
	require.Equal(t, 5, strings.Count(o.Dump(t, `SELECT * FROM outbox_attempts`), "_ep-1"))
}

func purgedCancellations(t *testing.T, o *kit.Outbox) {
	e := kit.Envelope("order.placed", "ada")
	e.DeliverAt = kit.Later()
	o.Publish(t, e)
	row := o.Page(t, 10).Envelopes
	if len(row) == 0 { // a reader leaves out nothing that is scheduled and not cancelled
		t.Fatal("the row is missing")
	}
	for _, sink := range []string{"mail", "web"} {
		o.ParkFor(t, sink, store.Parked{Envelope: row[0], State: store.StateScheduled, DueAt: e.DeliverAt, FirstParkedAt: kit.Moment})
	}
	tx := o.Tx(t)
	n, err := o.Cancel(t.Context(), tx, store.Scheduled{ID: e.ID})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, tx.Commit())
	o.BeginAction(t, "purge")
	b := store.PersonalBatch{Action: "purge", Filter: store.PersonalFilter{Keys: []string{"ada"}}}
	for done := false; !done; {
		result, err := o.PurgePersonal(t.Context(), b)
		require.NoError(t, err)
		b.After, done = result.Next, result.Done
		parked, cancelled := o.Dump(t, `SELECT * FROM outbox_parked`), o.Dump(t, `SELECT * FROM outbox_cancelled`)
		require.Equal(t, parked == "", cancelled == "", "%s\n%s", parked, cancelled)
	}
	require.Empty(t, o.Dump(t, `SELECT * FROM outbox_cancelled`))
}

func purgedCollections(t *testing.T, o *kit.Outbox) {
	of := func(offset int64, group, key string) store.Parked {
		p := member(offset, group)
		p.Envelope.Key = key
		return p
	}
	lease := o.Hold(t, "mail")
	collect(t, o, lease, time.Minute, of(1, "closed", "ada"), of(2, "closed", "bob"), of(3, "alone", "ada"))
	closeAll(t, o, lease, time.Now().Add(2*time.Minute))
	collect(t, o, lease, time.Hour, of(4, "open", "ada"), of(5, "open", "bob"), of(6, "ada", "ada"))
	require.Equal(t, 4, purge(t, o, "purge", store.PersonalFilter{Keys: []string{"ada"}}))
	require.Equal(t, []int64{2, 5}, find(t, o, store.ParkedFilter{}))
	groups := o.Dump(t, `SELECT collect_group FROM outbox_collections ORDER BY collect_group`)
	require.Equal(t, "collect_group=closed \ncollect_group=open \n", groups)
	due, _ := o.DueAt(t, time.Now().Add(time.Hour))
	require.Equal(t, []int64{2}, kit.Offsets(due), "the collection goes on with the next member")
}

func purgedRevisions(t *testing.T, o *kit.Outbox) {
	o.Park(t, kit.Dead(1, "ada"))
	o.ParkFor(t, "web", kit.Dead(2, "bob"))
	revisions := func() string {
		return o.Dump(t, `SELECT sink, revision FROM outbox_cursors ORDER BY sink`)
	}
	require.Equal(t, "sink=mail revision=0 \nsink=web revision=0 \n", revisions())
	purge(t, o, "cut", store.PersonalFilter{Keys: []string{"ada"}})
	require.Equal(t, "sink=mail revision=0 \nsink=web revision=0 \n", revisions(), "no delivery is gone")
	purge(t, o, "purge", store.PersonalFilter{Keys: []string{"ada"}})
	require.Equal(t, "sink=mail revision=1 \nsink=web revision=0 \n", revisions())
}

func purgedActions(t *testing.T, o *kit.Outbox) {
	for id, a := range map[string]struct{ filter, reason string }{
		"by key": {`{"sink":"mail","key":"ada 1"}`, ""}, "within": {`{"error":"no such user: ada 1!"}`, ""}, "deep": {`{"selected":[{"id":"n-1"}]}`, ""},
		"reason": {`{"sink":"mail"}`, "asked by ada 1"}, "stays": {`{"key":"ada 12","offset":1}`, "ada 1x"}, "sink": {`{"sinks":["n-1"]}`, ""},
	} {
		require.NoError(t, o.Begin(t.Context(), store.Action{ID: id, Who: "op", Name: "discard", Filter: json.RawMessage(a.filter), Reason: a.reason, Planned: 3}))
	}
	require.Equal(t, 4, purge(t, o, "purge", store.PersonalFilter{Keys: []string{"ada 1"}, IDs: []string{"n-1"}}))
	for _, id := range []string{"by key", "within", "deep", "reason"} {
		a := o.ActionOf(t, id)
		require.JSONEq(t, `{}`, string(a.Filter), id)
		require.Empty(t, a.Reason, id)
		require.EqualValues(t, 3, a.Planned, id)
	}
	require.Contains(t, string(o.ActionOf(t, "stays").Filter), "ada 12")
	require.Equal(t, "ada 1x", o.ActionOf(t, "stays").Reason)
	require.Contains(t, string(o.ActionOf(t, "sink").Filter), "n-1")
	require.Zero(t, purge(t, o, "purge once more", store.PersonalFilter{Keys: []string{"ada 1"}, IDs: []string{"n-1"}}))
}

func purgeCancelled(t *testing.T, o *kit.Outbox) {
	seedPersons(t, o)
	o.BeginAction(t, "purge")
	require.NoError(t, o.CancelAction(t.Context(), "purge", "op"))
	before := everything(t, o)
	for _, table := range []string{"log", "parked", "actions"} {
		_, err := o.PurgePersonal(t.Context(), store.PersonalBatch{Action: "purge", Filter: person, After: store.PersonalPlace{Table: table, UpTo: 100}})
		require.ErrorIs(t, err, store.ErrActionCancelled, table)
	}
	require.Equal(t, before, everything(t, o))
}

func cutTexts(t *testing.T, o *kit.Outbox) {
	seedPersons(t, o)
	o.Exec(t, `UPDATE outbox_receipts SET receipt = 'superseded by n-9' WHERE id = 'n-2' AND sink = 'web'`)
	before := everything(t, o)
	require.Equal(t, 10+5+3, purge(t, o, "cut", person))
	require.Zero(t, purge(t, o, "cut once more", person))
	after := everything(t, o)
	for _, table := range []string{"outbox", "outbox_inbox", "outbox_unique", "outbox_cancelled"} {
		require.Equal(t, before[table], after[table], table)
	}
	texts := func(query string) string { return o.Dump(t, query) }
	require.Equal(t, strings.Repeat("last_error=erased attempts= receipt=erased hook_error=erased \n", 10),
		texts(`SELECT last_error, attempts, receipt, hook_error FROM outbox_parked WHERE id LIKE 'n-1%' OR id LIKE 'n-2%' OR id = 'n-3' OR id = 'n-3_ep-1'`))
	require.Equal(t, strings.Repeat("receipt=erased \n", 5), texts(`SELECT receipt FROM outbox_receipts WHERE id IN ('n-1', 'n-2', 'n-3') AND receipt <> 'superseded by n-9'`))
	require.Equal(t, strings.Repeat("error=erased request={} answer={} \n", 3), texts(`SELECT error, request, answer FROM outbox_attempts WHERE notification IN ('n-1', 'n-2', 'n-3')`))
	require.NotContains(t, texts(`SELECT * FROM outbox_parked WHERE id LIKE 'n-4%' OR id LIKE 'n-5%' OR id LIKE 'n-30%'`)+
		texts(`SELECT * FROM outbox_receipts WHERE id > 'n-30'`)+texts(`SELECT * FROM outbox_attempts WHERE notification > 'n-30'`), "erased")
	found, err := o.FindParked(t.Context(), store.ParkedFilter{ID: "n-2"}, store.ParkedPlace{}, 10)
	require.NoError(t, err)
	require.Len(t, found, 2)
	require.Empty(t, found[0].Attempts)
}

// purgedBesideReader reads the log from its beginning to its end, again and again, while rows of one key are
// published among others and purged.
func purgedBesideReader(t *testing.T, o *kit.Outbox) {
	const rounds = 40
	var others []string
	var publishing sync.WaitGroup
	publishing.Add(1)
	go func() {
		defer publishing.Done()
		for i := range rounds {
			batch := []notification.Envelope{kit.Envelope("order.placed", "ada"), kit.Envelope("order.placed", fmt.Sprint(i%3)), kit.Envelope("order.placed", "ada")}
			others = append(others, batch[1].ID)
			o.Publish(t, batch...)
		}
	}()
	var read []string
	r := o.Reader(t, nil, kit.All)
	look := func() {
		got, _ := kit.Drain(t, r, o.Target(t), 2)
		for _, e := range got {
			if e.Key != "ada" {
				read = append(read, e.ID)
			}
		}
	}
	for i := range 5 {
		look()
		purge(t, o, fmt.Sprintf("purge %d", i), store.PersonalFilter{Keys: []string{"ada"}})
	}
	publishing.Wait()
	look()
	purge(t, o, "purge", store.PersonalFilter{Keys: []string{"ada"}})
	look()
	require.Equal(t, others, read)
	left, _ := o.Read(t, nil, kit.All, 1000)
	require.Equal(t, others, kit.IDs(left))
}
