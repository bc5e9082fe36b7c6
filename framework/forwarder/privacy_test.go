package forwarder_test

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	outboxes "github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// moved has private values; written is inserted with SQL.
type (
	moved struct {
		Person string
		Email  string
		Phone  int
	}
	written moved
)

const (
	email   = "ada@person.example"
	phone   = 4915111
	shown   = `{"Person":"ada","Email":"` + email + `","Phone":4915111}`
	dropped = `{"Person":"ada"}`
	masked  = `{"Person":"ada","Email":"***","Phone":"***"}`
)

// secretive is an outbox with keys of private values.
type secretive struct {
	*outbox
	config    privacy.Config
	keys      *privacy.Keyring
	publisher *outboxes.Publisher
	types     *registry.Registry
}

func (o *outbox) secretive(master byte) *secretive {
	o.t.Helper()
	s := &secretive{outbox: o, types: registry.New()}
	var err error
	s.config = privacy.Config{Cache: time.Second, Rules: map[string]privacy.Rule{"noted": {Subject: "/Person", Fields: []string{"/Email", "/Phone"}}}}
	s.config.Master, err = privacy.LocalKeys(base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string('a'+rune(master)), 32))))
	require.NoError(o.t, err)
	require.NoError(o.t, registry.Register[moved](s.types, "moved", registry.Private(func(m moved) string { return m.Person }, "Email", "Phone")))
	require.NoError(o.t, registry.Register[written](s.types, "noted"))
	s.keys, err = privacy.New(o.store.(store.PrivateKeys), s.config)
	require.NoError(o.t, err)
	require.NoError(o.t, s.keys.Prepare(o.t.Context()))
	s.publisher, err = outboxes.New(s.types, o.store, outboxes.Config{Announcer: outboxes.Silent, Privacy: s.keys})
	require.NoError(o.t, err)
	return s
}

// forwarding is the configuration of a forwarder that decrypts.
func (s *secretive) forwarding(c *forwarder.Config) { c.Privacy, c.Types = s.config, s.types }

// move publishes that persons have moved, with ids.
func (s *secretive) move(person, key string, ids ...string) {
	s.t.Helper()
	require.NoError(s.t, s.publisher.RunInTx(s.t.Context(), s.db, nil, func(ctx context.Context, tx *sql.Tx) error {
		for _, id := range ids {
			err := s.publisher.Publish(ctx, tx, outboxes.With(moved{person, email, phone}, outboxes.ID(id), outboxes.Key(key)))
			if err != nil {
				return err
			}
		}
		return nil
	}))
}

// note inserts with SQL.
func (s *secretive) note(person string, ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		payload, err := json.Marshal(moved{person, email, phone})
		require.NoError(s.t, err)
		_, err = s.db.ExecContext(s.t.Context(), `INSERT INTO outbox (id, type, payload) VALUES ($1, 'noted', $2)`, id, string(payload))
		require.NoError(s.t, err)
	}
}

// erase destroys the keys of a person.
func (s *secretive) erase(person string) {
	s.t.Helper()
	hashes, err := s.keys.Subject(s.t.Context(), person)
	require.NoError(s.t, err)
	of := s.store.(store.PrivateKeys)
	keys, err := of.PrivateKeysOf(s.t.Context(), hashes)
	require.NoError(s.t, err)
	var ids []string
	for _, k := range keys {
		ids = append(ids, k.ID)
	}
	_, err = of.ErasePrivateKeys(s.t.Context(), "", ids)
	require.NoError(s.t, err)
}

// requireSecret requires that the tables that a forwarder writes, and its log, have no private value.
func (s *secretive) requireSecret(log *lines) {
	s.t.Helper()
	for _, query := range []string{
		`SELECT id || metadata || payload || last_error || attempts || receipt || hook_error FROM outbox_parked WHERE type <> 'noted'`,
		`SELECT id || last_error || attempts || receipt || hook_error FROM outbox_parked`,
		`SELECT id || receipt FROM outbox_receipts`, `SELECT id || metadata || payload FROM outbox WHERE type <> 'noted'`,
		`SELECT collect_group FROM outbox_collections`,
	} {
		text := strings.Join(s.texts(query), "\n")
		require.NotContains(s.t, text, email, query)
		require.NotContains(s.t, text, fmt.Sprint(phone), query)
	}
	require.Empty(s.t, log.with(email))
	require.Empty(s.t, log.with(fmt.Sprint(phone)))
}

