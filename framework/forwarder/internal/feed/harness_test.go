package feed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/feed"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// log is a log in memory.
type log struct {
	mu      sync.Mutex
	rows    []notification.Envelope
	life    int   // of the server
	rebased int   // how often the log was started again
	fails   error // returned after skip further pages
	skip    int
	reads   int
	opened  []store.Filter
}

type target struct{ last, life int }

func (t target) Last() int64 { return int64(t.last) }

type position int

func (p position) MarshalJSON() ([]byte, error) { return json.Marshal(int(p)) }

func (l *log) append(rows ...notification.Envelope) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range rows {
		e.Offset = int64(len(l.rows) + 1)
		l.rows = append(l.rows, e)
	}
}

// set changes the log under its mutex.
func (l *log) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

func (l *log) Probe(context.Context) (store.Target, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return target{len(l.rows), l.life}, nil
}

func (l *log) NewReader(raw json.RawMessage, f store.Filter) (store.Reader, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &reader{log: l, filter: f, life: l.life, rebased: l.rebased}
	l.opened = append(l.opened, f)
	if raw == nil {
		return r, nil
	}
	return r, json.Unmarshal(raw, &r.at)
}

type reader struct {
	log           *log
	at            int
	life, rebased int
	filter        store.Filter
}

func (r *reader) Next(ctx context.Context, t store.Target, limit int) (store.Page, error) {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	switch {
	case ctx.Err() != nil:
		return store.Page{}, ctx.Err()
	case t.(target).life != r.life:
		return store.Page{}, store.ErrServerChanged
	case l.fails != nil && l.skip == 0:
		err := l.fails
		l.fails = nil
		return store.Page{}, err
	case l.fails != nil:
		l.skip--
	}
	var page store.Page
	if r.rebased != l.rebased {
		r.at, r.rebased, page.Rebased = 0, l.rebased, "its rows began again"
	}
	page.Start = position(r.at)
	for r.at < int(t.Last()) && r.at < len(l.rows) && len(page.Envelopes) < limit {
		e := l.rows[r.at]
		r.at++
		if r.filter.Types.Matches(e.Type) && e.Slot >= r.filter.Slots.First && e.Slot <= r.filter.Slots.Last {
			page.Envelopes = append(page.Envelopes, e)
		}
	}
	page.End = position(r.at)
	page.CaughtUp = r.at >= int(t.Last()) || r.at >= len(l.rows)
	envelopes := page.Envelopes
	page.After = func(i int) store.Position { return position(envelopes[i].Offset) }
	return page, nil
}

// taker is a lane that takes pages.
type taker struct {
	mu      sync.Mutex
	ids     []string
	end     store.Position
	full    bool
	rebased int
	over    error
	wrong   string
}

func (k *taker) Offer(page store.Page) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.full && len(page.Envelopes) > 0 {
		return false
	}
	k.take(page)
	return true
}

// take adds a page. The caller holds the mutex.
func (k *taker) take(page store.Page) {
	if page.Rebased != "" {
		k.rebased++
		k.ids = nil
	} else if k.end != nil && k.end != page.Start {
		k.wrong = fmt.Sprintf("a page begins at %v and the one before ended at %v", page.Start, k.end)
	}
	for i, e := range page.Envelopes {
		k.ids = append(k.ids, e.ID)
		if page.After(i) != position(e.Offset) {
			k.wrong = fmt.Sprintf("the place behind %s is %v", e.ID, page.After(i))
		}
	}
	k.end = page.End
}

func (k *taker) GiveUp(why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over = why
}

func (k *taker) given() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.ids)
}

func (k *taker) setFull(full bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.full = full
}

func newFeed(l store.Log) *feed.Feed {
	return feed.New(feed.Config{Log: l, PollMin: time.Millisecond, PollMax: time.Second, PageRows: 10, Logger: slog.New(slog.DiscardHandler)})
}

// inBubble runs a test with a running feed of a log, in fake time.
func inBubble(t *testing.T, test func(t *testing.T, l *log, f *feed.Feed)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{}
		f := newFeed(l)
		run(t, f)
		test(t, l, f)
	})
}

// run runs a feed until the end of a test.
func run(t *testing.T, f *feed.Feed) {
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { f.Run(ctx); close(ended) }()
	t.Cleanup(func() { stop(); <-ended })
}

func look(f *feed.Feed) {
	f.Wake()
	time.Sleep(20 * time.Millisecond)
	synctest.Wait()
}

func rows(typ string, slot int, ids ...string) []notification.Envelope {
	all := make([]notification.Envelope, len(ids))
	for i, id := range ids {
		all[i] = notification.Envelope{ID: id, Type: typ, Slot: slot}
	}
	return all
}

func filter(types ...string) store.Filter {
	f := store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Types: notification.TypeFilter{Names: types}}
	if len(types) == 0 {
		f.Types = notification.AllTypes
	}
	return f
}

func numbered(prefix string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s%03d", prefix, i))
	}
	return ids
}

// left returns the offset from which a lane must read by itself; false while it is in the feed.
func left(m *feed.Member) (store.Position, bool) {
	select {
	case from := <-m.Left():
		return from, true
	default:
		return nil, false
	}
}
