package crashtest_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/crashtest"
	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// variableEffects is how often each test kills its programs.
const variableEffects = "WAYBILL_CRASH_EFFECTS"

const (
	usualKills     = 4
	mostEffects    = 60              // between two kills
	effectPatience = 5 * time.Minute // limit of each wait
)

// stage is a test that kills programs.
type stage struct {
	t       *testing.T
	ctx     context.Context
	fail    context.CancelCauseFunc
	nursery *crashtest.Nursery
	met     int // failpoints
}

// onStages runs a test with each kind of database.
func onStages(t *testing.T, test func(t *testing.T, s *stage, newDatabase func() database)) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes a while")
	}
	for name, address := range map[string]func(t testing.TB) string{
		"postgres": postgrestest.DSN,
		"sqlite":   func(t testing.TB) string { return filepath.Join(t.TempDir(), "story.db") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, fail := context.WithCancelCause(t.Context())
			s := &stage{t: t, ctx: ctx, fail: fail, nursery: crashtest.NewNursery()}
			t.Cleanup(s.nursery.Close)
			test(t, s, func() database { return newDatabase(t, address(t)) })
		})
	}
}

// database is a database with an outbox, an inbox and business tables.
type database struct {
	*sql.DB
	address string
	store   store.Inspector
}

func newDatabase(t *testing.T, address string) database {
	db, err := openStory(address)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	o := outboxOf(address, db)
	require.NoError(t, o.Migrate(t.Context()))
	for _, statement := range businessTables {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	require.NoError(t, o.Open(t.Context()))
	config, err := o.Forwarding()
	require.NoError(t, err)
	return database{db, address, config.Store.(store.Inspector)}
}

// count returns the result of a query for a number.
func (d database) count(t *testing.T, query string) (n int) {
	t.Helper()
	require.NoError(t, d.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

// texts returns how often each text is in the result of a query.
func (d database) texts(t *testing.T, query string) map[string]int {
	t.Helper()
	rows, err := d.QueryContext(t.Context(), query)
	require.NoError(t, err)
	defer rows.Close()
	all := make(map[string]int)
	for rows.Next() {
		var text string
		require.NoError(t, rows.Scan(&text))
		all[text]++
	}
	require.NoError(t, rows.Err())
	return all
}

// idle reports whether the outbox has no more work. A sample reads the cursors after the end of the log, so the work that
// it saw done may have published more; the next sample shows that.
func (d database) idle(t *testing.T) bool {
	t.Helper()
	before, idle := d.sample(t)
	if !idle {
		return false
	}
	after, idle := d.sample(t)
	return idle && before.LastOffset == after.LastOffset
}

func (d database) sample(t *testing.T) (status store.Status, idle bool) {
	t.Helper()
	sample, err := d.store.Sample(t.Context(), store.SampleQuery{})
	require.NoError(t, err)
	status = sample.Status(nil)
	for _, c := range status.Cursors {
		if c.Pending > 0 || c.Estimated {
			return status, false
		}
	}
	return status, len(status.Parked) == 0
}

// actor is a program of a stage. It starts again after each kill.
type actor struct {
	story    story
	listener *net.TCPListener // the program inherits it
	folder   string           // of its failpoints
	kill     func()
}

func (s *stage) start(c *actor) {
	s.t.Helper()
	program, err := os.Executable()
	require.NoError(s.t, err)
	text, err := json.Marshal(c.story)
	require.NoError(s.t, err)
	command := exec.Command(program)
	if c.folder == "" {
		c.folder = s.t.TempDir()
	}
	command.Env = append(os.Environ(), variableStory+"="+string(text), failpoint.Variable+"="+c.folder)
	command.Stderr = os.Stderr
	if c.listener != nil {
		file, err := c.listener.File()
		require.NoError(s.t, err)
		defer file.Close()
		command.ExtraFiles = []*os.File{file}
	}
	c.kill, err = s.nursery.Start(command, c.story.Program, s.fail)
	require.NoError(s.t, err)
	s.t.Cleanup(c.kill)
}

// await waits until a condition is true.
func (s *stage) await(what string, condition func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(effectPatience); !condition(); time.Sleep(5 * time.Millisecond) {
		require.NoError(s.t, context.Cause(s.ctx), "a program ended by itself")
		require.True(s.t, time.Now().Before(deadline), "waiting for %s", what)
	}
}

// answersThatAreLost are the failpoints of a program before a kill, if it can fail: a commit fails, or no one hears that it
// has succeeded.
// After a commit that fails, a consumer of webhooks asks its sender to wait for ten seconds, so it has none.
func (s *stage) answersThatAreLost(c *actor) (end func()) {
	if c.listener != nil {
		return func() {}
	}
	var files []string
	for _, step := range []failpoint.Step{failpoint.Transaction, failpoint.Hook, failpoint.Checkpoint, failpoint.Tick, failpoint.Schedule,
		failpoint.Keys, failpoint.Erase, failpoint.Rewrite, failpoint.CutTexts, failpoint.BeginAction, failpoint.EndAction} {
		file := filepath.Join(c.folder, []string{"before ", "after "}[rand.IntN(2)]+string(step))
		require.NoError(s.t, os.WriteFile(file, []byte("error"), 0o600))
		files = append(files, file)
	}
	return func() {
		for _, file := range files {
			require.NoError(s.t, os.Remove(file))
		}
		met, err := os.ReadFile(filepath.Join(c.folder, failpoint.Met))
		if !errors.Is(err, os.ErrNotExist) {
			require.NoError(s.t, err)
		}
		s.met += strings.Count(string(met), "\n")
	}
}

// killRepeatedly starts the programs, and kills one after the other, each time after some more effects, some of whose
// answers are lost. Then it lets them finish the remaining work.
func (s *stage) killRepeatedly(programs []*actor, effects func() int, drained func() bool) {
	s.t.Helper()
	for _, c := range programs {
		s.start(c)
	}
	kills := usualKills
	if text := os.Getenv(variableEffects); text != "" {
		var err error
		kills, err = strconv.Atoi(text)
		require.NoError(s.t, err, variableEffects)
	}
	for i := range kills {
		wanted := effects() + 1 + rand.IntN(mostEffects)
		victim := programs[i%len(programs)]
		end := s.answersThatAreLost(victim)
		s.await(fmt.Sprintf("effects after %d kills", i), func() bool { return effects() >= wanted })
		victim.kill()
		end()
		s.start(victim)
	}
	for _, c := range programs {
		c.kill()
		c.story.Drain = true
		s.start(c)
	}
	s.await("the end of the backlog", drained)
	for _, c := range programs {
		c.kill()
	}
	s.t.Logf("%d kills, %d answers lost, %d effects", kills, s.met, effects())
	require.Equal(s.t, failpoint.On, s.met > 0)
}

// killTwins kills one or, if they may share the database, two processes of a program.
func (s *stage) killTwins(d database, program, effects string) {
	s.t.Helper()
	programs := []*actor{{story: story{Program: program, Address: d.address}}}
	if isPostgres(d.address) { // processes may share it
		programs = append(programs, &actor{story: programs[0].story})
	}
	s.killRepeatedly(programs, func() int { return d.count(s.t, `SELECT count(*) FROM `+effects) }, func() bool { return d.idle(s.t) })
}

// requireOnce requires each of the wanted texts once, and no others.
func requireOnce(t *testing.T, wanted, got map[string]int, what string) {
	t.Helper()
	require.NotEmpty(t, wanted)
	var wrong []string
	for text := range wanted {
		if n := got[text]; n != 1 {
			wrong = append(wrong, fmt.Sprintf("%s: %d times", text, n))
		}
	}
	require.Empty(t, wrong, "%s, of %d", what, len(wanted))
	require.Len(t, got, len(wanted), what)
}

func TestAChainHasEachEffectOnceThroughCrashes(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s *stage, newDatabase func() database) {
		d := newDatabase()
		s.killTwins(d, "chain", "shipments")
		orders := d.texts(t, `SELECT id FROM orders UNION ALL SELECT key FROM outbox WHERE type = 'order.placed' AND key LIKE 'tick %'`)
		for order, times := range orders {
			require.Equal(t, 1, times, order)
		}
		requireOnce(t, orders, d.texts(t, `SELECT order_id FROM payments`), "payments")
		requireOnce(t, orders, d.texts(t, `SELECT order_id FROM shipments`), "shipments")
		require.Equal(t, len(orders), d.count(t, `SELECT count(*) FROM outbox WHERE type = 'payment.made'`))
	})
}

func TestAFanOutHasEachMailOnceThroughCrashes(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s *stage, newDatabase func() database) {
		d := newDatabase()
		s.killTwins(d, "comments", "mails")
		wanted := make(map[string]int)
		for comment := range d.texts(t, `SELECT id FROM orders`) {
			for i := range followers {
				wanted[fmt.Sprintf("%s to %d", comment, i)] = 1
			}
		}
		requireOnce(t, wanted, d.texts(t, `SELECT key FROM outbox WHERE type = 'mail.due'`), "published mails")
		requireOnce(t, wanted, d.texts(t, `SELECT mail FROM mails`), "sent mails")
		require.Zero(t, d.count(t, `SELECT count(*) FROM mails WHERE mail LIKE '% to 0' AND attempt < 3`), "each of these fails twice")
	})
}