// reader is a sink that keeps the payloads, in several ways at once.
type reader struct {
	mu     sync.Mutex
	got    []string // "id: payload"
	answer func(d *notification.Delivery) (notification.Receipt, error)
}

func (r *reader) Deliver(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, d.ID+": "+string(d.Payload))
	if r.answer != nil {
		return r.answer(d)
	}
	return "", nil
}

// take returns what came since the last call, in order.
func (r *reader) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	got := r.got
	r.got = nil
	slices.Sort(got)
	return got
}

// application is a reader that gets private values by default.
type application struct{ reader }

func (*application) RevealsPrivate() bool { return true }

// batchReader is a reader of batches.
type batchReader struct{ reader }

func (*batchReader) BatchLimits() sinks.BatchLimits { return sinks.BatchLimits{Size: 10} }

func (b *batchReader) DeliverBatch(ctx context.Context, batch []*notification.Delivery) (results []sinks.Result) {
	for _, d := range batch {
		receipt, err := b.Deliver(ctx, d)
		results = append(results, sinks.Result{Receipt: receipt, Err: err})
	}
	return results
}

// collections is a reader of collections.
type collections struct{ reader }

func (*collections) CollectionSize() int { return 10 }

func (c *collections) DeliverCollection(ctx context.Context, all *sinks.Collection) (receipt notification.Receipt, err error) {
	for _, d := range all.Members {
		given, failed := c.Deliver(ctx, d)
		receipt, err = receipt+given, errors.Join(err, failed)
	}
	return receipt, err
}

func TestASinkGetsOfPrivateValuesWhatItsSettingSays(t *testing.T) {
	for name, of := range map[string]struct {
		sink   sinks.Sink
		got    *reader
		set    sinks.Private
		erased forwarder.Erased
		before string // tokens: what is in the log
		after  string // the erasure; dead: nothing
	}{
		"default":                   {set: "", before: "tokens", after: "tokens"},
		"keep":                      {set: sinks.PrivateKeep, before: "tokens", after: "tokens"},
		"drop":                      {set: sinks.PrivateDrop, before: dropped, after: dropped},
		"mask":                      {set: sinks.PrivateMask, before: masked, after: masked},
		"reveal":                    {set: sinks.PrivateReveal, before: shown, after: dropped},
		"reveal, erased dead":       {set: sinks.PrivateReveal, erased: forwarder.ErasedDead, before: shown, after: "dead"},
		"drop, erased dead":         {set: sinks.PrivateDrop, erased: forwarder.ErasedDead, before: dropped, after: dropped},
		"keep, erased dead":         {set: sinks.PrivateKeep, erased: forwarder.ErasedDead, before: "tokens", after: "tokens"},
		"an application":            {sink: &application{}, before: shown, after: dropped},
		"an application that keeps": {sink: &application{}, set: sinks.PrivateKeep, before: "tokens", after: "tokens"},
		"batches":                   {sink: &batchReader{}, set: sinks.PrivateReveal, before: shown, after: dropped},
		"batches, erased dead":      {sink: &batchReader{}, set: sinks.PrivateReveal, erased: forwarder.ErasedDead, before: shown, after: "dead"},
	} {
		t.Run(name, func(t *testing.T) {
			onlySQLite(t, func(t *testing.T, o *outbox) {
				s, log := o.secretive(0), &lines{}
				got := &reader{}
				switch sink := of.sink.(type) {
				case nil:
					of.sink = got
				case *application:
					got = &sink.reader
				case *batchReader:
					got = &sink.reader
				}
				f := o.one(forwarder.Sink{Sink: of.sink, Private: of.set, Erased: of.erased}, s.forwarding, log.logging)
				want := func(ids ...string) (all []string) {
					for _, id := range ids {
						text := of.before
						if strings.HasPrefix(id, "after") {
							text = of.after
						}
						if text == "tokens" {
							text = s.texts(`SELECT payload FROM outbox WHERE id = '` + id + `'`)[0]
							require.Contains(t, text, `"waybill:1:`)
						}
						if text != "dead" {
							all = append(all, id+": "+text)
						}
					}
					return all
				}
				s.move("ada", "", "before1", "before2")
				f.flush()
				require.Equal(t, want("before1", "before2"), got.take())
				s.move("ada", "", "after1", "after2")
				s.erase("ada")
				pass(2 * time.Second) // longer than a key is remembered
				f.flush()
				require.Equal(t, want("after1", "after2"), got.take())
				dead := o.texts(`SELECT id || ' ' || state FROM outbox_parked ORDER BY id`)
				if of.after == "dead" {
					require.Equal(t, []string{"after1 dead", "after2 dead"}, dead)
					require.Contains(t, o.texts(`SELECT last_error FROM outbox_parked`)[0], privacy.ErrErased.Error())
				} else {
					require.Empty(t, dead)
				}
				s.move("ada", "", "again")
				pass(2 * time.Second)
				f.flush()
				if of.before == shown {
					require.Equal(t, []string{"again: " + shown}, got.take(), "she is back, with another key")
				}
				s.requireSecret(log)
			})
		})
	}
}

