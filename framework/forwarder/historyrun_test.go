package forwarder_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/notification"
	outboxes "github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
)

// world is where a history happens: a database file, processes that share it, and destinations.
type world struct {
	file      *virtualFile
	own       *outbox // of the test, which no fault reaches
	admin     *admin.Admin
	publisher *outboxes.Publisher
	ctx       context.Context
	logs      io.Writer
	began     time.Time
	prunes    bool
	sinks     []string // of all routes in the history

	background sync.WaitGroup
	nodes      map[int]*node // the last ones of their numbers
	all        []*node
	seed       uint64

	mu           sync.Mutex
	routes       []routing // all that there were; the last one is that of the next start
	only         bool      // the configuration has only the sinks of the last routes
	destinations map[string]*destination
	bank         *bank
	rows         []*row // in the order of the log
	byID         map[string]*row
	gone         map[string]bool // ids that were rolled back
	faults       []*fault
	trouble      trouble
	counts       map[string]int
	problems     []string
}

// routing is the sinks of each pattern.
type routing map[string][]string

func (r routing) of(typ string) []string {
	for pattern, to := range r {
		if route.Matches(pattern, typ) {
			return to
		}
	}
	return nil
}

// row is a row of the log whose transaction has committed.
type row struct {
	notification.Envelope
	place     int       // in the order of the log
	committed time.Time // not before
	cancelled bool      // before its time
	dropped   map[string]bool
	replayed  map[string]int
	moved     bool // by a reroute
}

// fault is something that went wrong with a process, or with all of them.
type fault struct {
	node     *node // nil: all
	from, to time.Time
}

// trouble is what is wrong with the database for all processes.
type trouble struct {
	until  time.Time // it is away
	silent bool
	slow   time.Time // until then
	pause  time.Duration
}

// outcome is what became of a history.
type outcome struct {
	problems []string
	counts   map[string]int
}

// play executes a history in a bubble.
func play(t *testing.T, folder string, h history, logs io.Writer) (result outcome) {
	path := filepath.Join(folder, fmt.Sprintf("history-%d.db", os.Getpid()))
	defer func() {
		for _, end := range []string{"", "-wal", "-shm"} {
			_ = os.Remove(path + end)
		}
	}()
	file, err := newVirtualFile(path)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, file, h, logs)
		for _, o := range h {
			w.log("--- %s", o)
			w.do(o)
		}
		w.finish()
		result = outcome{w.problems, w.counts}
	})
	return result
}

func newWorld(t *testing.T, file *virtualFile, h history, logs io.Writer) *world {
	w := &world{
		file: file, ctx: t.Context(), logs: logs, began: time.Now(), nodes: make(map[int]*node), destinations: make(map[string]*destination),
		byID: make(map[string]*row), gone: make(map[string]bool), counts: make(map[string]int),
	}
	db := file.open(&virtual{})
	t.Cleanup(func() { _ = db.Close() })
	s, err := sqlite.Open(w.ctx, db, sqlite.Config{Receipts: true})
	if err != nil {
		t.Fatal(err)
	}
	w.own = &outbox{t: t, db: db, store: s}
	w.admin = admin.New(s, "test")
	if w.publisher, err = outboxes.New(registry.New(), s, outboxes.Config{Announcer: outboxes.Silent}); err != nil {
		t.Fatal(err)
	}
	for _, o := range h {
		for _, to := range parseRoutes(o.Routes) {
			w.sinks = append(w.sinks, to...)
		}
	}
	slices.Sort(w.sinks)
	w.sinks = slices.Compact(w.sinks)
	for _, sink := range w.sinks {
		w.destinations[sink] = &destination{world: w, name: sink, calls: make(map[string][]*call), inFlight: make(map[string]int)}
	}
	w.bank = newHistoryBank(w)
	return w
}

func parseRoutes(text string) routing {
	r := make(routing)
	for rule := range strings.SplitSeq(text, ",") {
		if pattern, to, ok := strings.Cut(rule, ":"); ok {
			r[pattern] = strings.Split(to, "+")
		}
	}
	return r
}

// now is how long the history has lasted.
func (w *world) now() time.Duration { return time.Since(w.began) }

// log writes a line if the history is played with logs.
func (w *world) log(format string, args ...any) {
	if w.logs != nil {
		fmt.Fprintf(w.logs, "%9.3f %s\n", w.now().Seconds(), fmt.Sprintf(format, args...))
	}
}

func (w *world) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

// breaks notes a violation.
func (w *world) breaks(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

// goesWrong notes a fault that lasts from now on for a time.
func (w *world) goesWrong(n *node, lasts time.Duration) *fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := &fault{n, time.Now(), time.Now().Add(lasts)}
	w.faults = append(w.faults, f)
	return f
}

