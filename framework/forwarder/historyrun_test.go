package forwarder_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
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
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	outboxes "github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
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
		w.count("routes")
		w.mu.Lock()
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

// node is a process with a forwarder.
type node struct {
	*forwarder.Forwarder
	world  *world
	name   string
	number int
	port   *virtual
	db     *sql.DB
	stop   context.CancelFunc
	died   chan struct{} // closed when it is killed
	ended  chan struct{} // closed when Run has returned
	sinks  map[string]forwarder.Sink

	reloading chan struct{} // has a value during a reload

	mu      sync.Mutex
	leaving bool
	paused  time.Time // until then
	armed   []*armed
}

// armed is a fault that waits for a statement.
type armed struct {
	place, mode string
	left        int // statements until then
	delay       time.Duration
}

var errFault = errors.New("connection reset")

// start starts a process, unless it runs.
func (w *world) start(o op) {
	if n := w.nodes[o.Node]; n != nil && n.alive() || len(w.routes) == 0 {
		return
	}
	n := &node{world: w, number: o.Node, name: fmt.Sprintf("node %d (process %d)", o.Node, len(w.all)+1), died: make(chan struct{}), ended: make(chan struct{}), reloading: make(chan struct{}, 1)}
	n.port = &virtual{disturb: n.disturb}
	n.db = w.file.open(n.port)
	w.nodes[o.Node], w.all = n, append(w.all, n)
	n.build()
	w.count("start")
	if o.N > 1 {
		w.count("another number of lanes")
	}
	w.background.Go(func() {
		defer close(n.ended)
		defer func() { _ = n.db.Close() }()
		n.run(o.N)
	})
	time.Sleep(time.Millisecond)
}

// run runs the forwarder, once its database can be opened.
func (n *node) run(lanes int) {
	w := n.world
	ctx, stop := context.WithCancel(w.ctx)
	defer stop()
	n.mu.Lock()
	n.stop = stop
	n.mu.Unlock()
	var s *sqlite.Store
	for {
		var err error
		if s, err = sqlite.Open(ctx, n.db, sqlite.Config{Receipts: true}); err == nil {
			break
		}
		if n.isLeaving() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	c := forwarder.Config{
		Store: s, Name: fmt.Sprint("node-", n.number), Sinks: n.sinks, Routes: w.currentRoutes(), Lanes: max(lanes, 1),
		Poll: time.Second, Lease: 15 * time.Second, ShutdownTimeout: 2 * time.Second,
		Retention: forwarder.KeepForever, InboxRetention: forwarder.KeepForever, Logger: w.logger(n),
	}
	if w.prunes {
		c.Retention = 20 * time.Second
	}
	f, err := forwarder.New(c)
	if err != nil {
		w.breaks("%s: %v", n, err)
		return
	}
	n.mu.Lock()
	n.Forwarder = f
	n.mu.Unlock()
	if err := f.Run(ctx); err != nil && !n.port.dead.Load() {
		w.breaks("%s ended with %v", n, err)
	} else if !n.isLeaving() {
		w.breaks("%s ended by itself", n)
	}
}

func (n *node) String() string { return n.name }

func (w *world) logger(n *node) *slog.Logger {
	if w.logs == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(w.logs, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.String("", fmt.Sprintf("%9.3f %s", a.Value.Time().Sub(w.began).Seconds(), n))
		}
		return a
	}}))
}

// currentRoutes are those of the next start or reload. Each sink has one at any time.
func (w *world) currentRoutes() route.Routes {
	w.mu.Lock()
	defer w.mu.Unlock()
	routes := route.Routes{"never": route.To(w.sinks...)}
	for pattern, to := range w.routes[len(w.routes)-1] {
		routes[pattern] = route.To(to...)
	}
	return routes
}

func (n *node) alive() bool {
	select {
	case <-n.ended:
		return false
	case <-n.died:
		return false
	default:
		return !n.isLeaving()
	}
}

func (n *node) isLeaving() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leaving
}

// leave stops the process gracefully.
func (n *node) leave() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leaving = true
	if n.stop != nil {
		n.stop()
	}
}