func TestTheNewestOfAKeyAndWholeCollectionsAreDecrypted(t *testing.T) {
	for name, collect := range map[string]forwarder.Collect{
		"all":    {By: "metadata.database", Wait: time.Second},
		"newest": {Keep: forwarder.KeepNewest, Wait: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			onlySQLite(t, func(t *testing.T, o *outbox) {
				s, log := o.secretive(0), &lines{}
				if name == "all" {
					collect.By = `"all of " + key`
				}
				sink := &collections{}
				sink.answer = func(d *notification.Delivery) (notification.Receipt, error) {
					if d.Attempt == 1 {
						return "", fmt.Errorf("refused %s of %s", d.Payload, email)
					}
					return notification.Receipt("taken " + email), nil
				}
				f := o.one(forwarder.Sink{Sink: sink, Private: sinks.PrivateReveal, Collect: collect, Retry: forwarder.Retry{Initial: time.Second}}, s.forwarding, log.logging)
				s.move("ada", "k", "n1")
				s.move("bob", "k", "n2")
				s.erase("bob")
				s.move("ada", "k", "n3")
				f.flush()
				pass(1200 * time.Millisecond)
				want := []string{"n1: " + shown, `n2: {"Person":"bob"}`, "n3: " + shown}
				if name == "newest" {
					want = want[2:]
				}
				require.Equal(t, want, sink.take())
				s.requireSecret(log)
				pass(time.Minute)
				require.Equal(t, want, sink.take(), "again")
				require.Empty(t, o.texts(`SELECT id FROM outbox_parked`))
				require.Contains(t, o.texts(`SELECT receipt FROM outbox_receipts WHERE id = 'n3'`)[0], "taken ***")
				s.requireSecret(log)
			})
		})
	}
}

func TestAMemberOfAPersonWhoIsErasedDiesAlone(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		s, sink := o.secretive(0), &collections{}
		f := o.one(forwarder.Sink{Sink: sink, Private: sinks.PrivateReveal, Erased: forwarder.ErasedDead, Collect: forwarder.Collect{By: "key", Wait: time.Second}}, s.forwarding)
		s.move("ada", "k", "n1")
		s.move("bob", "k", "n2")
		s.move("ada", "k", "n3")
		s.erase("bob")
		f.flush()
		pass(2 * time.Second)
		require.Equal(t, []string{"n1: " + shown, "n3: " + shown}, sink.take())
		require.Equal(t, []string{"n2 dead"}, o.texts(`SELECT id || ' ' || state FROM outbox_parked`))
	})
}