// do executes an operation. One that does not fit, such as the end of a process that does not run, does nothing.
func (w *world) do(o op) {
	n := w.nodes[o.Node]
	switch o.Do {
	case "setup":
		w.seed, w.prunes = o.Seed, o.Mode == "prune"
	case "routes":
		w.count(strings.TrimSpace("routes " + o.Mode))
		w.mu.Lock()
		w.only = o.Mode == "only"
		w.routes = append(w.routes, parseRoutes(o.Routes))
		w.mu.Unlock()
	case "wait":
		time.Sleep(o.For)
	case "publish":
		w.publish(o)
	case "start":
		w.start(o)
	case "answers":
		if d := w.destinations[o.Sink]; d != nil {
			d.become(o.Mode, false)
		}
	case "away", "slow", "clock":
		w.disturb(o)
	case "end", "kill", "pause", "fault", "reload":
		if n != nil && n.alive() {
			n.do(o)
		}
	case "stay":
		w.stay(o)
	default:
		w.act(o)
	}
}

// disturb is a fault of the database.
func (w *world) disturb(o op) {
	until := time.Now().Add(o.For)
	w.mu.Lock()
	switch o.Do {
	case "away":
		w.trouble.until, w.trouble.silent = until, o.Mode == "silent"
	case "slow":
		w.trouble.slow, w.trouble.pause = until, time.Duration(o.N)*time.Millisecond
	}
	w.mu.Unlock()
	switch o.Do {
	case "clock":
		w.file.ahead.Store(int64(o.For))
		w.count("clock")
		w.goesWrong(nil, time.Minute)
	case "away":
		w.count("away " + o.Mode)
		w.goesWrong(nil, o.For)
	default:
		w.count(o.Do)
		w.goesWrong(nil, o.For)
	}
}

// publish publishes rows in the background: a transaction may wait for another one.
func (w *world) publish(o op) {
	w.background.Go(func() {
		rows := w.rowsOf(o)
		var written []*row // by this transaction, if it commits
		write := func(ctx context.Context, tx *sql.Tx, some []*row, gone bool) error {
			for _, r := range some {
				if err := w.publisher.Append(ctx, tx, r.Envelope); err != nil {
					return err
				}
				if gone {
					w.mu.Lock()
					w.gone[r.ID] = true
					w.mu.Unlock()
				} else {
					written = append(written, r)
				}
			}
			return nil
		}
		half := len(rows) / 2
		err := w.publisher.RunInTx(w.ctx, w.own.db, nil, func(ctx context.Context, tx *sql.Tx) error {
			if err := write(ctx, tx, rows[:half], o.Mode == "rolled-back"); err != nil {
				return err
			}
			switch o.Mode {
			case "held":
				time.Sleep(o.For)
			case "savepoint":
				undone := slices.Clone(rows[half:])
				for i, r := range undone {
					other := *r
					other.ID = "undone-" + r.ID[:min(len(r.ID), 200)]
					undone[i] = &other
				}
				_, begin := tx.ExecContext(ctx, `SAVEPOINT half`)
				if err := cmp.Or(begin, write(ctx, tx, undone, true)); err != nil {
					return err
				}
				if _, err := tx.ExecContext(ctx, `ROLLBACK TO half`); err != nil {
					return err
				}
			}
			if err := write(ctx, tx, rows[half:], o.Mode == "rolled-back"); err != nil {
				return err
			}
			if o.Mode == "rolled-back" {
				return errRolledBack
			}
			w.mu.Lock() // the lock of writers is still held, so this is the order of the log
			defer w.mu.Unlock()
			for _, r := range written {
				r.place, r.committed = len(w.rows), time.Now()
				w.rows = append(w.rows, r)
				w.byID[r.ID] = r
			}
			return nil
		})
		switch {
		case err == nil || errors.Is(err, errRolledBack):
			w.count("publish " + o.Mode)
		case errors.Is(err, errLocked):
			w.count("publish locked")
		default:
			w.breaks("publish: %v", err)
		}
	})
}

var errRolledBack = errors.New("rolled back")

// rowsOf returns what an operation publishes. The seed decides about each row by itself.
func (w *world) rowsOf(o op) []*row {
	rows := make([]*row, o.N)
	for i := range rows {
		random := rand.New(rand.NewPCG(o.Seed, uint64(i)))
		r := &row{dropped: make(map[string]bool), replayed: make(map[string]int)}
		r.ID = fmt.Sprintf("%d-%d", o.Seed, i)
		r.Type = []string{"x", "x", "y", "y", "z.1", "z.2", "w"}[random.IntN(7)]
		r.Key = []string{"", "a", "a", "b", "c", fmt.Sprint("k", random.IntN(1000))}[random.IntN(6)]
		r.Payload = []byte(`{"n":1}`)
		w.extremes(r, random)
		rows[i] = r
	}
	return rows
}

