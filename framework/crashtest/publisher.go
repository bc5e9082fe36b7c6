package crashtest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-go/waybill/framework/internal/pace"
)

// publisherVariable contains the settings of a publisher's process.
const publisherVariable = "WAYBILL_CRASH_PUBLISHER"

// background is for work that ends only with the run or the process.
var background = context.Background()

// canPublish reports whether this program called RunPublisher.
var canPublish atomic.Bool

// businessTables create the tables of the publishers. A transaction with a key locks the row of the key's digest, so that n
// counts the notifications of the key in the order of commits. crash_log has what each committed transaction published, since
// retention soon removes notifications that occurred long ago.
var businessTables = []string{
	`CREATE TABLE crash_keys (name varchar(100) PRIMARY KEY, n bigint NOT NULL)`,
	`CREATE TABLE crash_log (name varchar(100) PRIMARY KEY, records text NOT NULL)`,
}

// These are fractions of the publishers' transactions, except as noted.
const (
	connections    = 4 // of one publisher
	rollbackShare  = 0.15
	keylessShare   = 0.2
	twoKeysShare   = 0.2
	earlyShare     = 0.3  // take their transaction id or an offset before they wait for a lock
	longShare      = 0.02 // stay open for long, with a separate key
	longest        = 4 * time.Second
	preparedShare  = 0.1 // have two phases
	mostItems      = 3   // of one key in one transaction
	laterShare     = 0.1 // of the notifications: due a moment later, without an order
	unnamedShare   = 0.1 // of the notifications: the database chooses the id
	savepointShare = 0.2 // of the notifications: after a savepoint
	largestShare   = 0.002
)

// separate is what the ids of transactions end with whose keys no other transaction waits for.
const separate = "/long"

// settings are the settings of a publisher's process.
type settings struct {
	DSN   string        `json:"dsn"`
	Slot  int           `json:"slot"` // which publisher it replaces, if it was killed
	Name  string        `json:"name"`
	Pause time.Duration `json:"pause"` // about how long each connection waits between transactions
	Seed  uint64        `json:"seed"`

	RecordTimes bool `json:"record_times"`
}

// RunPublisher does nothing unless Run started the process. If it did, RunPublisher publishes until
// its input ends, and then ends the process. A program that calls Run must call it first, a test in
// TestMain.
func RunPublisher() {
	canPublish.Store(true)
	text, ordered := os.LookupEnv(publisherVariable)
	if !ordered {
		return
	}
	if err := publishAll(text, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "crashtest: publisher:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// publishAll publishes until in ends, and writes a line about each transaction to out.
func publishAll(text string, in io.Reader, out io.Writer) error {
	var o settings
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	d := dialectOf(o.DSN)
	db, err := d.open(o.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, stop := context.WithCancel(background)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop()
	}()
	var (
		writers sync.WaitGroup
		telling sync.Mutex
		failed  atomic.Pointer[error]
		active  = running{ids: make(map[string]bool)}
	)
	fail := func(err error) {
		if err != nil && failed.CompareAndSwap(nil, &err) {
			stop()
		}
	}
	for number := range connections {
		w := &writer{
			settings: o, dialect: d, db: db, number: number, active: &active,
			random: rand.New(rand.NewPCG(o.Seed, uint64(number))),
			fail:   fail,
			tell: func(t transaction) {
				line, err := json.Marshal(t)
				telling.Lock()
				if err == nil {
					_, err = out.Write(append(line, '\n'))
				}
				telling.Unlock()
				fail(err)
			},
		}
		writers.Go(func() { w.run(ctx) })
	}
	done := make(chan struct{})
	go func() {
		writers.Wait()
		close(done)
	}()
	for {
		select {
		case <-done:
			if err := failed.Load(); err != nil {
				return *err
			}
			return nil
		case <-time.After(recoverEvery):
			// An error is one of the database, which may be down.
			_ = d.recover(background, db, func(id string) bool { return o.owns(id) && !active.has(id) })
		}
	}
}

// writer is one connection of a publisher.
type writer struct {
	settings
	dialect dialect
	db      *sql.DB
	number  int
	random  *rand.Rand
	active  *running
	tell    func(transaction)
	fail    func(error) // ends all writers
}

// entry is a row that a transaction inserts.
type entry struct {
	record
	later     bool // due a moment later, so it has no order
	cancelled bool

	columns []string
	values  []any
}

func (w *writer) run(ctx context.Context) {
	for count := 0; ; count++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(w.random.Int64N(int64(2*w.Pause) + 1))):
		}
		t := transaction{ID: fmt.Sprintf("%s/%d/%d", w.Name, w.number, count), Outcome: begun}
		long := w.random.Float64() < longShare
		if long {
			t.ID += separate
		}
		entries := w.entries(w.keys(long))
		for _, e := range entries {
			if e.ID != "" {
				t.Items = append(t.Items, e.item)
			}
		}
		w.tell(t)
		w.active.set(t.ID, true)
		t = transaction{ID: t.ID, Outcome: w.write(t.ID, entries, long)}
		w.active.set(t.ID, false)
		w.tell(t)
	}
}

