// Package settle writes the outcome of a lane's deliveries, and brings parked deliveries back.
//
// A Checkpointer is the settle half of a leased lane: the window, the position, the lease. It
// has no lock: one goroutine takes the outcome from the dispatch half, writes it in a
// checkpoint, and hands over parked deliveries that are due or free to go. Only this goroutine
// uses the parked table, and always after a checkpoint, so what it reads there is never older
// than what it has written.
package settle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder/internal/dispatch"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/forwarder/internal/window"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// Config is the configuration of a checkpointer. Hooks, Observer, Revised and Ledger are
// optional.
type Config struct {
	Store store.Deliveries
	Lane  *dispatch.Lane
	Lease store.Lease
	// Leased is when the lease was requested.
	Leased time.Time
	TTL    time.Duration
	// Collect says how deliveries are collected.
	Collect settings.Collect
	// Halt means that dead deliveries hold back their key.
	Halt     bool
	Hooks    policy.Hooks
	Observer event.Observer
	// Revised signals that a person has changed the parked deliveries.
	Revised <-chan struct{}
	// Prompt means that a position that moved without any delivery is written within a second,
	// instead of with the next renewal of the lease.
	Prompt bool
	// Ledger is the lane's ledger if the sink has transactions, otherwise nil. Committed is
	// called after each round that was committed in it.
	Ledger    sinks.Ledger
	Committed func()
	Logger    *slog.Logger
}

// Checkpointer writes a lane's checkpoints. It is not safe for concurrent use.
type Checkpointer struct {
	Config
	window   *window.Window
	log      *slog.Logger
	failing  *pace.Trouble
	number   int64                 // of the last checkpoint
	renewed  time.Time             // when the last checkpoint that renewed the lease began
	took     time.Duration         // duration of the last checkpoint
	written  time.Time             // when a position was last written
	moved    bool                  // the position may have moved since
	silent   bool                  // the database did not answer; no delivery begins until something is written
	queue    []dispatch.Settlement // taken and not written
	taken    []dispatch.Settlement // the whole slice of queue
	reuse    []dispatch.Settlement // a slice that is no longer used
	hookSize int                   // most settlements of a checkpoint with hooks
	refused  int                   // number of deliveries in a row for which a hook has failed

	passed     bool          // Outcome.Passed, once it was true
	parking    uint64        // of the last Outcome
	room       dispatch.Room // of the last Outcome or Written
	ask        askedKeys     // keys whose next delivery must be read from the parked table
	many       int           // how many of them to query at once
	nextDue    time.Time     // when to query for due deliveries; zero: never
	comparison comparison
	closeAt    time.Time     // when to look for collections that are due; zero: never
	asking     *pace.Trouble // with reading the parked table
	askAt      time.Time     // not to be queried before

	round // with a ledger
}

// maxPause bounds the pause between two tries of a checkpoint: while it fails, nothing is
// delivered.
const maxPause = 500 * time.Millisecond

// promptAfter is how soon a position that moved without any delivery is written.
const promptAfter = time.Second

// New returns a checkpointer for a leased lane.
func New(c Config) *Checkpointer {
	return &Checkpointer{
		Config:     c,
		number:     c.Lease.Checkpoint,
		window:     window.New(c.Lease.Settled),
		log:        c.Logger,
		failing:    pace.NewTrouble(c.Logger, "settling", maxPause),
		asking:     pace.NewTrouble(c.Logger, "reading parked deliveries", 0),
		renewed:    c.Leased,
		written:    c.Leased,
		hookSize:   maxHooked,
		nextDue:    time.Now(),
		closeAt:    time.Now(),
		many:       firstAsked,
		comparison: comparison{ended: c.Leased},
	}
}

// The pause after a checkpoint, unless so much has happened that the next one should not wait. It
// keeps the share of the database's time that checkpoints take the same for slow and fast databases.
// It adds to what a crash repeats, but delays no delivery. What hooks do may be awaited, such as a
// notification that they publish, so with hooks it is shorter, as is the time for which settled rows
// wait for others.
var usualRest, restWithHooks = pace.Rest{Times: 4, Most: time.Second}, pace.Rest{Times: 1, Most: time.Second}

const lingerWithHooks = 5 * time.Millisecond

// rest returns the pause after a checkpoint that took the given time.
func (c *Checkpointer) rest(took time.Duration) time.Duration {
	switch {
	case len(c.queue) > 0: // hooks limit what one checkpoint writes
		return 0
	case c.Hooks.Any():
		return restWithHooks.After(took)
	}
	return usualRest.After(took)
}

// Each checkpoint looks at all versions of its cursor that a held snapshot keeps, and adds one. So settled
// rows of the log wait for it for perOldVersion for each of them, and mostLinger at most: from 10,000
// versions on, a lane adds one in a second.
const (
	perOldVersion = 100 * time.Microsecond
	mostLinger    = time.Second
)

// linger sets how long settled rows of the log wait for others.
func (c *Checkpointer) linger() {
	least := dispatch.Linger
	if c.Hooks.Any() {
		least = lingerWithHooks
	}
	c.Lane.Linger(max(least, min(time.Duration(c.Store.OldVersions())*perOldVersion, mostLinger)))
}

