// Package presence shows the other forwarders that this process is alive, and notices which of them are not.
//
// A process holds a lock in a session of the database (store.Presence), and its row in the membership names
// it. When the process dies, its kernel closes the connection, the server ends the session, and the lock is
// free for good. Then the others evict the process: they need not wait until its leases have run out.
//
// A session may also end while its process lives. So a process promises that it begins no delivery unless the
// session has answered what it was asked within Trust, and the others wait for longer than that after they
// have seen that the lock is free (Doubt). A process that loses its session withdraws it from its row, which
// takes one statement on another connection. From then on no one evicts it, and its leases alone decide.
package presence

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/store"
)

const (
	// Trust is how long an answer of the session counts, from when it was asked.
	Trust = 800 * time.Millisecond
	// beat is the pause between two questions.
	beat = Trust / 4
	// Doubt is how long a lock must have been free before its forwarder is evicted: Trust, and a quarter
	// more since clocks run differently.
	Doubt = Trust + Trust/4
	// again is how long a process goes without a presence, at least, after it has lost one.
	again = time.Second
	// steady is how long a session lasts that has no trouble any more.
	steady = 30 * time.Second
)

var errLate = errors.New("the session did not answer in time")

// Config is the configuration of a Keeper.
type Config struct {
	Store store.Presences
	Owner string
	// Lease bounds statements: a later answer is useless.
	Lease time.Duration
	// Freed is called when the lanes of another forwarder are free.
	Freed  func()
	Logger *slog.Logger
}

// Keeper keeps the presence of a forwarder in one database. One goroutine runs it.
type Keeper struct {
	Config
	Gate
	trouble *pace.Trouble
	freed   map[store.Gone]time.Time // when the lock was first seen free
	started sync.WaitGroup           // goroutines that use the session
	evicts  atomic.Bool              // one of them evicts another forwarder
}

// New returns a keeper. It starts nothing.
func New(c Config) *Keeper {
	return &Keeper{Config: c, trouble: pace.NewTrouble(c.Logger, "showing that this process is alive", 0), freed: make(map[store.Gone]time.Time)}
}

// Run keeps a presence until ctx is done, or returns if there can be none here. It never keeps the forwarder
// from delivering for longer than one statement takes.
func (k *Keeper) Run(ctx context.Context) {
	for {
		err := k.attend(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, store.ErrNoPresence):
			k.Logger.Info("if this process is killed, others wait for its leases", "reason", err)
			return
		}
		if !pace.Sleep(ctx, max(again, k.trouble.Expected(err))) {
			return
		}
	}
}

// attend holds one session until it is lost or late. It withdraws before it closes the session, since a
// session that is only late still holds the lock.
func (k *Keeper) attend(ctx context.Context) error {
	session, cancel := context.WithCancel(ctx)
	defer cancel()
	p, err := k.Store.OpenPresence(session, k.Owner)
	if err != nil {
		return err
	}
	defer func() {
		cancel()
		k.started.Wait()
		_ = p.Close() // it may be broken
	}()
	promised, err := k.hold(session, p)
	if promised && ctx.Err() == nil {
		k.withdraw(ctx, p)
	}
	return err
}

// answer is what the session answered to a question.
type answer struct {
	asked time.Time
	gone  []store.Gone
	err   error
}

// ask asks the session until it fails or ctx is done.
func ask(ctx context.Context, p store.Presence, answers chan<- answer) {
	for {
		a := answer{asked: time.Now()}
		a.gone, a.err = p.Beat(ctx)
		select {
		case <-ctx.Done():
			return
		case answers <- a:
		}
		if a.err != nil || !pace.Sleep(ctx, beat-time.Since(a.asked)) {
			return
		}
	}
}

// hold declares the presence and prolongs the promise with each answer. It returns whether the row may name
// the session.
func (k *Keeper) hold(ctx context.Context, p store.Presence) (promised bool, err error) {
	answers, opened := make(chan answer), time.Now()
	k.started.Go(func() { ask(ctx, p, answers) })
	late := time.NewTimer(Trust)
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return promised, ctx.Err()
		case <-late.C:
			return promised, errLate
		case a := <-answers:
			until := a.asked.Add(Trust)
			switch {
			case a.err != nil:
				return promised, a.err
			case expired(time.Now(), until):
				return promised, errLate
			}
			late.Reset(time.Until(until))
			k.suspect(ctx, p, a.gone)
			switch {
			case promised:
				k.Promise(until)
				if time.Since(opened) > steady { // otherwise an overloaded machine would log each loss
					k.trouble.Over()
				}
			case time.Since(a.asked) < Trust/2: // a slower one would be late now and then
				if promised, err = k.declare(ctx, p, until); err != nil {
					return promised, err
				}
			}
		}
	}
}

// declare makes the promise, and then names the session in the row. Without a row there is no promise: the
// next answer tries it again.
func (k *Keeper) declare(ctx context.Context, p store.Presence, until time.Time) (promised bool, err error) {
	k.Promise(until)
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	promised, err = p.Declare(ctx)
	switch {
	case err != nil:
		return true, err // it may be declared
	case !promised:
		k.Free()
	}
	return promised, nil
}

// withdraw removes the session from the row. Until that is done, no delivery begins.
func (k *Keeper) withdraw(ctx context.Context, p store.Presence) {
	failing := pace.NewTrouble(k.Logger, "withdrawing the session that showed that this process is alive", Trust/2)
	for {
		bounded, cancel := context.WithTimeout(ctx, k.Lease)
		held, err := p.Withdraw(bounded)
		cancel()
		switch {
		case err == nil && held:
			k.Free()
			return
		case err == nil:
			k.Logger.Warn("another forwarder took this process for dead: its lanes are leased again")
			k.Evicted()
			return
		case !pace.Sleep(ctx, failing.Expected(err)):
			return
		}
	}
}

// suspect evicts the forwarders whose locks have been free for long enough.
func (k *Keeper) suspect(ctx context.Context, p store.Presence, gone []store.Gone) {
	seen := make(map[store.Gone]time.Time, len(gone))
	for _, other := range gone {
		since, known := k.freed[other]
		if !known {
			since = time.Now()
		}
		seen[other] = since
		if time.Since(since) >= Doubt && k.evicts.CompareAndSwap(false, true) {
			k.started.Go(func() { k.evict(ctx, p, other) })
		}
	}
	k.freed = seen
}

// evict evicts a forwarder. It may have to wait for locks on its cursors, and is tried again.
func (k *Keeper) evict(ctx context.Context, p store.Presence, other store.Gone) {
	defer k.evicts.Store(false)
	bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	evicted, err := p.Evict(bounded, other)
	switch {
	case err != nil && ctx.Err() == nil:
		k.Logger.Warn("the lanes of a forwarder that is gone are not free yet", "owner", other.Owner, "error", err)
		pace.Sleep(ctx, again)
	case evicted:
		k.Logger.Info("a forwarder is gone: its lanes are free", "owner", other.Owner)
		k.Freed()
	}
}
