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

// restOfAnnouncements adds to what a delivery waits for. More announcements than that
// would only take the publishers' processor time: with a rest of twice as long, 2 ms at
// most, there was one for four transactions of a busy server, which had a tenth fewer.
var restOfAnnouncements = pace.Rest{Times: 5, Most: 5 * time.Millisecond}

// Silent announces nothing: for a program whose forwarder runs in its own process.
var Silent store.Announcer = silent{}

type silent struct{}

func (silent) Announce(context.Context) error { return nil }

// announcer makes announcements in the background, one at a time. Its goroutine
// lives as long as there is something to announce.
type announcer struct {
	to store.Announcer

	mu    sync.Mutex
	busy  bool // run runs
	again bool // something was committed since the last announcement began

	next time.Time // when the next one may begin; for run alone
}

// announce has one announcement begin after now.
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

// more says whether there is something to announce; if not, run is over.
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
