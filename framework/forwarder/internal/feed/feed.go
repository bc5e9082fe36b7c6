// Package feed looks how far the log reaches, for all sinks and lanes of a process, and
// reads it once for all lanes that have caught up.
//
// A lane with a backlog reads by itself, with a reader that lets the database select its
// rows. One that has caught up joins the feed, which reads the log's new rows once and
// hands each lane its own. A lane that has no room for them leaves the feed again, at
// the page that it could not take, so a slow lane delays no other.
package feed

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Config is what a feed works with. Observer may be nil.
type Config struct {
	Log store.Log
	// PollMin and PollMax bound the pause between two looks at the log.
	PollMin, PollMax time.Duration
	// Unannounced says that the database announces nothing: looks find all that is new.
	Unannounced bool
	// PageRows is how many rows a page has at most.
	PageRows int
	Observer policy.Observer
	Logger   *slog.Logger
}

// Feed is the reading side of a process. It is safe for concurrent use.
type Feed struct {
	Config
	looking *pace.Trouble
	rest    pace.Rest             // behind each look
	woken   chan policy.WakeCause // capacity 1
	newest

	listening atomic.Bool
	// In Unix nanoseconds; 0: never.
	turned   atomic.Int64 // when Run last began a turn
	answered atomic.Int64 // when a look was last answered
	grown    atomic.Int64 // when a look last found that the log had grown

	mu      sync.Mutex
	round   *sync.Cond // broadcast when a round ends
	members map[*Member]bool
	reader  store.Reader   // nil: no lane has joined
	end     store.Position // of what it has read
	alone   *Member        // the only one that the reader selects for; nil: for all
	at      store.Target   // up to which the reader has read
	goal    store.Target   // of the round that runs; nil: none
}

// New returns a feed. It starts nothing.
func New(c Config) *Feed {
	f := &Feed{
		Config: c, rest: restOfLooks, looking: pace.NewTrouble(c.Logger, "looking at the log", 0),
		woken: make(chan policy.WakeCause, 1), members: make(map[*Member]bool),
	}
	if c.Unannounced {
		f.rest = restOfPolls
	}
	f.newer = make(chan struct{})
	f.round = sync.NewCond(&f.mu)
	return f
}

// Wake asks for a look at once. It never blocks.
func (f *Feed) Wake() { f.wake(policy.WakeAsked) }

func (f *Feed) wake(cause policy.WakeCause) {
	select {
	case f.woken <- cause:
	default:
	}
}

// Since returns the targets for a lane that had its lease by then: what was seen before
// may be of a server that is gone, or older than what the lane has settled. It makes the
// feed look.
func (f *Feed) Since(leased time.Time) Targets {
	f.Wake()
	return since{&f.newest, leased}
}

// Listen lets the database wake the feed, and announce lanes, until ctx is done.
// Looking goes on meanwhile and finds what was not heard.
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
				f.wake(policy.WakeListened)
			}
		})
		f.listening.Store(false)
		if err == nil || ctx.Err() != nil {
			return
		}
		policy.Failed(f.Observer, policy.OpListen, err)
		if !pace.Sleep(ctx, failing.Met(err)) {
			return
		}
	}
}

// Listening says whether the database wakes the feed.
func (f *Feed) Listening() bool { return f.listening.Load() }

// Turned is when Run last began a turn; zero: it has not yet. A turn takes as long as a look
// at the log and reading what is new, which the store bounds.
func (f *Feed) Turned() time.Time { return timeOf(f.turned.Load()) }

// Answered is when the database last answered a look, and Grown when a look last found that the log had
// grown, as the first one does.
func (f *Feed) Answered() time.Time { return timeOf(f.answered.Load()) }
func (f *Feed) Grown() time.Time    { return timeOf(f.grown.Load()) }

func timeOf(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}

var (
	// restOfLooks adds to what a delivery waits for, and leaves the publishers half of
	// the time at least.
	restOfLooks = pace.Rest{Times: 1, Most: 5 * time.Millisecond}
	// restOfPolls is the same where the database announces nothing. Under a steady load each look then finds
	// something, and the next one follows: publishers would wait for the processor as often.
	restOfPolls = pace.Rest{Times: 10, Most: 4 * time.Millisecond}
)