// extremes are what the log accepts at most, and what is scheduled.
func (w *world) extremes(r *row, random *rand.Rand) {
	switch random.IntN(60) {
	case 0:
		r.Key = "k" + strings.Repeat("ü", 511) + "k"
		w.count("extreme key")
	case 1:
		r.Type = "z." + strings.Repeat("t", 253)
		w.count("extreme type")
	case 2:
		r.ID += strings.Repeat("i", 255-len(r.ID))
		w.count("extreme id")
	case 3:
		r.Payload = []byte(`"` + strings.Repeat("p", 1+random.IntN(300_000)) + `"`)
		w.count("large payload")
	case 4:
		r.OccurredOn = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	case 5:
		r.OccurredOn = time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC)
	case 6:
		r.DeliverAt = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
		w.count("far future")
	case 7:
		r.DeliverAt = time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC)
	case 8, 9, 10, 11, 12, 13, 14:
		r.DeliverAt = time.Now().Add(time.Duration(random.IntN(12_000)-2000) * time.Millisecond).Round(time.Millisecond)
		w.count("scheduled")
	}
}

// stay heals everything but one part, and requires that everything else is delivered.
func (w *world) stay(o op) {
	w.heal()
	if len(w.routes) == 0 {
		return
	}
	excused := ""
	switch {
	case o.Sink != "" && w.destinations[o.Sink] != nil:
		w.destinations[o.Sink].become(o.Mode, true)
		excused = o.Sink
		if o.Mode == "destination" {
			w.count("stay destination")
		} else {
			w.count("stay sink")
		}
	case o.Node != 0 && w.nodes[o.Node] != nil && w.nodes[o.Node].alive():
		n := w.nodes[o.Node]
		w.count("stay node")
		if o.Mode == "killed" {
			n.die()
		} else {
			w.goesWrong(n, time.Hour)
			n.mu.Lock()
			n.paused = time.Now().Add(time.Hour)
			n.mu.Unlock()
		}
	}
	w.start(op{Node: 8, N: w.lanes()})
	for _, missing := range w.drain(excused, false) {
		w.breaks("while %s: %s", o, missing)
	}
	w.heal()
}

// lanes is the number of lanes of the process that decides about it.
func (w *world) lanes() int { return 1 }

// heal ends all faults, and gives what starts next all sinks.
func (w *world) heal() {
	w.mu.Lock()
	w.only = false
	w.trouble = trouble{}
	for _, f := range w.faults {
		if f.to.After(time.Now()) {
			f.to = time.Now()
		}
	}
	all := slices.Collect(maps.Values(w.destinations))
	w.mu.Unlock()
	if w.file.ahead.Swap(0) != 0 {
		w.goesWrong(nil, longestLease) // leases may end at once
	}
	for _, d := range all {
		d.become("ok", true)
	}
	for _, n := range w.all {
		n.mu.Lock()
		n.paused, n.armed = time.Time{}, nil
		n.mu.Unlock()
	}
	_, err := w.admin.Resume(w.ctx, w.pausedSinks()...)
	for began := time.Now(); errors.Is(err, errLocked) && time.Since(began) < time.Minute; time.Sleep(time.Second) { // until what a fault left open has ended
		_, err = w.admin.Resume(w.ctx, w.pausedSinks()...)
	}
	if err != nil {
		w.breaks("resume: %v", err)
	}
}

func (w *world) pausedSinks() (paused []string) {
	all, err := w.admin.Sinks(w.ctx)
	if err != nil {
		w.breaks("sinks: %v", err)
	}
	for _, s := range all {
		if s.Paused {
			paused = append(paused, s.Sink)
		}
	}
	return paused
}

// finish heals everything, waits until everything is delivered, and checks what happened.
func (w *world) finish() {
	w.heal()
	if len(w.routes) > 0 {
		w.start(op{Node: 9, N: w.lanes()})
		missing := w.drain("", true)
		if len(missing) == 0 { // a lane of a dead process is taken when its lease expires
			time.Sleep(longestLease)
			missing = w.drain("", true)
		}
		for _, m := range missing {
			w.breaks("in the end %s", m)
		}
		w.quiet()
	}
	for _, n := range w.all {
		n.leave()
	}
	w.background.Wait()
	if w.prunes {
		w.counts["prune"]++
	}
	w.check()
}

// longestLease is how long a lease lasts at most, by a clock that was ahead.
const longestLease = 15*time.Second + mostAhead

// quiet ends all processes and starts another one, which has nothing to do.
func (w *world) quiet() {
	for _, n := range w.all {
		n.leave()
	}
	w.background.Wait()
	ended := time.Now()
	w.start(op{Node: 10, N: w.lanes()})
	time.Sleep(5 * time.Second)
	for _, again := range w.callsSince(ended) {
		w.breaks("after everything was settled and all processes had ended, %s", again)
	}
}

func (w *world) row(id string) *row {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byID[id]
}

// drawOf returns a number below n that depends on texts only.
func drawOf(n int, texts ...any) int {
	h := fnv.New64a()
	fmt.Fprint(h, texts...)
	return int((h.Sum64() >> 11) % uint64(n))
}
