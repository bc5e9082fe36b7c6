package pages

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
)

const (
	// liveTick is how often the figures of a page that is watched are made.
	liveTick = 2 * time.Second
	// liveShare is the part of the time that making figures may take: 1/liveShare of it, unless they
	// would be more than liveRest apart.
	liveShare = 10
	liveRest  = 20 * time.Second
	// liveQuiet is how long nothing may be sent: the browser takes twice that for a break.
	liveQuiet = 10 * time.Second
	// liveTime is how long a connection lasts: the next one is asked who it is.
	liveTime = 10 * time.Minute
	// liveWrite bounds one write to a reader who does not read.
	liveWrite = 10 * time.Second
	// liveMost is how many connections there may be, and addressMost how long an address.
	liveMost    = 100
	addressMost = 4_000
)

// live sends the figures of pages to browsers that have them open, as server-sent events. What
// is watched by several is made once.
type live struct {
	pages    *Pages
	patterns map[string]bool // of pages with live figures
	ctx      context.Context
	stop     context.CancelFunc

	mu       sync.Mutex
	watched  map[subject]*watched
	watchers int
	work     sync.WaitGroup
}

// subject is a page, as those with a role see it.
type subject struct {
	address string
	role    access.Role
}

// watched is a page that someone has open. live.mu guards it.
type watched struct {
	watchers int
	end      context.CancelFunc
	now      *figures      // nil: not made yet
	made     chan struct{} // closed and replaced each time
}

func newLive(p *Pages) *live {
	l := &live{pages: p, patterns: make(map[string]bool), watched: make(map[subject]*watched)}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

func (l *live) close() {
	l.mu.Lock()
	l.stop()
	l.mu.Unlock()
	l.work.Wait()
}

// ServeHTTP sends what changes on the page of the query of, until the request ends.
func (l *live) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	of := subject{r.URL.Query().Get("of"), access.From(r.Context()).Role}
	if !l.isLive(of) {
		http.Error(w, "this page has no live figures", http.StatusBadRequest)
		return
	}
	page, leave := l.watch(of, access.From(r.Context()))
	if page == nil {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	ctx, cancel := context.WithTimeout(r.Context(), liveTime)
	defer cancel()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	l.send(ctx, w, page)
}

// isLive reports whether an address is one of a page with live figures.
func (l *live) isLive(of subject) bool {
	if len(of.address) > addressMost || !strings.HasPrefix(of.address, "/") || strings.HasPrefix(of.address, "//") {
		return false
	}
	r, err := http.NewRequest(http.MethodGet, of.address, nil)
	if err != nil {
		return false
	}
	_, pattern := l.pages.mux.Handler(r)
	return l.patterns[pattern]
}

// watch counts a watcher of a page, and begins to make its figures for the first one. It
// returns nil if there are too many, or live ends.
func (l *live) watch(of subject, user access.User) (page *watched, leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watchers >= liveMost || l.ctx.Err() != nil {
		return nil, nil
	}
	page = l.watched[of]
	if page == nil {
		ctx, end := context.WithCancel(access.With(l.ctx, access.User{Role: user.Role}))
		page = &watched{end: end, made: make(chan struct{})}
		l.watched[of] = page
		l.work.Go(func() { l.make(ctx, of.address, page) })
	}
	page.watchers++
	l.watchers++
	l.work.Add(1)
	return page, func() {
		defer l.work.Done()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.watchers--
		if page.watchers--; page.watchers == 0 {
			page.end()
			delete(l.watched, of)
		}
	}
}

// make makes a page's figures again and again.
func (l *live) make(ctx context.Context, address string, page *watched) {
	for {
		began := time.Now()
		made := l.pages.figuresOf(ctx, address)
		if ctx.Err() != nil {
			return
		}
		l.mu.Lock()
		page.now = made
		close(page.made)
		page.made = make(chan struct{})
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(max(liveTick, liveShare*time.Since(began)), liveRest)):
		}
	}
}

// send writes what has changed since it was last sent, and first all.
func (l *live) send(ctx context.Context, w http.ResponseWriter, page *watched) {
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // that of a request would end the answer
	var sent *figures
	quiet := time.NewTicker(liveQuiet)
	defer quiet.Stop()
	write := func(format string, args ...any) bool {
		_ = out.SetWriteDeadline(time.Now().Add(liveWrite)) // not every server has deadlines
		if _, err := fmt.Fprintf(w, format, args...); err != nil {
			return false
		}
		return out.Flush() == nil
	}
	for begun := write("retry: 1000\n\n"); begun; {
		l.mu.Lock()
		now, made := page.now, page.made
		l.mu.Unlock()
		if now != nil && now != sent {
			if changed := now.since(sent); changed != nil {
				text, _ := json.Marshal(changed) // texts only
				if !write("event: figures\ndata: %s\n\n", text) {
					return
				}
			}
			sent = now
		}
		select {
		case <-ctx.Done():
			return
		case <-l.ctx.Done():
			return
		case <-made:
		case <-quiet.C:
			if !write("event: quiet\ndata:\n\n") {
				return
			}
		}
	}
}

// figures are what of a page is live.
type figures struct {
	Title string `json:"title,omitempty"`
	// Values are the elements marked data-live, by that name.
	Values map[string]figure `json:"values,omitempty"`
	// Rows are the names of those marked data-row, if they have changed; nil: they have
	// not.
	Rows []string `json:"rows"`
	// Problem is why the page cannot be made.
	Problem string `json:"problem,omitempty"`
}

// figure is an element: its text, and of its attributes those that may change.
type figure struct {
	Text       string            `json:"text"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

// since is what has changed; nil if nothing has.
func (f *figures) since(before *figures) *figures {
	if before == nil || f.Problem != before.Problem {
		return f
	}
	changed := &figures{Values: make(map[string]figure)}
	for name, value := range f.Values {
		if old, known := before.Values[name]; !known || old.Text != value.Text || !maps.Equal(old.Attributes, value.Attributes) {
			changed.Values[name] = value
		}
	}
	if !slices.Equal(f.Rows, before.Rows) {
		changed.Rows = f.Rows
	}
	if f.Title != before.Title {
		changed.Title = f.Title
	}
	if len(changed.Values) == 0 && changed.Rows == nil && changed.Title == "" {
		return nil
	}
	return changed
}