// NextPause is how long to wait for the next look, behind one that came by itself after a pause:
// the least where the log had grown, else twice as long.
func NextPause(pause time.Duration, grown bool, least, most time.Duration) time.Duration {
	if grown {
		return least
	}
	return min(2*pause, most)
}

// RestAfter is the rest behind a look that took so long, whatever wakes the feed, where news are announced.
func RestAfter(look time.Duration) time.Duration { return restOfLooks.After(look) }

// Run looks at the log until ctx is done: at once when woken, else at a pace that
// follows the traffic that wakes nothing.
func (f *Feed) Run(ctx context.Context) {
	pause := f.PollMin
	last := int64(-1)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for first := true; ; first = false {
		cause := policy.WakePoll
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
			policy.Failed(f.Observer, policy.OpLook, err)
			timer.Reset(f.looking.Met(err))
			continue
		}
		f.looking.Over()
		f.answered.Store(time.Now().UnixNano())
		grown := target.Last() != last
		if grown {
			f.grown.Store(time.Now().UnixNano())
		}
		if f.Observer != nil {
			f.Observer.Wake(policy.Wake{Cause: cause, Grown: grown, Began: began, Duration: took})
		}
		f.publish(target, began)
		f.read(ctx, target, began)
		if cause == policy.WakePoll { // what is announced needs no looking for
			pause = NextPause(pause, grown, f.PollMin, f.PollMax)
		}
		last = target.Last()
		timer.Reset(pause)

		// Under load every commit wakes the feed, and looking would take the publishers'
		// processor time.
		if !pace.Sleep(ctx, f.rest.After(took)) {
			return
		}
	}
}

// Taker is a lane as the feed sees it.
type Taker interface {
	// Offer takes a page, or returns false if it has no room.
	Offer(page store.Page) (taken bool)
	// GiveUp ends the work on the lane.
	GiveUp(why error)
}

// Member is a lane that the feed reads for.
type Member struct {
	lane   Taker
	filter store.Filter
	wants  map[string]bool // by type
	// left gets the place from which the lane has to read by itself; capacity 1.
	left chan store.Position
}

// Left delivers one value when the lane has left the feed: the place from which the
// lane has to read by itself. nil means that it does not read on: its work has
// ended.
func (m *Member) Left() <-chan store.Position { return m.left }

// Join makes the feed read for a lane that has read all up to a target, and stands
// at end. It returns nil if the feed stands elsewhere: then the lane reads on by
// itself, up to the newest target, and asks again.
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
		f.round.Wait() // it will stand there
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
	return m
}

// Leave ends what Join began.
func (f *Feed) Leave(m *Member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.members, m)
}

// everything is the filter of a reader for several lanes.
var everything = store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Types: notification.AllTypes}

// reopen makes the reader select what the members want: for a single member the
// database leaves out what is not for it. It returns false if there is no reader. The
// mutex is held, and no round runs.
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
	if err != nil { // a position that was just written can be read
		f.Logger.Error("the log cannot be read for all lanes together", "error", err)
		f.reader = nil
		return false
	}
	return true
}

// read reads up to a target, which was asked for at a time, for all members.
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
	for m := range f.members { // each finds out by itself what is wrong, and waits
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

// part makes a member read by itself. The mutex is held.
func (f *Feed) part(m *Member, from store.Position) {
	delete(f.members, m)
	m.left <- from
}

// maxPages bounds a round: all sinks of the process wait for its end to learn how far the
// log reaches. Lanes for which more has come read it by themselves.
const maxPages = 16

// errLong ends a round that has taken too long, or that is for no lane any more.
var errLong = errors.New("much has come at once")

// pages reads a round. exact says that it ends at the target, where lanes may join: a
// reader that had to begin again, in another log, stands behind it.
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

// hand gives each member its rows of a page. It returns whether there is one left.
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

// selection is the part of a page that is for a lane.
func (m *Member) selection(page store.Page) store.Page {
	var places []int // of the rows that are for the lane; nil while all are
	all := true
	for i := range page.Envelopes {
		wanted := m.wantsRow(&page.Envelopes[i])
		switch {
		case all && !wanted:
			all = false
			for j := range i {
				places = append(places, j)
			}
		case !all && wanted:
			places = append(places, i)
		}
	}
	if all {
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

// maxTypes bounds what is remembered of types.
const maxTypes = 1000