func TestWhatASinkEchoesOfPrivateValuesIsNotStored(t *testing.T) {
	quoted, err := json.Marshal(shown)
	require.NoError(t, err)
	echo := shown + " " + string(quoted) + " " + base64.StdEncoding.EncodeToString([]byte(email)) + fmt.Sprintf(" %q %d", email, phone)
	for name, answer := range map[string]func(d *notification.Delivery) (notification.Receipt, error){
		"error":   func(*notification.Delivery) (notification.Receipt, error) { return "", errors.New(echo) },
		"invalid": func(*notification.Delivery) (notification.Receipt, error) { return "", sinks.Invalid(errors.New(echo)) },
		"throttled": func(*notification.Delivery) (notification.Receipt, error) {
			return "", sinks.Throttled(time.Now().Add(time.Second), errors.New(echo))
		},
		"unavailable": func(*notification.Delivery) (notification.Receipt, error) {
			return "", sinks.Unavailable(errors.New(echo))
		},
		"answer": func(*notification.Delivery) (notification.Receipt, error) {
			return "", sinks.Permanent(sinks.WithAnswer(errors.New("400 of "+email), echo))
		},
		"panic":   func(*notification.Delivery) (notification.Receipt, error) { panic(echo) },
		"receipt": func(*notification.Delivery) (notification.Receipt, error) { return notification.Receipt(echo), nil },
	} {
		t.Run(name, func(t *testing.T) {
			onlySQLite(t, func(t *testing.T, o *outbox) {
				s, log := o.secretive(0), &lines{}
				sink := &batchReader{}
				sink.answer = answer
				f := o.one(forwarder.Sink{Sink: sink, Private: sinks.PrivateReveal, Retry: forwarder.Retry{MaxAttempts: 3, Initial: time.Second}}, s.forwarding, log.logging)
				s.move("ada", "k", "n1")
				s.move("ada", "", "n2")
				s.note("ada", "n3")
				f.flush()
				s.requireSecret(log)
				pass(time.Hour)
				s.requireSecret(log)
				require.NotEmpty(t, sink.take())
				stored := strings.Join(append(o.texts(`SELECT receipt FROM outbox_receipts`), o.texts(`SELECT last_error FROM outbox_parked`)...), " ")
				if logged := log.with("***"); len(logged) == 0 { // of the destination, whose deliveries were not parked
					require.Contains(t, stored, "***")
				}
			})
		})
	}
}

// lockedKeys is a store whose keys cannot be read for a while.
type lockedKeys struct {
	*sqlite.Store
	gone atomic.Bool
}

var errKeys = errors.New("the table of keys is locked")

func (s *lockedKeys) PrivateKeysByID(ctx context.Context, ids []string) ([]store.PrivateKey, error) {
	if s.gone.Load() {
		return nil, errKeys
	}
	return s.Store.PrivateKeysByID(ctx, ids)
}

func TestDeliveriesWaitWhileKeysCannotBeRead(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		s, sink := o.secretive(0), &reader{}
		keys := &lockedKeys{Store: o.store.(*sqlite.Store)}
		keys.gone.Store(true)
		f := o.one(forwarder.Sink{Sink: sink, Private: sinks.PrivateReveal, Retry: forwarder.Retry{MaxAttempts: 2, Initial: time.Second, Max: time.Minute}}, s.forwarding, over(keys))
		s.move("ada", "k", "n1", "n2")
		f.flush()
		o.append("plain", "", "plain")
		f.flush()
		pass(time.Hour)
		require.Equal(t, []string{"plain: {}"}, sink.take(), "others go on")
		require.Equal(t, []string{"n1 retrying", "n2 blocked"}, o.texts(`SELECT id || ' ' || state FROM outbox_parked ORDER BY id`))
		require.Contains(t, o.texts(`SELECT last_error FROM outbox_parked WHERE id = 'n1'`)[0], errKeys.Error())
		keys.gone.Store(false)
		pass(time.Hour)
		require.Equal(t, []string{"n1: " + shown, "n2: " + shown}, sink.take())
		require.Empty(t, o.texts(`SELECT id FROM outbox_parked`))
	})
}

func TestADeliveryWhoseKeyWasLostWaitsForARestore(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		s, sink := o.secretive(0), &reader{}
		f := o.one(forwarder.Sink{Sink: sink, Private: sinks.PrivateReveal, Retry: forwarder.Retry{MaxAttempts: 2, Initial: time.Second, Max: time.Minute}}, s.forwarding)
		f.flush()
		s.move("ada", "", "n1")
		for _, statement := range []string{`CREATE TABLE backup AS SELECT * FROM outbox_keys WHERE subject <> ''`, `DELETE FROM outbox_keys WHERE subject <> ''`} {
			_, err := o.db.Exec(statement)
			require.NoError(t, err)
		}
		f.flush()
		pass(time.Hour)
		require.Empty(t, sink.take())
		require.Contains(t, o.texts(`SELECT last_error FROM outbox_parked WHERE state = 'retrying'`)[0], privacy.ErrMissing.Error())
		_, err := o.db.Exec(`INSERT INTO outbox_keys SELECT * FROM backup`)
		require.NoError(t, err)
		pass(time.Hour)
		require.Equal(t, []string{"n1: " + shown}, sink.take())
	})
}