// die kills the process: none of its statements is done any more, and its deliveries reach no one.
func (n *node) die() {
	if n.port.dead.Swap(true) {
		return
	}
	n.world.goesWrong(n, 0)
	close(n.died)
	n.leave()
}

func (n *node) do(o op) {
	w := n.world
	switch o.Do {
	case "end":
		w.count("end")
		n.leave()
	case "kill":
		w.count("kill")
		n.die()
	case "pause":
		w.count("pause")
		w.goesWrong(n, o.For)
		n.mu.Lock()
		n.paused = time.Now().Add(o.For)
		n.mu.Unlock()
	case "fault":
		place, mode, _ := strings.Cut(o.Mode, "-")
		n.mu.Lock()
		n.armed = append(n.armed, &armed{place, mode, o.N, o.For})
		n.mu.Unlock()
	case "reload":
		n.reload(o.Mode)
	}
}

// reload gives the process the current routes, with the same sinks or with other ones.
func (n *node) reload(mode string) {
	n.mu.Lock()
	f := n.Forwarder
	n.mu.Unlock()
	if f == nil {
		return
	}
	if mode == "fresh" {
		n.build()
	}
	sinks, routes := maps.Clone(n.sinks), n.world.currentRoutes()
	n.world.count("reload " + mode)
	n.world.background.Go(func() {
		n.reloading <- struct{}{} // in the bubble's time, unlike a mutex
		defer func() { <-n.reloading }()
		if err := f.Reload(n.world.ctx, sinks, routes); err != nil && !errors.Is(err, forwarder.ErrNotRunning) {
			n.world.breaks("%s: reload: %v", n, err)
		}
	})
}

// waitPaused waits while the process is paused, or until a context ends.
func (n *node) waitPaused(ctx context.Context) {
	for {
		n.mu.Lock()
		left := time.Until(n.paused)
		n.mu.Unlock()
		if left <= 0 || n.port.dead.Load() || ctx.Err() != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-n.died:
		case <-time.After(min(left, time.Second)):
		}
	}
}

// disturb is what goes wrong with a statement.
func (n *node) disturb(ctx context.Context, s statement) (after func() error, err error) {
	w := n.world
	switch {
	case !s.within: // a connection may wait longer than its context
		n.waitPaused(context.Background())
	case n.number%2 == 0: // it stops all writers; database/sql waits in a way that stops the bubble's time
		n.waitPaused(ctx)
	}
	w.mu.Lock()
	trouble := w.trouble
	w.mu.Unlock()
	if left := time.Until(trouble.until); left > 0 {
		if trouble.silent {
			_ = takesTime(ctx, left)
		}
		return nil, cmp.Or(ctx.Err(), errFault)
	}
	if time.Until(trouble.slow) > 0 {
		if err := takesTime(ctx, time.Duration(rand.Int64N(int64(trouble.pause)+1))); err != nil {
			return nil, err
		}
	}
	a := n.fires(s)
	if a == nil {
		return nil, nil
	}
	w.count("fault " + a.place + "-" + a.mode)
	w.goesWrong(n, a.delay)
	switch a.mode {
	case "fails":
		return nil, errFault
	case "lost":
		return func() error { return errFault }, nil
	case "delayed":
		return nil, takesTime(ctx, a.delay)
	case "dies-before":
		n.die()
		return nil, errKilled
	default:
		return func() error {
			n.die()
			return errKilled
		}, nil
	}
}

