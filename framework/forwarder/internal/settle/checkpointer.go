// Package settle writes what became of a lane's deliveries, and brings back what was
// parked.
//
// A Checkpointer is the settle half of a leased lane: the window, the position, the
// lease. It has no lock: one goroutine takes what the dispatch half has done, writes it
// in a checkpoint, and hands over what falls due and what is free to go. Since it alone
// uses the parked table, always behind a checkpoint, what it reads there is never older
// than what it has written.
//
// The files in the order in which to read them: checkpointer.go, write.go, parked.go,
// hooks.go, rounds.go.
package settle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/dispatch"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/forwarder/internal/window"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// Config is what a checkpointer works with. Hooks, Observer, Revised and Ledger may be zero.
type Config struct {
	Store store.Deliveries
	Lane  *dispatch.Lane
	Lease store.Lease
	// Leased is when the lease was asked for.
	Leased time.Time
	TTL    time.Duration
	// Halt says that dead deliveries hold their key back.
	Halt     bool
	Hooks    policy.Hooks
	Observer policy.Observer
	// Revised signals that a person has changed what is parked.
	Revised <-chan struct{}
	// Prompt says that a position that moved without any delivery is written within
	// a second, and not only with the next renewal of the lease.
	Prompt bool
	// Ledger is the lane's, where the sink has transactions; nil: it has none. Committed is called
	// with each round that is committed in it.
	Ledger    sinks.Ledger
	Committed func()
	Logger    *slog.Logger
}

// Checkpointer writes a lane's checkpoints. It is for one goroutine.
type Checkpointer struct {
	Config
	window   *window.Window
	log      *slog.Logger
	failing  *pace.Trouble
	number   int64                 // of the last checkpoint
	renewed  time.Time             // when the checkpoint began that renewed the lease last
	took     time.Duration         // the last one
	written  time.Time             // when a position was written last
	moved    bool                  // the position may have moved since
	silent   bool                  // the database did not answer, and no delivery begins until something is written
	queue    []dispatch.Settlement // taken and not written
	taken    []dispatch.Settlement // the slice that queue is the end of
	reuse    []dispatch.Settlement // a slice that is not used any more
	hookSize int                   // how many settlements a checkpoint with hooks carries
	refused  int                   // how many deliveries in a row a hook has failed for

	passed  bool
	parking uint64
	room    dispatch.Room
	ask     askedKeys // keys for whose next delivery the parked table is to be asked
	many    int       // how many of them are asked for at once
	nextDue time.Time // when the parked table is asked for what is due; zero: never
	scan    scan
	asking  *pace.Trouble // with reading the parked table
	askAt   time.Time     // not before that

	round // where there is a ledger
}

// maxPause bounds the pause between two tries of a checkpoint: while one fails, nothing
// is delivered.
const maxPause = 500 * time.Millisecond

// promptAfter is how soon a position that moved without any delivery is written.
const promptAfter = time.Second

// New returns a checkpointer for a leased lane.
func New(c Config) *Checkpointer {
	return &Checkpointer{
		Config:   c,
		number:   c.Lease.Checkpoint,
		window:   window.New(c.Lease.Settled),
		log:      c.Logger,
		failing:  pace.NewTrouble(c.Logger, "settling", maxPause),
		asking:   pace.NewTrouble(c.Logger, "reading parked deliveries", 0),
		renewed:  c.Leased,
		written:  c.Leased,
		hookSize: maxHooked,
		nextDue:  time.Now(),
		many:     firstAsked,
		scan:     scan{ended: c.Leased},
	}
}

// rest is the pause after a checkpoint, unless so much has happened that the next one
// should not wait. With it, checkpoints take the same share of a slow database's time
// as of a fast one's. It adds to what a crash repeats, and delays nothing that is
// waited for.
var rest = pace.Rest{Times: 4, Most: time.Second}

// Run settles until stop is done, then writes the last checkpoint and returns nil; or
// until the lease is lost, or db is done. db bounds all use of the database.
func (c *Checkpointer) Run(stop, db context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for stop.Err() == nil {
		took, err := c.checkpoint(db)
		if err != nil {
			return err
		}
		began := time.Now()
		c.bringBack(db)
		if c.silent {
			continue
		}
		if c.Ledger != nil { // nothing of it is seen before it is committed
			c.await(stop, timer)
			continue
		}
		if pause := rest.After(took + time.Since(began)); pause > 0 {
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

// await waits for something to do.
func (c *Checkpointer) await(stop context.Context, timer *time.Timer) {
	next := c.untilNext()
	if next <= 0 { // not a timer of 0, with which Go's race detector can crash within testing/synctest
		select {
		case <-c.Revised:
			c.scan.begin()
		default:
		}
		return
	}
	timer.Reset(next)
	select {
	case <-stop.Done():
	case <-c.Lane.Dirty():
	case <-c.Revised:
		c.scan.begin()
	case <-timer.C:
	}
}

// finish writes all that is left.
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

// untilNext is how long to wait if nothing is settled.
func (c *Checkpointer) untilNext() time.Duration {
	ask := c.scan.next()
	if !c.nextDue.IsZero() && c.nextDue.Before(ask) && c.room.Due > 0 {
		ask = c.nextDue
	}
	if c.asks() {
		ask = time.Now()
	}
	if ask.Before(c.askAt) {
		ask = c.askAt
	}
	next := c.renewed.Add(c.TTL / 3) // the lease does not wait for the parked table
	if c.Prompt {
		look := time.Now().Add(promptAfter) // a page without rows does not make the lane dirty
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

// checkpoint takes what happened and writes it, if there is something or the lease is to
// be renewed, and returns how long that took. It returns only when it is written, the
// lease is lost or ctx is done.
func (c *Checkpointer) checkpoint(ctx context.Context) (took time.Duration, err error) {
	if c.Ledger != nil {
		if err := c.endRound(ctx); err != nil {
			return 0, err
		}
	}
	if err := c.take(); err != nil {
		return 0, err
	}
	due := c.renewed.Add(c.TTL / 3)
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

// take takes over what the dispatch half has done.
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

// Unwritten is what was settled and is not written, once Run has returned.
func (c *Checkpointer) Unwritten() []dispatch.Settlement { return c.queue }

// Renew renews the lease and writes nothing else.
func (c *Checkpointer) Renew(ctx context.Context) error {
	return c.writeOnce(ctx, store.Checkpoint{Lease: c.Lease, TTL: c.TTL})
}

// Lost says whether a lane went, or may have gone, to another forwarder.
func Lost(err error) bool {
	return errors.Is(err, store.ErrLeaseLost) || errors.Is(err, store.ErrServerChanged) || errors.Is(err, dispatch.ErrLeaseExpired)
}
