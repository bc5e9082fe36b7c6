package forwarder

import (
	"context"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/store"
)

// lookTime bounds one look at the log.
const lookTime = 10 * time.Second

// restOfLooks adds to what a delivery waits for, and leaves the publishers half of
// the time at least.
var restOfLooks = pace.Rest{Times: 1, Most: 5 * time.Millisecond}

// poller looks how far the log reaches, for all sinks and lanes of the process:
// at once when woken, else at a pace that follows the traffic that wakes nobody.
type poller struct {
	store   Store
	poll    Poll
	trouble *trouble
	woken   chan struct{}

	mu     sync.Mutex
	target store.Target
	probed time.Time     // before target was asked for
	newer  chan struct{} // closed when target is replaced
}

func newPoller(s Store, poll Poll, t *trouble) *poller {
	return &poller{store: s, poll: poll, trouble: t, woken: make(chan struct{}, 1), newer: make(chan struct{})}
}

// wake asks for a look at once. It never blocks.
func (p *poller) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// listen has the database wake the poller, and tell of lanes, until ctx is done.
// Looking goes on beside it and finds what was not heard.
func (p *poller) listen(ctx context.Context, l store.Listener, lanes func(), failing *trouble) {
	for {
		err := l.Listen(ctx, func(news store.News) {
			failing.over()
			if news != store.NewsRows {
				lanes()
			}
			if news != store.NewsLanes {
				p.wake()
			}
		})
		if err == nil || !sleep(ctx, failing.met(err)) {
			return
		}
	}
}

// run probes until ctx is done.
func (p *poller) run(ctx context.Context) {
	pause := p.poll.Min
	last := int64(-1)
	var woken bool
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.woken:
			woken = true
		case <-timer.C:
			woken = false
		}
		began := time.Now()
		target, err := p.look(ctx)
		took := time.Since(began)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			timer.Reset(p.trouble.met(err))
			continue
		}
		p.trouble.over()
		p.publish(target, began)
		switch found := target.Last() != last; {
		case woken: // what is announced needs no looking for
		case found:
			pause = p.poll.Min
		default:
			pause = min(2*pause, p.poll.Max)
		}
		last = target.Last()
		timer.Reset(pause)

		// Under load every commit wakes us, and looking would take the publishers'
		// processor time.
		if !sleep(ctx, restOfLooks.After(took)) {
			return
		}
	}
}

// look gives up where no answer comes: it is a tiny statement.
func (p *poller) look(ctx context.Context) (store.Target, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	return p.store.Probe(ctx)
}

func (p *poller) publish(target store.Target, probed time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target, p.probed = target, probed
	close(p.newer)
	p.newer = make(chan struct{})
}

// since is the horizon of a lane whose lease was had by then: what was seen before may
// be of a server that is gone, or older than what the lane has settled. It has the
// poller look.
func (p *poller) since(leased time.Time) horizon {
	p.wake()
	return horizonSince{p, leased}
}

type horizonSince struct {
	*poller
	leased time.Time
}

func (h horizonSince) latest() (store.Target, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.probed.Before(h.leased) {
		return nil, h.newer
	}
	return h.target, h.newer
}

// sleep waits and returns true, or false once ctx is done.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
