package settle

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder/internal/named"
	"github.com/waybill-go/waybill/framework/store"
)

const (
	maxOfKey   = 100 // blocked deliveries of one key that are brought back at once
	leastOfKey = 10  // the same, for each of many keys
	maxAsked   = 100 // keys in one query
	firstAsked = 16
	heldKeys   = 10_000 // keys in one part of a comparison

	// compareEvery is how long it may take to notice what a person has done to parked
	// deliveries with their own SQL. Changes by store.Operator are noticed at the coordinator's
	// next look, by the lane's revision.
	compareEvery = 30 * time.Second
)

// askedKeys are keys to query in the parked table, each once, in order.
type askedKeys struct {
	order []string
	has   map[string]bool
}

func (a *askedKeys) add(keys ...string) {
	if a.has == nil {
		a.has = make(map[string]bool)
	}
	for _, key := range keys {
		if !a.has[key] {
			a.has[key] = true
			a.order = append(a.order, key)
		}
	}
}

// first returns the next keys, at most n.
func (a *askedKeys) first(n int) []string { return a.order[:min(n, len(a.order))] }

// pop removes the first n keys.
func (a *askedKeys) pop(n int) {
	for _, key := range a.order[:n] {
		delete(a.has, key)
	}
	a.order = a.order[n:]
}

// comparison compares all held keys with the parked table, in parts.
type comparison struct {
	running bool
	again   bool      // another one follows
	after   string    // the key after which the next part begins
	ended   time.Time // when the last one ended
}

// begin begins a comparison: at once, or after the running one.
func (m *comparison) begin() {
	m.again = m.running
	m.running = true
}

// next returns when to read the next part; zero means at once.
func (m *comparison) next() time.Time {
	if m.running {
		return time.Time{}
	}
	return m.ended.Add(compareEvery)
}

// dueAt lets the parked table be queried at the given time, or earlier if that is already set.
func (c *Checkpointer) dueAt(due time.Time) {
	if c.nextDue.IsZero() || due.Before(c.nextDue) {
		c.nextDue = due
	}
}

// asks reports whether there are keys to query for which the lane has room.
func (c *Checkpointer) asks() bool {
	return len(c.ask.order) > 0 && c.passed && len(c.queue) == 0 && c.room.Followers > 0 && !time.Now().Before(c.askAt)
}

// Restore reads which keys have parked deliveries, before anything of the log is read. It renews
// the lease meanwhile.
func (c *Checkpointer) Restore(ctx context.Context) error {
	for c.comparison.begin(); c.comparison.running; {
		within, cancel := context.WithTimeout(ctx, c.TTL/2) // without an answer the session ends
		err := c.compare(within)
		cancel()
		if err != nil {
			return err
		}
		if time.Since(c.renewed) > c.TTL/3 {
			if err := c.Renew(ctx); err != nil {
				return err
			}
		}
	}
	return c.Renew(ctx)
}

// bringBack resumes parked deliveries: first due ones, then the next ones of free keys,
// then a part of a comparison. If the table cannot be read, it does that later: deliveries continue
// as long as the database answers at all. It returns an error only when the lease is lost.
func (c *Checkpointer) bringBack(ctx context.Context) error {
	now := time.Now()
	isDue := !c.nextDue.IsZero() && !c.nextDue.After(now) && c.room.Due > 0
	if now.Before(c.askAt) || !isDue && !c.asks() && !c.closes(now) && now.Before(c.comparison.next()) {
		return nil
	}
	// Waiting for an answer must not cost the lease.
	ctx, cancel := context.WithTimeout(ctx, c.TTL/2)
	defer cancel()
	defer c.suspendSilent(ctx)()
	err := c.close(ctx)
	if err == nil {
		err = c.due(ctx)
	}
	if err == nil {
		err = c.followers(ctx)
	}
	if err == nil && !time.Now().Before(c.comparison.next()) {
		if !c.comparison.running {
			c.comparison.begin()
		}
		err = c.compare(ctx)
	}
	switch {
	case Lost(err):
		return err
	case err != nil:
		event.Tell(c.Observer, &event.DatabaseFailure{Op: event.OpParked, Err: err})
		c.askAt = time.Now().Add(c.asking.Met(err))
	default:
		c.asking.Over()
	}
	return nil
}