// Run settles until stop is done, then writes the last checkpoint and returns nil. It returns an
// error when the lease is lost or db is done. db bounds all use of the database.
func (c *Checkpointer) Run(stop, db context.Context) error {
	c.linger()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for stop.Err() == nil {
		took, err := c.checkpoint(db)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := c.bringBack(db); err != nil {
			return err
		}
		if c.silent {
			continue
		}
		if c.Ledger != nil { // consumers see nothing of a round before it is committed
			c.await(stop, timer)
			continue
		}
		if pause := min(c.rest(took+time.Since(began)), time.Until(c.renewBy())); pause > 0 {
			timer.Reset(pause)
			select {
			case <-stop.Done():
			case <-c.Lane.Plenty():
			case <-timer.C:
			}
		}
		c.await(stop, timer)
	}
	return c.finish(db)
}

// Unwritten returns what was settled and not written, after Run has returned.
func (c *Checkpointer) Unwritten() []dispatch.Settlement { return c.queue }

// Renew renews the lease and writes nothing else.
func (c *Checkpointer) Renew(ctx context.Context) error {
	return c.writeOnce(ctx, c.renewal(), false)
}

// renewal is a checkpoint that renews the lease and writes nothing else.
func (c *Checkpointer) renewal() store.Checkpoint {
	return store.Checkpoint{Lease: c.Lease, TTL: c.TTL}
}

// await waits until there is something to do.
func (c *Checkpointer) await(stop context.Context, timer *time.Timer) {
	next := c.untilNext()
	if next <= 0 { // avoids a timer of 0: Go's race detector can crash on it within testing/synctest
		select {
		case <-c.Revised:
			c.comparison.begin()
		default:
		}
		return
	}
	timer.Reset(next)
	select {
	case <-stop.Done():
	case <-c.Lane.Dirty():
	case <-c.Revised:
		c.comparison.begin()
	case <-timer.C:
	}
}

// finish writes everything that is left.
func (c *Checkpointer) finish(db context.Context) error {
	for {
		if c.Ledger != nil {
			if err := c.endRound(db); err != nil {
				return err
			}
		}
		if err := c.take(); err != nil {
			return err
		}
		if len(c.queue) == 0 && !c.moved {
			return nil
		}
		if err := c.write(db); err != nil {
			return fmt.Errorf("last checkpoint: %w", err)
		}
	}
}

// renewBy is when the lease should be renewed.
func (c *Checkpointer) renewBy() time.Time { return c.renewed.Add(c.TTL / 3) }

// untilNext returns how long to wait if nothing is settled meanwhile.
func (c *Checkpointer) untilNext() time.Duration {
	ask := c.comparison.next()
	if !c.nextDue.IsZero() && c.nextDue.Before(ask) && c.room.Due > 0 {
		ask = c.nextDue
	}
	if !c.closeAt.IsZero() && c.closeAt.Before(ask) && c.room.Due > 0 {
		ask = c.closeAt
	}
	if c.asks() {
		ask = time.Now()
	}
	if ask.Before(c.askAt) {
		ask = c.askAt
	}
	next := c.renewBy() // it does not wait for askAt
	if c.Prompt {
		look := time.Now().Add(promptAfter) // a page without rows does not signal dirty
		if c.moved {
			look = c.written.Add(promptAfter)
		}
		if look.Before(next) {
			next = look
		}
	}
	if ask.Before(next) {
		next = ask
	}
	if len(c.queue) > 0 {
		return 0
	}
	return max(0, time.Until(next))
}

// checkpoint takes the outcome and writes it, if there is any or the lease must be renewed, and
// returns how long that took. It returns only when the checkpoint is written, the lease is
// lost, or ctx is done.
func (c *Checkpointer) checkpoint(ctx context.Context) (took time.Duration, err error) {
	if c.Ledger != nil {
		if err := c.endRound(ctx); err != nil {
			return 0, err
		}
	}
	if err := c.take(); err != nil {
		return 0, err
	}
	due := c.renewBy()
	if c.Prompt && c.moved && c.written.Add(promptAfter).Before(due) {
		due = c.written.Add(promptAfter)
	}
	if len(c.queue) == 0 && !c.asks() && !c.silent && time.Now().Before(due) {
		if c.Ledger != nil {
			c.Lane.Continue()
		}
		return 0, nil
	}
	err = c.write(ctx)
	return c.took, err
}

// take takes the outcome from the dispatch half.
func (c *Checkpointer) take() error {
	out := c.Lane.Take(c.reuse)
	c.reuse = nil
	for _, r := range out.Read {
		if r.Restart != nil {
			c.window.Restart(r.Restart)
		}
		c.window.Add(r.Page)
		c.moved = true
	}
	c.passed = c.passed || out.Passed
	if len(c.queue) == 0 {
		c.queue, c.taken = out.Settled, out.Settled
	} else {
		c.queue = append(c.queue, out.Settled...)
	}
	c.parking, c.room, c.owed = out.Parking, out.Room, out.Owed
	return out.Over
}

// Lost reports whether the lane went, or may have gone, to another forwarder.
func Lost(err error) bool {
	return errors.Is(err, store.ErrLeaseLost) || errors.Is(err, store.ErrServerChanged) || errors.Is(err, store.ErrReplaced) || errors.Is(err, dispatch.ErrLeaseExpired)
}
