// Package crashtest tests a forwarder by crashing it. It kills, stops and disconnects real
// forwarders while real publishers write to a real PostgreSQL, MySQL or MariaDB, and then compares
// what a sink received with what was committed.
//
//	func TestMain(m *testing.M) {
//		crashtest.RunPublisher() // a publisher is this binary, started again
//		os.Exit(m.Run())
//	}
//
//	func TestCrashes(t *testing.T) {
//		report, err := crashtest.Run(t.Context(), crashtest.Config{Forwarder: func(dsn, endpoint string) *exec.Cmd {
//			return exec.Command("./my-forwarder", "--database", dsn, "--post-to", endpoint)
//		}})
//		t.Log(report)
//		if err != nil {
//			t.Fatal(err)
//		}
//	}
//
// Everything listens on the loopback interface only and ends with Run. If the process that called
// Run is killed, its publishers and the database end too; on Linux the forwarders also do.
package crashtest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// endTimeout is how long a process may take to stop gracefully.
const endTimeout = 30 * time.Second

// startTime is how long a busy machine may take until a process that was started handles signals.
const startTime = 10 * time.Second

// publishers is the number of publishers.
const publishers = 3

// lookEvery is the pause between two looks at what is pending.
const lookEvery = 50 * time.Millisecond

// Run starts a database server, publishers and forwarders, causes faults for Config.Duration,
// waits until nothing is pending, and checks what the sink received. It returns when everything
// that it started has ended. It may be called in parallel on a machine that is large enough.
//
// The error wraps ErrBroken if a guarantee was broken; the report then lists the first violations
// with the histories of their notifications. It wraps ErrEnded if a process did not run or end as
// it should. With an error, the report contains what happened until then.
func Run(ctx context.Context, c Config) (report Report, err error) {
	c, err = c.withDefaults()
	if err != nil {
		return Report{Seed: c.Seed}, fmt.Errorf("crashtest: %w", err)
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	h := &harness{
		config: c,
		fail:   fail,
		ledger: newLedger(),
		random: rand.New(rand.NewPCG(c.Seed, 2)),
		report: Report{Seed: c.Seed, Points: make(map[string]int)},
	}
	err = errors.Join(h.run(ctx), h.end())
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	if err != nil {
		err = fmt.Errorf("crashtest: seed %d: %w", c.Seed, err)
	}
	return h.report, err
}

// harness is one call of Run.
type harness struct {
	config Config
	fail   context.CancelCauseFunc // ends the run with an error
	folder string
	turns  sync.Map // *sync.Mutex by the part of the system that faults happen to

	mu     sync.Mutex // guards the following, and the log
	random *rand.Rand
	report Report

	dialect    dialect
	server     server
	dsn        string
	db         *sql.DB
	store      store.Inspector
	direct     string // address of the database
	front      *link  // to it, for publishers and this harness
	ledger     *ledger
	sink       *sink
	starter    *starter
	forwarders []*forwarder
	publishers []*publisher
	started    int // number of publishers so far, for their seeds
}

func (h *harness) run(ctx context.Context) error {
	if err := h.begin(ctx); err != nil {
		return err
	}
	began := time.Now()
	stalls := watchMachine(began, h.config.Lease/4)
	defer stalls()
	if err := h.harm(ctx, began); err != nil {
		return err
	}
	if err := h.stopPublishers(ctx); err != nil {
		return err
	}
	h.sink.calm.Store(true)
	calm := time.Now()
	pending := h.awaitIdle(ctx)
	h.report.Duration, h.report.Settling = time.Since(began), time.Since(calm)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := h.stopForwarders(); err != nil {
		return err
	}
	log, err := h.readLog(ctx)
	if err != nil {
		return err
	}
	h.count()
	h.report.Faults = append(h.report.Faults, stalls()...)
	slices.SortFunc(h.report.Faults, func(a, b Fault) int { return a.began.Compare(b.began) })
	past := history{published: h.ledger.items, log: log, deliveries: h.sink.taken(), faults: h.report.Faults, began: began}
	if h.config.Upstream != nil { // after the last delivery, until which the other stage may have written twice
		if past.upstream, err = h.config.Upstream(ctx); err != nil && pending == "" {
			return err
		}
	}
	if err := h.db.QueryRowContext(ctx, `SELECT coalesce(sum(a.count), 0) FROM outbox_actions a WHERE a.action = 'replay'`).Scan(&past.replayed); err != nil {
		return err
	}
	h.report.check(past, h.config, pending)
	if len(h.report.Violations) > 0 {
		return fmt.Errorf("%w\n%s", ErrBroken, h.report)
	}
	return nil
}

// begin starts everything.
func (h *harness) begin(ctx context.Context) (err error) {
	h.dialect = dialects[h.config.Database]
	if h.server, err = h.dialect.start(ctx); err != nil {
		h.server = nil
		return err
	}
	if h.folder, err = os.MkdirTemp("", "waybill-crash-*"); err != nil {
		return err
	}
	if h.direct, err = h.server.create(ctx); err != nil {
		return err
	}
	if h.front, err = newLink(h.direct); err != nil {
		return err
	}
	h.dsn = h.front.DSN()
	if h.db, err = h.dialect.open(h.dsn); err != nil {
		return err
	}
	if err := h.spare(ctx); err != nil {
		return err
	}
	if h.store, err = h.dialect.migrate(ctx, h.db); err != nil {
		return err
	}
	for _, statement := range businessTables {
		if _, err := h.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	if h.sink, err = newSink(h.config.Seed); err != nil {
		return err
	}
	h.starter = newStarter()
	for number := range h.config.Forwarders {
		f := &forwarder{number: number}
		h.forwarders = append(h.forwarders, f)
		if err := h.connect(f); err != nil {
			return err
		}
		if err := h.startForwarder(f); err != nil {
			return err
		}
	}
	for number := range publishers {
		p, err := h.startPublisher(number)
		if err != nil {
			return err
		}
		h.publishers = append(h.publishers, p)
	}
	return nil
}

// awaitIdle waits until nothing is pending, or Config.Calm is over. It returns what is still pending.
func (h *harness) awaitIdle(ctx context.Context) (pending string) {
	ctx, cancel := context.WithTimeout(ctx, h.config.Calm)
	defer cancel()
	for {
		var err error
		if pending, err = h.look(ctx); err == nil && pending == "" {
			return ""
		}
		select {
		case <-ctx.Done():
			return fmt.Sprintf("%s; %v", pending, err)
		case <-time.After(lookEvery):
		}
	}
}

// look returns what is pending: "" if every cursor is at the end of the log, nothing is parked, and
// everything upstream is delivered.
func (h *harness) look(ctx context.Context) (pending string, err error) {
	sample, err := h.store.Sample(ctx, store.SampleQuery{})
	if err != nil {
		return "", err
	}
	status := sample.Status(nil)
	if !idle(status) {
		return fmt.Sprintf("%+v", status), nil
	}
	if h.config.Upstream == nil {
		return "", nil
	}
	upstream, err := h.config.Upstream(ctx)
	if err != nil {
		return "", err
	}
	awaited := maps.Clone(upstream)
	for _, d := range h.sink.taken() {
		delete(awaited, d.id)
	}
	if len(awaited) > 0 {
		pending = fmt.Sprintf("%d of %d notifications that are upstream", len(awaited), len(upstream))
	}
	return pending, nil
}

func idle(status store.Status) bool {
	for _, c := range status.Cursors {
		if c.Pending > 0 || c.Estimated {
			return false
		}
	}
	return len(status.Cursors) > 0 && len(status.Parked) == 0
}

// readLog returns the committed notifications, also those that retention has removed since.
func (h *harness) readLog(ctx context.Context) (log []row, err error) {
	rows, err := h.db.QueryContext(ctx, `SELECT records FROM crash_log`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text []byte
		var records []record
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &records); err != nil {
			return nil, err
		}
		for _, r := range records {
			log = append(log, row{r.ID, r.Key, r.N})
		}
	}
	return log, rows.Err()
}

// count adds the counts of the publishers and the sink to the report.
func (h *harness) count() {
	r := &h.report
	r.Transactions = len(h.ledger.transactions)
	for _, outcome := range h.ledger.transactions {
		switch *outcome {
		case rolledBack:
			r.RolledBack++
		case begun, unknown, prepared:
			r.Unknown++
		}
	}
	h.sink.mu.Lock()
	defer h.sink.mu.Unlock()
	r.Failures = h.sink.failures
	r.Prepared = h.ledger.prepared
	r.Violations = append(r.Violations, h.sink.changed...)
}

// end ends everything that begin started.
func (h *harness) end() (err error) {
	for _, p := range h.publishers {
		p.kill()
	}
	for _, f := range h.forwarders {
		f.kill()
	}
	if h.starter != nil {
		h.starter.stop()
	}
	for _, f := range h.forwarders {
		f.disconnect()
	}
	if h.sink != nil {
		err = errors.Join(err, h.sink.close())
	}
	if h.db != nil {
		err = errors.Join(err, h.db.Close())
	}
	if h.front != nil {
		_ = h.front.Close() // it is no longer needed
	}
	if h.server != nil {
		err = errors.Join(err, h.server.Stop())
	}
	if h.folder != "" {
		err = errors.Join(err, os.RemoveAll(h.folder))
	}
	return err
}