// entries returns the rows of a transaction. Their ids differ little.
func (w *writer) entries(keys []string) (entries []entry) {
	id, ending := uuid.NewString(), w.random.IntN(len(oddTexts))
	for _, key := range keys {
		for range 1 + w.random.IntN(mostItems) {
			e := entry{record: record{item: item{w.name(id, ending+len(entries)), key}}, later: w.random.Float64() < laterShare}
			if w.random.Float64() < unnamedShare {
				e.ID = ""
			}
			entries = append(entries, e)
		}
	}
	return entries
}

// name returns an id of up to 255 bytes.
func (w *writer) name(id string, ending int) string {
	id += oddTexts[ending%len(oddTexts)]
	if w.random.IntN(4) == 0 {
		id += strings.Repeat("i", 255-len(id))
	}
	return id
}

// keys chooses the keys of a transaction, in the order in which they must be locked.
func (w *writer) keys(long bool) []string {
	if long {
		return []string{fmt.Sprintf("long-%s-%d", w.Name, w.number)} // no other transaction waits for this key
	}
	chance := w.random.Float64()
	if chance < keylessShare {
		return []string{""}
	}
	keys := []string{"key" + pick(w.random, oddKeys)}
	if chance > 1-twoKeysShare {
		keys = append(keys, "key"+pick(w.random, oddKeys))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// write makes one business transaction. A stop does not interrupt it.
func (w *writer) write(id string, entries []entry, long bool) outcome {
	c, err := w.db.Conn(background)
	if err != nil {
		return rolledBack
	}
	defer func() { _ = c.Close() }()
	p, two := w.dialect.onePhase, w.random.Float64() < preparedShare
	if two {
		p = w.dialect.twoPhases
	}
	run := func(statements []string) error { return execute(c, id, statements) }
	if err = run(p.begin); err == nil {
		err = w.fill(c, id, entries)
	}
	if err != nil {
		discard(c)
		if refused(err) {
			w.fail(fmt.Errorf("the log refuses a row: %w", err))
		}
		return rolledBack
	}
	w.linger(10 * time.Millisecond)
	if long {
		w.linger(longest)
	}
	if two {
		if err := run(p.prepare); err != nil {
			discard(c)
			return unknown
		}
		w.tell(transaction{ID: id, Outcome: prepared})
		w.linger(200 * time.Millisecond)
	}
	end, result := p.commit, committed
	if w.random.Float64() < rollbackShare {
		end, result = p.rollback, rolledBack
	}
	if err := run(end); err != nil {
		discard(c)
		if two || result == committed {
			result = unknown
		}
	}
	return result
}

// fill inserts the rows of a transaction.
func (w *writer) fill(c *sql.Conn, id string, entries []entry) error {
	if w.random.Float64() < earlyShare {
		if err := execute(c, "", w.dialect.early); err != nil {
			return err
		}
	}
	w.linger(5 * time.Millisecond)
	n := make(map[string]int64)
	var records []record
	for i := range entries {
		e := &entries[i]
		if e.Key != "" && !e.later {
			if n[e.Key] == 0 {
				first, err := w.lockKey(c, e.Key, entries)
				if err != nil {
					return err
				}
				n[e.Key] = first
			}
			e.N = n[e.Key]
			n[e.Key]++
		}
		if err := w.insert(c, e); err != nil {
			return err
		}
		records = append(records, e.record)
	}
	text, err := json.Marshal(records)
	if err == nil {
		_, err = c.ExecContext(background, w.dialect.note, id, string(text))
	}
	return err
}

// insert inserts a row, perhaps after a savepoint to which others were rolled back, or one that is released. Rows that are
// rolled back or cancelled would be phantoms.
func (w *writer) insert(c *sql.Conn, e *entry) error {
	if w.random.Float64() >= savepointShare {
		return w.insertRow(c, e)
	}
	gone := &entry{record: record{item: item{uuid.NewString(), e.Key}}, cancelled: w.random.IntN(2) == 0}
	if err := execute(c, "", []string{`SAVEPOINT odd`}); err != nil {
		return err
	}
	err := w.insertRow(c, gone)
	switch {
	case err != nil:
	case gone.cancelled:
		err = execute(c, gone.ID, []string{w.dialect.cancel})
	default:
		err = execute(c, "", []string{`ROLLBACK TO SAVEPOINT odd`})
	}
	if err == nil {
		err = w.insertRow(c, e)
	}
	if err == nil && w.random.IntN(2) == 0 {
		err = execute(c, "", []string{`RELEASE SAVEPOINT odd`})
	}
	return err
}

func (w *writer) insertRow(c *sql.Conn, e *entry) error {
	w.shape(e)
	_, err := c.ExecContext(background, w.dialect.insert(e.columns), e.values...)
	if err == nil && e.ID == "" {
		err = c.QueryRowContext(background, w.dialect.lastID).Scan(&e.ID)
	}
	return err
}

// execute executes statements with the id of a transaction in place of $id.
func execute(c *sql.Conn, id string, statements []string) error {
	for _, statement := range statements {
		if _, err := c.ExecContext(background, strings.ReplaceAll(statement, "$id", "'"+id+"'")); err != nil {
			return err
		}
	}
	return nil
}

// discard closes a connection, so that the server rolls back what is not prepared.
func discard(c *sql.Conn) { _ = c.Raw(func(any) error { return driver.ErrBadConn }) }

// lockKey adds the number of ordered rows to the row of a key and returns the number of the first of them. Other
// transactions with the key wait for it.
func (w *writer) lockKey(c *sql.Conn, key string, entries []entry) (first int64, err error) {
	var own int64
	for _, e := range entries {
		if e.Key == key && !e.later {
			own++
		}
	}
	last, err := w.dialect.count(c, fmt.Sprintf("%x", sha256.Sum256([]byte(key))), own)
	return last - own + 1, err
}

// linger simulates the work of a transaction.
func (w *writer) linger(most time.Duration) {
	time.Sleep(time.Duration(w.random.Int64N(int64(most))))
}

// running are the ids of the transactions that writers work on.
type running struct {
	mu  sync.Mutex
	ids map[string]bool
}

func (r *running) set(id string, works bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids[id] = works
}

func (r *running) has(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ids[id]
}

// recoverEvery is the pause between two looks for prepared transactions that a publisher has left.
const recoverEvery = 200 * time.Millisecond

// keepPrepared is after how many further starts of publishers another one ends what was killed with a separate key. Until
// then the server can remove no old version of a row.
const keepPrepared = 6

// owns reports whether a transaction belongs to this publisher, or to one that it replaces.
func (o settings) owns(id string) bool {
	var slot, start, own int
	if n, _ := fmt.Sscanf(id, "p%d.%d/", &slot, &start); n < 2 || slot != o.Slot {
		return false
	}
	_, _ = fmt.Sscanf(o.Name, "p%d.%d", &slot, &own)
	return start == own || start+keepPrepared <= own || !strings.HasSuffix(id, separate)
}

// recover ends prepared transactions: about half of them are committed.
func (d dialect) recover(ctx context.Context, db *sql.DB, mine func(id string) bool) error {
	ids, err := d.prepared(ctx, db)
	if err != nil {
		return err
	}
	c, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	for _, id := range ids {
		if mine(id) {
			end := d.twoPhases.commit
			if crc32.ChecksumIEEE([]byte(id))%2 == 0 {
				end = d.twoPhases.rollback
			}
			err = errors.Join(err, execute(c, id, end)) // another session may still have it
		}
	}
	return err
}

// prepared returns the ids of the prepared transactions.
func (d dialect) prepared(ctx context.Context, db *sql.DB) (ids []string, err error) {
	rows, err := db.QueryContext(ctx, d.listPrepared)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var format, length, qualifier int
		var id string
		if err := rows.Scan(&format, &length, &qualifier, &id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// publisher is a publisher's process as the harness sees it.
type publisher struct {
	*process
	name   string
	number int
	input  io.Closer
	began  chan struct{} // capacity 1: a transaction began
}

func (h *harness) startPublisher(number int) (*publisher, error) {
	h.started++
	o := settings{
		DSN: h.dsn, Slot: number, Name: fmt.Sprintf("p%d.%d", number, h.started),
		Pause:       time.Second * time.Duration(publishers*connections) / time.Duration(h.config.Rate),
		Seed:        h.config.Seed + uint64(h.started)<<32,
		RecordTimes: h.config.RecordTimes,
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.Command(program)
	command.Env = append(os.Environ(), publisherVariable+"="+string(text))
	command.Stderr = os.Stderr
	p := &publisher{name: o.Name, number: number, began: make(chan struct{}, 1)}
	if p.input, err = command.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := h.starter.start(command); err != nil {
		return nil, err
	}
	p.process = watch(command, "publisher "+o.Name, func() { h.listen(p, output) }, h.fail)
	return p, nil
}

// listen records what a publisher writes until it has ended.
func (h *harness) listen(p *publisher, output io.Reader) {
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		var t transaction
		if err := json.Unmarshal(lines.Bytes(), &t); err != nil {
			h.fail(fmt.Errorf("%w: publisher %d says %q: %w", ErrEnded, p.number, lines.Text(), err))
			continue
		}
		h.ledger.note(t)
		if t.Outcome == begun {
			select {
			case p.began <- struct{}{}:
			default:
			}
		}
	}
}

// stopPublishers stops the publishers after the transactions in progress, and ends what is prepared.
func (h *harness) stopPublishers(ctx context.Context) error {
	for _, p := range h.publishers {
		p.wanted.Store(true)
		_ = p.input.Close() // the process may have ended; await reports that
	}
	recovering, stop := context.WithCancel(ctx)
	var recovery sync.WaitGroup
	recovery.Go(func() { // otherwise a publisher may wait for a lock that no one else ends
		for pace.Sleep(recovering, recoverEvery) {
			_ = h.dialect.recover(recovering, h.db, h.isOrphan) // the next look repeats it
		}
	})
	defer recovery.Wait()
	defer stop()
	for _, p := range h.publishers {
		if err := p.await("the end of its input"); err != nil {
			return err
		}
	}
	return retry(ctx, func() error {
		err := h.dialect.recover(ctx, h.db, func(string) bool { return true })
		left, listErr := h.dialect.prepared(ctx, h.db)
		if len(left) > 0 {
			err = errors.Join(err, fmt.Errorf("transactions stay prepared: %q", left))
			return err
		}
		return listErr
	})
}

// isOrphan reports whether the publisher of a transaction has ended.
func (h *harness) isOrphan(id string) bool {
	return !slices.ContainsFunc(h.publishers, func(p *publisher) bool {
		select {
		case <-p.ended:
			return false
		default:
			return strings.HasPrefix(id, p.name+"/")
		}
	})
}