// due brings back due deliveries.
func (c *Checkpointer) due(ctx context.Context) error {
	now := time.Now()
	if c.nextDue.IsZero() || c.nextDue.After(now) || c.room.Due == 0 {
		return nil
	}
	c.nextDue = time.Time{} // later writes set it again
	due, next, err := c.Store.Due(ctx, store.DueQuery{
		Lane: c.Lease.Lane, Now: now, Limit: c.room.Due, Except: c.Lane.DueBusy(), Halt: c.Halt,
	})
	if err != nil {
		c.dueAt(now)
		return err
	}
	named.StampParked(c.Lease.Lane.Database, due)
	single, collections := apart(due)
	taken := c.Lane.ResumeDue(single)
	resumed, all, err := c.resumeCollections(ctx, collections)
	if err != nil {
		c.dueAt(now)
		return err
	}
	taken += resumed
	c.room.Due -= taken
	switch {
	case all && taken < len(single)+len(collections) && len(collections) > 0: // others of their groups are worked on
		c.dueAt(now.Add(closePause))
	case taken > 0:
		c.dueAt(now) // there may be more
	case !next.IsZero() && !next.After(now): // one whose key is held meanwhile
		c.dueAt(now.Add(time.Second))
	case !next.IsZero():
		c.dueAt(next)
	}
	return nil
}

// followers brings back the next deliveries of keys whose head has ended.
func (c *Checkpointer) followers(ctx context.Context) error {
	for c.asks() && time.Since(c.renewed) <= c.TTL/3 { // renewing the lease comes first
		keys := c.ask.first(min(c.many, max(1, c.room.Followers/leastOfKey)))
		limit := min(maxOfKey, max(leastOfKey, c.room.Followers/len(keys)))
		parked, answered, err := c.Store.Followers(ctx, c.Lease.Lane, keys, c.Halt, limit)
		if err != nil {
			return err
		}
		named.StampParked(c.Lease.Lane.Database, parked)
		if answered < len(keys) {
			c.many = max(1, answered) // large deliveries: reading more than the limit is useless
		} else {
			c.many = min(2*c.many, maxAsked)
		}
		c.ask.pop(answered)
		c.room.Followers -= len(parked)
		if again := c.resume(keys[:answered], parked); len(again) > 0 {
			c.ask.add(again...)
			return nil // after the next checkpoint
		}
	}
	return nil
}

// resume hands over the deliveries found for keys, and returns the keys to query again.
func (c *Checkpointer) resume(keys []string, parked []store.Parked) (again []string) {
	for _, key := range keys {
		n := 0
		for n < len(parked) && parked[n].Envelope.Key == key {
			n++
		}
		more, free := c.Lane.ResumeFollowers(key, parked[:n], c.parking)
		parked = parked[n:]
		if more {
			again = append(again, key)
		}
		if free {
			c.dueAt(time.Now()) // a scheduled delivery may have waited for it
		}
	}
	return again
}

// compare reads a part of the keys that the table holds back.
func (c *Checkpointer) compare(ctx context.Context) error {
	held, err := c.Store.HeldKeys(ctx, c.Lease.Lane, c.Halt, c.comparison.after, heldKeys)
	if err != nil {
		return err
	}
	last := len(held) < heldKeys
	c.ask.add(c.Lane.ResumeHeld(held, last)...)
	if last {
		c.comparison = comparison{ended: time.Now(), running: c.comparison.again}
		c.dueAt(time.Now())   // a person may have added deliveries
		c.closeBy(time.Now()) // or freed a group, and forwarders that still have another rule may add to one
		return nil
	}
	c.comparison.after = held[len(held)-1].Key
	return nil
}
