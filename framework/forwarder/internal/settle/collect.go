package settle

import (
	"context"
	"iter"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/dispatch"
	"github.com/waybill-go/waybill/framework/forwarder/internal/named"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
)

// Collections that are not in memory only: their members are parked. Once one is due, it is closed, in a transaction
// apart from checkpoints, and its first member is due like any other parked delivery. Its lane is that of its group's
// slot, and other lanes add to it: so this one looks from time to time.

const (
	// closePause is how soon to look for due collections after one has got a member, and again after one that
	// others have locked.
	closePause = 250 * time.Millisecond
	// leastLook and mostLook bound the time between two looks for collections of which other lanes have
	// parked members. It is half of the collections' wait, so that none is late.
	leastLook = time.Second
	mostLook  = 10 * time.Second
	// maxClosed is how many collections are closed at once.
	maxClosed = 256
)

// each returns the settlements of single deliveries.
func each(settled []dispatch.Settlement) iter.Seq[*dispatch.Settlement] {
	return func(yield func(*dispatch.Settlement) bool) {
		for i := range settled {
			members := settled[i].Members()
			if members == nil && !yield(&settled[i]) {
				return
			}
			for j := range members {
				if !yield(&members[j]) {
					return
				}
			}
		}
	}
}

// closeBy makes the checkpointer look for due collections at the given time, or earlier if that is already set.
func (c *Checkpointer) closeBy(at time.Time) {
	if c.closeAt.IsZero() || at.Before(c.closeAt) {
		c.closeAt = at
	}
}

// closes reports whether to look for due collections now.
func (c *Checkpointer) closes(now time.Time) bool {
	return !c.closeAt.IsZero() && !c.closeAt.After(now) && c.room.Due > 0
}

// terms says when collections are due.
func (c *Checkpointer) terms() store.CollectTerms {
	return store.CollectTerms{Wait: c.Collect.Wait, MaxWait: c.Collect.MaxWait, Size: c.Collect.Size}
}

// close closes collections that are due, so that their first members are.
func (c *Checkpointer) close(ctx context.Context) error {
	now := time.Now()
	if !c.closes(now) {
		return nil
	}
	if begins := c.Lane.Begins(now); begins.After(now) {
		c.closeAt = begins
		return nil
	}
	closed, err := c.Store.CloseCollections(ctx, store.CloseQuery{
		Lease: c.Lease, TTL: c.TTL, Now: now, Limit: min(maxClosed, c.room.Due), CollectTerms: c.terms(), Newest: c.Collect.Keep == settings.KeepNewest,
	})
	if err != nil {
		return err
	}
	c.closeAt = time.Time{}
	if !closed.Next.IsZero() {
		c.closeAt = closed.Next
		if soon := now.Add(closePause); closed.Collections < maxClosed && c.closeAt.Before(soon) { // another lane's
			c.closeAt = soon
		}
	}
	if c.Collect.On() && !c.Collect.InMemory() && !c.Collect.IsByKey() {
		c.closeBy(now.Add(min(max(c.Collect.Wait/2, leastLook), mostLook)))
	}
	if closed.Superseded > 0 {
		c.Lane.Superseded(closed.Superseded)
	}
	if closed.Collections > 0 {
		c.dueAt(now)
	}
	return nil
}

// apart returns due deliveries apart from the closed collections of which members are due, each once.
func apart(due []store.Parked) (single []store.Parked, collections []store.CollectionRef) {
	known := make(map[store.CollectionRef]bool)
	for _, p := range due {
		ref := store.CollectionRef{Group: p.Group, Number: p.Collection}
		switch {
		case !p.InCollection():
			single = append(single, p)
		case !known[ref]:
			known[ref] = true
			collections = append(collections, ref)
		}
	}
	return single, collections
}

// resumeCollections hands over closed collections, and returns how many the lane took. all is false if the members of
// some were too large to be read at once.
func (c *Checkpointer) resumeCollections(ctx context.Context, collections []store.CollectionRef) (taken int, all bool, err error) {
	if len(collections) == 0 {
		return 0, true, nil
	}
	members, answered, err := c.Store.Members(ctx, c.Lease.Lane.Sink, collections)
	if err != nil {
		return 0, false, err
	}
	named.StampParked(c.Lease.Lane.Database, members)
	for from, to := 0, 0; from < len(members); from = to {
		for to < len(members) && members[to].Group == members[from].Group && members[to].Collection == members[from].Collection {
			to++
		}
		if c.Lane.ResumeCollection(members[from:to:to]) {
			taken++
		}
	}
	return taken, answered == len(collections), nil
}
