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

// restOfAnnouncements is the pause after an announcement. It delays deliveries, but a shorter
// one would mostly cost the publishers processor time.
var restOfAnnouncements = pace.Rest{Times: 2, Most: 2 * time.Millisecond}

// Silent announces nothing: for a program whose forwarder runs in its own process.
var Silent store.Announcer = silent{}

type silent struct{}

func (silent) Announce(context.Context) error { return nil }

// announcer makes announcements in the background, one at a time. Its goroutine ends when
// there is nothing more to announce.
type announcer struct {
	to store.Announcer

	mu    sync.Mutex
	busy  bool // run is running
	again bool // something was committed since the last announcement began

	next time.Time // when the next announcement may begin; only run uses it
}

// announce requests an announcement that begins after this call.
func (a *announcer) announce() {
	if a.to == nil || a.to == Silent {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.again = true
	if !a.busy {
		a.busy = true
		go a.run()
	}
}

func (a *announcer) run() {
	for a.more() {
		time.Sleep(time.Until(a.next))
		a.begin()
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), announceTimeout)
		_ = a.to.Announce(ctx) // a forwarder that misses it finds the rows at its next look
		cancel()
		ended := time.Now()
		a.next = ended.Add(restOfAnnouncements.After(ended.Sub(began)))
	}
}

// more reports whether there is something to announce; if not, run ends.
func (a *announcer) more() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy = a.again
	return a.busy
}

func (a *announcer) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.again = false
}