func TestAForwarderWithAnotherMasterKeyDoesNotRun(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		s := o.secretive(0)
		s.move("ada", "", "n1")
		config := o.config(map[string]forwarder.Sink{"sink": {Sink: &application{}}}, route.Routes{"*": route.To("sink")})
		config.Privacy = anotherMaster(t)
		f, err := forwarder.New(config)
		require.NoError(t, err)
		ctx, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		err = f.Run(ctx)
		require.ErrorIs(t, err, privacy.ErrMaster)
		require.ErrorContains(t, err, "add the key with this digest to keys")
		require.Equal(t, 1, value[int](o, `SELECT count(*) FROM outbox_keys WHERE subject = ''`), "no other root is made")
	})
}

func anotherMaster(t *testing.T) (c privacy.Config) {
	t.Helper()
	var err error
	c.Master, err = privacy.LocalKeys(base64.StdEncoding.EncodeToString([]byte(strings.Repeat("z", 32))))
	require.NoError(t, err)
	c.Rules = map[string]privacy.Rule{"noted": {Subject: "/Person", Fields: []string{"/Email"}}}
	return c
}

func TestRulesThatReadPrivateValuesAreRefused(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		s := o.secretive(0)
		for name, c := range map[string]struct {
			sink   forwarder.Sink
			routes route.Routes
			wrong  string // "": it is allowed
		}{
			"a condition":                  {routes: route.Routes{"moved": {{Sink: "sink", When: `payload.Email != ""`}}}, wrong: "sinks.sink.private: reveal"},
			"a condition of a rule's type": {routes: route.Routes{"noted": {{Sink: "sink", When: `payload.Email != ""`}}}, wrong: "sinks.sink.private: reveal"},
			"a condition of all":           {routes: route.Routes{"*": {{Sink: "sink", When: `payload == nil`}}}, wrong: "private"},
			"a condition with a name":      {routes: route.Routes{"moved": {{Sink: "sink", When: `payload["Email"] != ""`}}}, wrong: "private"},
			"a revealed condition":         {sink: forwarder.Sink{Private: sinks.PrivateReveal}, routes: route.Routes{"moved": {{Sink: "sink", When: `payload.Email != ""`}}}},
			"another value":                {routes: route.Routes{"moved": {{Sink: "sink", When: `payload.Person != ""`}}}},
			"another type":                 {routes: route.Routes{"plain": {{Sink: "sink", When: `payload.Email != ""`}}}},
			"groups":                       {sink: forwarder.Sink{Private: sinks.PrivateReveal, Collect: forwarder.Collect{By: "payload.Email", Wait: time.Second}}, wrong: "collect.by"},
			"groups of another value":      {sink: forwarder.Sink{Collect: forwarder.Collect{By: "payload.Person", Wait: time.Second}}},
			"hours":                        {sink: forwarder.Sink{Private: sinks.PrivateReveal, Hours: forwarder.Hours{From: "09:00", To: "17:00", Unless: `payload.Phone > 1`}}, wrong: "hours"},
		} {
			if c.routes == nil {
				c.routes = route.Routes{"moved": route.To("sink")}
			}
			c.sink.Sink = &collections{}
			_, err := forwarder.New(o.config(map[string]forwarder.Sink{"sink": c.sink}, c.routes, s.forwarding, func(f *forwarder.Config) { f.Others = []string{"plain"} }))
			if c.wrong == "" {
				require.NoError(t, err, name)
				continue
			}
			require.ErrorIs(t, err, forwarder.ErrConfig, name)
			require.ErrorContains(t, err, c.wrong, name)
		}
	})
}

