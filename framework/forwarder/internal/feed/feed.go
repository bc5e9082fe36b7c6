// Package feed looks at how far the log reaches, for all sinks and lanes of a process, and reads
// it once for all lanes that have caught up.
//
// A lane with a backlog reads by itself, with a reader for which the database selects its rows.
// After it has caught up it joins the feed, which reads new rows of the log once and hands each
// lane its own. A lane without room for a page leaves the feed at that page, so a slow lane does
// not delay others.
package feed

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder/internal/named"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Config is the configuration of a feed. Observer may be nil.
type Config struct {
	Log store.Log
	// Database is the name of the log's database; "" for none.
	Database string
	// PollMin and PollMax bound the pause between two looks at the log.
	PollMin, PollMax time.Duration
	// Unannounced means that the database does not announce new rows, so that only looks find them.
	Unannounced bool
	// PageRows is the maximum number of rows of a page.
	PageRows int
	Observer event.Observer
	Logger   *slog.Logger
}

// Feed is the reading side of a process. It is safe for concurrent use.
type Feed struct {
	Config
	looking *pace.Trouble
	rest    pace.Rest            // after a look that found nothing, or every look at a log that is not announced
	woken   chan event.LookCause // capacity 1
	newest

	listening atomic.Bool
	// In Unix nanoseconds; 0: never.
	turned atomic.Int64          // when Run last began to look
	failed atomic.Pointer[error] // of the last look; nil: it was answered
	grown  atomic.Int64          // when a look last found that the log had grown

	mu      sync.Mutex
	round   *sync.Cond // broadcast when a round ends
	members map[*Member]bool
	reader  store.Reader   // nil: no lane has joined
	end     store.Position // after what it has read
	alone   *Member        // the single member whose rows the reader selects; nil: it reads all rows
	at      store.Target   // up to which the reader has read
	goal    store.Target   // of the running round; nil: none is running
}

// New returns a feed. It starts nothing.
func New(c Config) *Feed {
	f := &Feed{
		Config: c, rest: restOfLooks, looking: pace.NewTrouble(c.Logger, "looking at the log", 0),
		woken: make(chan event.LookCause, 1), members: make(map[*Member]bool),
	}
	if c.Unannounced {
		f.rest = restOfPolls
	}
	f.newer = make(chan struct{})
	f.round = sync.NewCond(&f.mu)
	return f
}

// Wake requests a look at once. It never blocks.
func (f *Feed) Wake() { f.wake(event.LookAsked) }

func (f *Feed) wake(cause event.LookCause) {
	select {
	case f.woken <- cause:
	default:
	}
}

// Since returns the targets for a lane that was leased at the given time. Earlier targets may be
// of a server that is gone, or older than what the lane has settled. It makes the feed look.
func (f *Feed) Since(leased time.Time) Targets {
	f.Wake()
	return since{&f.newest, leased}
}

// Listen lets the database wake the feed, and calls lanes when lanes may be free, until ctx is
// done. The feed continues to look, since announcements may be lost.
func (f *Feed) Listen(ctx context.Context, l store.Listener, lanes func()) {
	failing := pace.NewTrouble(f.Logger, "listening", 0)
	for {
		err := l.Listen(ctx, func(news store.News) {
			failing.Over()
			f.listening.Store(true)
			if news != store.NewsRows {
				lanes()
			}
			if news != store.NewsLanes {
				f.wake(event.LookListened)
			}
		})
		f.listening.Store(false)
		if err == nil || ctx.Err() != nil {
			return
		}
		event.Tell(f.Observer, &event.DatabaseFailure{Op: event.OpListen, Err: err})
		if !pace.Sleep(ctx, failing.Met(err)) {
			return
		}
	}
}

// Listening reports whether the database wakes the feed.
func (f *Feed) Listening() bool { return f.listening.Load() }

// Turned returns when Run last began to look, or zero. A turn takes as long as a look at the log
// and reading the new rows, which the store bounds.
func (f *Feed) Turned() time.Time { return timeOf(f.turned.Load()) }