func TestAConsumerOfWebhooksHasEachEffectOnceThroughCrashes(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot inherit a listener there")
	}
	onStages(t, func(t *testing.T, s *stage, newDatabase func() database) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, listener.Close()) })
		s.consume(t, newDatabase(), newDatabase(), story{URL: "http://" + listener.Addr().String()}, listener.(*net.TCPListener))
	})
}

func TestAConsumerOfKafkaHasEachEffectOnceThroughCrashes(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s *stage, newDatabase func() database) {
		broker := kafkatest.Fake(t)
		s.consume(t, newDatabase(), newDatabase(), story{Brokers: broker.Brokers, Topic: broker.CreateTopic(t, 2, nil)}, nil)
	})
}

// consume kills a shop and a consumer of its orders, which have separate databases.
func (s *stage) consume(t *testing.T, shop, consumer database, config story, listener *net.TCPListener) {
	t.Helper()
	sender, receiver := config, config
	sender.Program, sender.Address = "shop", shop.address
	receiver.Program, receiver.Address = "consumer", consumer.address
	paid := func() int { return consumer.count(t, `SELECT count(*) FROM payments`) }
	s.killRepeatedly([]*actor{{story: sender}, {story: receiver, listener: listener}}, paid, func() bool {
		return shop.idle(t) && paid() >= shop.count(t, `SELECT count(*) FROM orders`)
	})
	requireOnce(t, shop.texts(t, `SELECT id FROM orders`), consumer.texts(t, `SELECT order_id FROM payments`), "payments")
}