// fires returns the fault of a statement, if it has one.
func (n *node) fires(s statement) *armed {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, a := range n.armed {
		if a.place == "write" && s.kind == writes || a.place == "begin" && s.kind == begins || a.place == "commit" && s.kind == commits {
			if a.left--; a.left <= 0 {
				n.armed = slices.Delete(n.armed, i, i+1)
				return a
			}
		}
	}
	return nil
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

// heal ends all faults.
func (w *world) heal() {
	w.mu.Lock()
	w.trouble = trouble{}
	for _, f := range w.faults {
		if f.to.After(time.Now()) {
			f.to = time.Now()
		}
	}
	all := slices.Collect(maps.Values(w.destinations))
	w.mu.Unlock()
	w.file.ahead.Store(0)
	for _, d := range all {
		d.become("ok", true)
	}
	for _, n := range w.all {
		n.mu.Lock()
		n.paused, n.armed = time.Time{}, nil
		n.mu.Unlock()
	}
	if _, err := w.admin.Resume(w.ctx, w.pausedSinks()...); err != nil {
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

// act is what people do.
func (w *world) act(o op) {
	if !slices.Contains(peopleActions, o.Do) {
		w.breaks("there is no operation %q", o.Do)
		return
	}
	var err error
	switch o.Do {
	case "pause-sink":
		_, err = w.admin.Pause(w.ctx, o.Sink)
	case "resume-sink":
		_, err = w.admin.Resume(w.ctx, o.Sink)
	case "requeue":
		err = w.requeue(o.Sink)
	case "discard":
		err = w.discard(o)
	case "replay":
		err = w.replay(o.Sink)
	case "reroute":
		err = w.reroute()
	case "cancel":
		err = w.cancel(o)
	}
	switch {
	case err == nil:
		w.count(o.Do)
	case errors.Is(err, store.ErrUnknownSink) || errors.Is(err, errLocked): // it has no cursors yet
	default:
		w.breaks("%s: %v", o, err)
	}
}

func (w *world) requeue(sink string) error {
	p, err := w.admin.Requeue(w.ctx, admin.Filter{Sink: sink})
	if err == nil {
		_, err = p.Run(w.ctx, nil)
	}
	return err
}

// discard deletes what is parked. What was not delivered before may be gone.
func (w *world) discard(o op) error {
	f := admin.Filter{Sink: o.Sink}
	if o.Mode == "any" {
		f.States = []store.State{store.StateRetrying, store.StateBlocked, store.StateScheduled, store.StateDead, store.StateSettling}
	}
	p, err := w.admin.Discard(w.ctx, f)
	if err != nil {
		return err
	}
	before := w.parked()
	_, err = p.Run(w.ctx, nil)
	after := w.parked()
	w.mu.Lock()
	defer w.mu.Unlock()
	for place := range before {
		if _, stays := after[place]; !stays && place.sink == o.Sink && w.byID[place.id] != nil {
			w.byID[place.id].dropped[o.Sink] = true
		}
	}
	return err
}

func (w *world) replay(sink string) error {
	w.mu.Lock()
	for _, r := range w.rows {
		r.replayed[sink]++
	}
	w.mu.Unlock()
	table, err := route.New(w.currentRoutes(), w.sinks, nil)
	if err != nil {
		return err
	}
	p, err := w.admin.Replay(w.ctx, admin.ReplayRequest{Sink: sink, Routed: table.Filter(sink)})
	if err == nil {
		_, err = p.Run(w.ctx, nil)
	}
	return err
}

func (w *world) reroute() error {
	if len(w.routes) == 0 {
		return nil
	}
	table, err := route.New(w.currentRoutes(), w.sinks, nil)
	if err != nil {
		return err
	}
	p, err := w.admin.Reroute(w.ctx, admin.Filter{}, table)
	if err != nil {
		return err
	}
	for place := range w.parked() {
		if r := w.row(place.id); r != nil && place.sink == store.SinkUnrouted {
			r.moved = true
		}
	}
	_, err = p.Run(w.ctx, nil)
	return err
}

// cancel cancels a notification that is scheduled.
func (w *world) cancel(o op) error {
	var scheduled []*row
	w.mu.Lock()
	for _, r := range w.rows {
		if r.DeliverAt.After(time.Now()) && !r.cancelled {
			scheduled = append(scheduled, r)
		}
	}
	w.mu.Unlock()
	if len(scheduled) == 0 {
		return nil
	}
	r := scheduled[o.Seed%uint64(len(scheduled))]
	cancelled := 0
	err := w.publisher.RunInTx(w.ctx, w.own.db, nil, func(ctx context.Context, tx *sql.Tx) (err error) {
		cancelled, err = w.publisher.CancelID(ctx, tx, r.ID)
		return err
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && cancelled > 0 && time.Now().Before(r.DeliverAt) {
		r.cancelled = true
	} else if cancelled > 0 {
		for _, sink := range w.sinks {
			r.dropped[sink] = true // it may be gone
		}
	}
	return err
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