// Failed returns why the last look failed; nil if the database answered.
func (f *Feed) Failed() error {
	if err := f.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Grown returns when a look last found that the log had grown; the first look counts as such.
func (f *Feed) Grown() time.Time { return timeOf(f.grown.Load()) }

func timeOf(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}

var (
	// restOfLooks is the pause after a look that found nothing.
	restOfLooks = pace.Rest{Times: 1, Most: 5 * time.Millisecond}
	// restOfRows is the pause after a look that found several rows, for each but one, or a quarter of the
	// look's time if that is more. A look costs the publishers' machine the same for one row and for fifty.
	restOfRows = pace.Share{Each: 400 * time.Microsecond, Most: 5 * time.Millisecond}
	// restOfPolls is the pause if the database does not announce new rows. Under a steady load every
	// look finds something, so that looks without a pause would slow down the publishers.
	restOfPolls = pace.Rest{Times: 10, Most: 4 * time.Millisecond}
)

// Run looks at the log until ctx is done: at once when woken, otherwise after pauses that adapt
// to the traffic that does not wake it.
func (f *Feed) Run(ctx context.Context) {
	pause := f.PollMin
	last := int64(-1)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for first := true; ; first = false {
		cause := event.LookPoll
		if !first {
			select {
			case <-ctx.Done():
				return
			case cause = <-f.woken:
			case <-timer.C:
			}
		}
		began := time.Now()
		f.turned.Store(began.UnixNano())
		target, err := f.look(ctx)
		took := time.Since(began)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			f.failed.Store(&err)
			event.Tell(f.Observer, &event.DatabaseFailure{Op: event.OpLook, Err: err})
			timer.Reset(f.looking.Met(err))
			continue
		}
		f.looking.Over()
		f.failed.Store(nil)
		grown := target.Last() != last
		if grown {
			f.grown.Store(time.Now().UnixNano())
		}
		event.Tell(f.Observer, &event.Look{Cause: cause, Grown: grown, Began: began, Duration: took})
		f.publish(target, began)
		f.read(ctx, target, began)
		if cause == event.LookPoll { // looks that were woken do not change the pause
			if pause = min(2*pause, f.PollMax); grown {
				pause = f.PollMin
			}
		}
		rest, next := f.rest.After(took), pause
		if rows := target.Last() - last; grown && !first && !f.Unannounced {
			rest = max(restOfRows.After(rows-1), min(took/4, restOfRows.Most))
			if rows > 1 {
				next = rest // announcements rest as well
			}
		}
		last = target.Last()
		timer.Reset(next)

		// Under load every commit wakes the feed. Looking each time would take too much of the
		// publishers' processor time.
		if !pace.Sleep(ctx, rest) {
			return
		}
	}
}

// Taker is a lane as the feed sees it.
type Taker interface {
	// Offer takes a page, or returns false if the lane has no room.
	Offer(page store.Page) (taken bool)
	// GiveUp ends the work on the lane.
	GiveUp(why error)
}

// Member is a lane that the feed reads for.
type Member struct {
	lane   Taker
	filter store.Filter
	wants  map[string]bool // by type
	// left gets the position from which the lane must read by itself; capacity 1.
	left chan store.Position
}

// Left receives one value when the lane has left the feed: the position from which it must read
// by itself. nil means that its work has ended.
func (m *Member) Left() <-chan store.Position { return m.left }

// Join makes the feed read for a lane that has read everything up to a target, to the position
// end. It returns nil if the feed is elsewhere: then the lane reads on by itself, up to the
// newest target, and tries again.
func (f *Feed) Join(ctx context.Context, lane Taker, filter store.Filter, at store.Target, end store.Position) *Member {
	stop := context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.round.Broadcast()
	})
	defer stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.goal != nil && f.goal == at && ctx.Err() == nil {
		f.round.Wait() // the feed will be at this target
	}
	if ctx.Err() != nil || f.goal != nil || len(f.members) > 0 && (f.reader == nil || f.at != at) {
		return nil
	}
	if len(f.members) == 0 {
		f.reader = nil
	}
	m := &Member{lane: lane, filter: filter, wants: make(map[string]bool), left: make(chan store.Position, 1)}
	f.members[m] = true
	if f.reader == nil {
		f.end = end
	}
	f.at = at
	if !f.reopen() {
		delete(f.members, m)
		return nil
	}
	if !f.is(at) { // the round up to the newest target may be over: nothing else would read up to it
		f.Wake()
	}
	return m
}

// Leave removes a member.
func (f *Feed) Leave(m *Member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.members, m)
}

// everything is the filter of a reader for several lanes.
var everything = store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Types: notification.AllTypes}

