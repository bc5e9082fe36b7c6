package feed

import (
	"context"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// Targets say how far a lane reads.
type Targets interface {
	// Latest returns the newest target, or nil if there is none yet, and a channel that is
	// closed when there is a newer one; the channel is nil if there never will be.
	Latest() (store.Target, <-chan struct{})
}

// Only returns a single target, for lanes that must end at one position.
func Only(t store.Target) Targets { return only{t} }

type only struct{ store.Target }

func (o only) Latest() (store.Target, <-chan struct{}) { return o.Target, nil }

// newest is the target of the latest look at the log.
type newest struct {
	mu     sync.Mutex
	target store.Target
	probed time.Time     // before target was requested
	newer  chan struct{} // closed when target is replaced
}

func (n *newest) publish(target store.Target, probed time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.target, n.probed = target, probed
	close(n.newer)
	n.newer = make(chan struct{})
}

// is reports whether a target is the newest.
func (n *newest) is(target store.Target) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.target == target
}

// since are the targets that were requested after a time.
type since struct {
	*newest
	after time.Time
}

func (s since) Latest() (store.Target, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.probed.Before(s.after) {
		return nil, s.newer
	}
	return s.target, s.newer
}

// look looks at the log. It gives up after lookTime, since it is a small statement. With a reader
// for the lanes that have caught up, it also reads new rows.
func (f *Feed) look(ctx context.Context) (store.Target, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	f.mu.Lock()
	reader := f.reader
	f.mu.Unlock()
	if l, ok := reader.(store.Looker); ok {
		return l.Look(ctx)
	}
	return f.Log.Probe(ctx)
}

// lookTime bounds one look at the log.
const lookTime = 10 * time.Second
