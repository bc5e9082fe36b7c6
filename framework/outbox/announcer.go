package outbox

import (
	"context"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/store"
)

// announceTimeout bounds one announcement.
const announceTimeout = time.Second

// restOfAnnouncements is the pause after an announcement of that many commits. A forwarder that has found several
// rows looks again by itself, so that what is committed meanwhile does not wait for the next one.
var restOfAnnouncements = pace.Share{Each: 400 * time.Microsecond, Most: 10 * time.Millisecond}

// Silent announces nothing: for a program whose forwarder runs in its own process.
var Silent store.Announcer = silent{}

type silent struct{}

func (silent) Announce(context.Context) error { return nil }

// announcer makes announcements in the background, one at a time. Its goroutine ends when
// there is nothing more to announce.
type announcer struct {
	to store.Announcer

	mu      sync.Mutex
	busy    bool  // run is running
	commits int64 // since the last announcement began

	next time.Time // when the next announcement may begin; only run uses it
}

// announce requests an announcement that begins after this call.
func (a *announcer) announce() {
	if a.to == nil || a.to == Silent {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.commits++
	if !a.busy {
		a.busy = true
		go a.run()
	}
}

func (a *announcer) run() {
	for a.more() {
		time.Sleep(time.Until(a.next))
		commits := a.begin()
		ctx, cancel := context.WithTimeout(context.Background(), announceTimeout)
		_ = a.to.Announce(ctx) // a forwarder that misses it finds the rows at its next look
		cancel()
		a.next = time.Now().Add(restOfAnnouncements.After(commits))
	}
}

// more reports whether there is something to announce; if not, run ends.
func (a *announcer) more() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy = a.commits > 0
	return a.busy
}

// begin returns the number of commits to announce.
func (a *announcer) begin() (commits int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	commits, a.commits = a.commits, 0
	return commits
}