// reopen makes the reader select what the members need: for a single member the database leaves
// out rows of others. It returns false if there is no reader. The caller holds the mutex, and
// no round is running.
func (f *Feed) reopen() bool {
	filter := everything
	var alone *Member
	for m := range f.members {
		filter.Server = m.filter.Server
		alone = m
	}
	if len(f.members) > 1 {
		alone = nil
	}
	if f.reader != nil && f.alone == alone {
		return true
	}
	if alone != nil {
		filter = alone.filter
	}
	raw, err := f.end.MarshalJSON()
	if err == nil {
		f.reader, err = f.Log.NewReader(raw, filter)
	}
	f.alone = alone
	if err != nil { // unexpected: the position was just written
		f.Logger.Error("the log cannot be read for all lanes together", "error", err)
		f.reader = nil
		return false
	}
	return true
}

// read reads up to a target, which was requested at the given time, for all members.
func (f *Feed) read(ctx context.Context, target store.Target, asked time.Time) {
	if !f.begin(target) {
		return
	}
	exact, err := f.pages(ctx, target, asked)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.goal, f.at = nil, nil
	if exact {
		f.at = target
	}
	f.round.Broadcast()
	if err == nil {
		return
	}
	f.reader = nil
	for m := range f.members { // each reads by itself, finds the error, and waits
		if errors.Is(err, store.ErrServerChanged) {
			m.lane.GiveUp(err)
		}
		f.part(m, f.end)
	}
}

func (f *Feed) begin(target store.Target) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.members) == 0 {
		f.reader = nil
		return false
	}
	if !f.reopen() {
		for m := range f.members {
			f.part(m, f.end)
		}
		return false
	}
	f.goal = target
	return true
}

// part makes a member read by itself. The caller holds the mutex.
func (f *Feed) part(m *Member, from store.Position) {
	delete(f.members, m)
	m.left <- from
}

// maxPages bounds a round: all sinks of the process learn only after it how far the log reaches.
// If there is more, the lanes read it by themselves.
const maxPages = 16

// errLong ends a round that is too long, or that has no members any more.
var errLong = errors.New("too many new rows for one round")

// pages reads a round. exact reports that it ends at the target, where lanes may join; a reader
// that had to begin again in another log is after it.
func (f *Feed) pages(ctx context.Context, target store.Target, asked time.Time) (exact bool, err error) {
	exact = true
	for range maxPages {
		page, err := f.reader.Next(ctx, target, f.PageRows)
		if err != nil {
			return false, err
		}
		if page.Asked.IsZero() {
			page.Asked = asked
		}
		named.Stamp(f.Database, page.Envelopes)
		exact = exact && page.Rebased == ""
		left := f.hand(page)
		switch {
		case page.CaughtUp:
			return exact, nil
		case !left:
			return false, errLong
		}
	}
	return false, errLong
}

// hand gives each member its rows of a page. It returns whether any member is left.
func (f *Feed) hand(page store.Page) (left bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for m := range f.members {
		if !m.lane.Offer(m.selection(page)) {
			f.part(m, page.Start)
		}
	}
	f.end = page.End
	return len(f.members) > 0
}

// selection returns the part of a page that is for the member.
func (m *Member) selection(page store.Page) store.Page {
	places := make([]int, 0, len(page.Envelopes)) // of its rows
	for i := range page.Envelopes {
		if m.wantsRow(&page.Envelopes[i]) {
			places = append(places, i)
		}
	}
	if len(places) == len(page.Envelopes) {
		return page
	}
	after := page.After
	selected := make([]notification.Envelope, len(places))
	for i, place := range places {
		selected[i] = page.Envelopes[place]
	}
	page.Envelopes = selected
	page.After = func(i int) store.Position { return after(places[i]) }
	return page
}

func (m *Member) wantsRow(e *notification.Envelope) bool {
	if e.Slot < m.filter.Slots.First || e.Slot > m.filter.Slots.Last {
		return false
	}
	wanted, known := m.wants[e.Type]
	if !known {
		if len(m.wants) >= maxTypes {
			clear(m.wants)
		}
		wanted = m.filter.Types.Matches(e.Type)
		m.wants[e.Type] = wanted
	}
	return wanted
}

// maxTypes bounds the remembered types.
const maxTypes = 1000