func TestAConditionOfADecryptedValueDecides(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		s, sink := o.secretive(0), &reader{}
		f := o.start(map[string]forwarder.Sink{"sink": {Sink: sink, Private: sinks.PrivateReveal}},
			route.Routes{"moved": {{Sink: "sink", When: `payload.Email startsWith "ada@"`}}}, s.forwarding, manyLanes(2))
		s.move("ada", "", "n1")
		f.flush()
		require.Equal(t, []string{"n1: " + shown}, sink.take())
		require.NoError(t, s.publisher.RunInTx(t.Context(), s.db, nil, func(ctx context.Context, tx *sql.Tx) error {
			return s.publisher.Publish(ctx, tx, moved{"bob", "bob@person.example", 1})
		}))
		f.flush()
		pass(time.Minute)
		require.Empty(t, sink.take())
		require.Empty(t, o.texts(`SELECT id FROM outbox_parked`))
	})
}

func TestWhatIsInsertedWithSQLLeavesTheOutboxAsTheSettingSays(t *testing.T) {
	for set, want := range map[sinks.Private]string{sinks.PrivateReveal: shown, sinks.PrivateDrop: dropped, sinks.PrivateMask: masked, sinks.PrivateKeep: "tokens"} {
		t.Run(string(set), func(t *testing.T) {
			onlySQLite(t, func(t *testing.T, o *outbox) {
				s, log, sink := o.secretive(0), &lines{}, &reader{}
				var refuse atomic.Bool
				refuse.Store(true)
				sink.answer = func(d *notification.Delivery) (notification.Receipt, error) {
					if refuse.Load() {
						return "", fmt.Errorf("refused %s", d.Payload)
					}
					return notification.Receipt(d.Payload), nil
				}
				p := newOperator(o)
				f := o.one(forwarder.Sink{Sink: sink, Private: set, Retry: forwarder.Retry{MaxAttempts: 2, Initial: time.Second}}, s.forwarding, log.logging, lookEachSecond)
				requireAll := func(what string) {
					t.Helper()
					got := sink.take()
					require.NotEmpty(t, got, what)
					for _, g := range got {
						if want == "tokens" {
							require.Contains(t, g, `n1: {"Person":"ada","Email":"waybill:1:`, what)
							require.NotContains(t, g, fmt.Sprint(phone), what)
							continue
						}
						require.Equal(t, "n1: "+want, g, what)
					}
					s.requireSecret(log)
				}
				s.note("ada", "n1")
				f.flush()
				requireAll("from the log")
				require.Contains(t, o.texts(`SELECT payload FROM outbox_parked`)[0], email, "it is parked as it was inserted")
				pass(time.Hour)
				requireAll("parked")
				require.Equal(t, []string{"dead"}, o.texts(`SELECT state FROM outbox_parked`))
				refuse.Store(false)
				require.Equal(t, 1, p.requeue(store.ParkedFilter{States: []store.State{store.StateDead}}))
				oneLook()
				requireAll("requeued")
				require.Equal(t, 1, p.replay(store.ReplayQuery{}, 10))
				oneLook()
				requireAll("replayed")
				require.Empty(t, o.texts(`SELECT id FROM outbox_parked`))
			})
		})
	}
}

func TestEachDatabaseHasItsOwnKeys(t *testing.T) {
	euFile, usFile := outboxtest.File(t), outboxtest.File(t)
	synctest.Test(t, func(t *testing.T) {
		sink := &batchReader{}
		f := &multi{ended: make(map[string]chan error), stops: make(map[string]context.CancelFunc)}
		f.eu, f.us = openSQLite(t, euFile), openSQLite(t, usFile)
		eu, us := f.eu.secretive(0), f.us.secretive(0)
		f.engine = f.eu.one(forwarder.Sink{Sink: sink, Private: sinks.PrivateReveal}, eu.forwarding, func(c *forwarder.Config) { c.Store, c.Fleet = nil, true })
		f.Share(2, 1)
		f.add("eu", f.eu)
		f.add("us", f.us)
		t.Cleanup(f.end)
		eu.move("ada", "", "eu1")
		us.move("ada", "", "us1")
		eu.note("ada", "eu2")
		us.note("ada", "us2")
		f.flush()
		require.Equal(t, []string{"eu1: " + shown, "eu2: " + shown, "us1: " + shown, "us2: " + shown}, sink.take())
		eu.move("ada", "", "eu3")
		us.move("ada", "", "us3")
		eu.erase("ada")
		pass(2 * time.Second)
		f.flush()
		require.Equal(t, []string{"eu3: " + dropped, "us3: " + shown}, sink.take())
		require.Empty(t, f.eu.texts(`SELECT id FROM outbox_parked`))
	})
}
