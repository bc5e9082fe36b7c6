package crashtest

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// publisherVariable contains the settings of a publisher's process.
const publisherVariable = "WAYBILL_CRASH_PUBLISHER"

// background is for work that ends only with the run or the process.
var background = context.Background()

// canPublish reports whether this program called RunPublisher.
var canPublish atomic.Bool

// createKeys creates the business table. A transaction with a key locks the key's row, so that n
// counts the notifications of the key in the order of commits.
const createKeys = `CREATE TABLE crash_keys (name varchar(100) PRIMARY KEY, n bigint NOT NULL)`

// These are fractions of the publishers' transactions, except as noted.
const (
	connections   = 4 // of one publisher
	rollbackShare = 0.15
	keylessShare  = 0.2
	twoKeysShare  = 0.2
	earlyShare    = 0.3  // take their transaction id or an offset before they wait for a lock
	longShare     = 0.01 // stay open for long, with a separate key
	longest       = 4 * time.Second
	mostItems     = 3 // of one key in one transaction
	commonKeys    = 8 // of all publishers; with fewer keys they would wait for each other more often
)

// payload is the payload of a notification.
type payload struct {
	Key string `json:"key"`
	N   int64  `json:"n"` // number among the notifications of the key; 0 without a key
}

// settings are the settings of a publisher's process.
type settings struct {
	DSN   string        `json:"dsn"`
	Name  string        `json:"name"`
	Pause time.Duration `json:"pause"` // about how long each connection waits between transactions
	Seed  uint64        `json:"seed"`
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
		failed  error
	)
	for number := range connections {
		w := &writer{
			settings: o, dialect: d, db: db, number: number,
			random: rand.New(rand.NewPCG(o.Seed, uint64(number))),
			tell: func(t transaction) {
				line, err := json.Marshal(t)
				telling.Lock()
				defer telling.Unlock()
				if err == nil {
					_, err = out.Write(append(line, '\n'))
				}
				if err != nil {
					failed = err
					stop()
				}
			},
		}
		writers.Go(func() { w.run(ctx) })
	}
	writers.Wait()
	return failed
}

// writer is one connection of a publisher.
type writer struct {
	settings
	dialect dialect
	db      *sql.DB
	number  int
	random  *rand.Rand
	tell    func(transaction)
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
		for _, key := range w.keys(long) {
			for range 1 + w.random.IntN(mostItems) {
				t.Items = append(t.Items, item{uuid.NewString(), key})
			}
		}
		w.tell(t)
		w.tell(transaction{ID: t.ID, Outcome: w.write(t.Items, long)})
	}
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
	keys := []string{"key-" + strconv.Itoa(w.random.IntN(commonKeys))}
	if chance > 1-twoKeysShare {
		keys = append(keys, "key-"+strconv.Itoa(w.random.IntN(commonKeys)))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// write makes one business transaction. A stop does not interrupt it.
func (w *writer) write(items []item, long bool) outcome {
	tx, err := w.db.BeginTx(background, nil)
	if err != nil {
		return rolledBack
	}
	defer tx.Rollback()
	if w.random.Float64() < earlyShare {
		for _, statement := range w.dialect.early {
			if _, err := tx.ExecContext(background, statement); err != nil {
				return rolledBack
			}
		}
	}
	w.linger(5 * time.Millisecond)
	var n int64
	for i, item := range items {
		switch {
		case item.Key == "":
			n = 0
		case i > 0 && item.Key == items[i-1].Key:
			n++
		default:
			if n, err = w.lockKey(tx, item.Key, items); err != nil {
				return rolledBack
			}
		}
		body, err := json.Marshal(payload{item.Key, n})
		if err != nil {
			return rolledBack
		}
		if _, err := tx.ExecContext(background, w.dialect.insert, item.ID, item.Key, string(body)); err != nil {
			return rolledBack
		}
	}
	if long {
		w.linger(longest)
	} else {
		w.linger(10 * time.Millisecond)
	}
	if w.random.Float64() < rollbackShare {
		return rolledBack
	}
	if err := tx.Commit(); err != nil {
		return unknown
	}
	return committed
}

// lockKey adds the number of items to the row of a key and returns the number of the first of them.
// Other transactions with the key wait for it.
func (w *writer) lockKey(tx *sql.Tx, key string, items []item) (first int64, err error) {
	var own int64
	for _, item := range items {
		if item.Key == key {
			own++
		}
	}
	last, err := w.dialect.count(tx, key, own)
	return last - own + 1, err
}

// linger simulates the work of a transaction.
func (w *writer) linger(most time.Duration) {
	time.Sleep(time.Duration(w.random.Int64N(int64(most))))
}

// publisher is a publisher's process as the harness sees it.
type publisher struct {
	*process
	number int
	input  io.Closer
	began  chan struct{} // capacity 1: a transaction began
}

func (h *harness) startPublisher(number int) (*publisher, error) {
	h.started++
	o := settings{
		DSN: h.dsn, Name: fmt.Sprintf("p%d.%d", number, h.started),
		Pause: time.Second * time.Duration(publishers*connections) / time.Duration(h.config.Rate),
		Seed:  h.config.Seed + uint64(h.started)<<32,
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
	p := &publisher{number: number, began: make(chan struct{}, 1)}
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
	h.reading.Add(1)
	p.process = watch(command, "publisher "+o.Name, func() { h.listen(p, output) }, h.fail)
	return p, nil
}

// listen records what a publisher writes until it has ended.
func (h *harness) listen(p *publisher, output io.Reader) {
	defer h.reading.Done()
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

// stopPublishers stops the publishers after the transactions in progress.
func (h *harness) stopPublishers(ctx context.Context) error {
	for _, p := range h.publishers {
		p.wanted.Store(true)
		_ = p.input.Close() // the process may have ended; await reports that
	}
	for _, p := range h.publishers {
		if err := p.await("the end of its input"); err != nil {
			return err
		}
	}
	return ctx.Err()
}
