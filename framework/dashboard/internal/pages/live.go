package pages

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/figures"
)

const (
	// liveTick is how often the figures of an open page are made. If making them takes long, the
	// interval grows to liveShare times as long, up to liveRest.
	liveTick  = 2 * time.Second
	liveShare = 10
	liveRest  = 20 * time.Second
	// liveQuiet is the interval of keep-alive events. A browser that receives nothing for more
	// than twice as long shows that it is disconnected.
	liveQuiet = 10 * time.Second
	// liveTime limits a connection: the browser connects again, and is authenticated again.
	liveTime = 10 * time.Minute
	// liveWrite limits one write to a browser that does not read.
	liveWrite = 10 * time.Second
	// liveMost limits the number of connections, addressMost the length of an address.
	liveMost    = 100
	addressMost = 4_000
)

// live sends the figures of open pages to browsers, as server-sent events. The figures of a page
// that several browsers have open are made once.
type live struct {
	pages    *Pages
	patterns map[string]bool // of pages with live figures
	ctx      context.Context
	stop     context.CancelFunc

	mu       sync.Mutex
	watched  map[subject]*watchedPage
	watchers int
	work     sync.WaitGroup
}

// subject is a page as users with a role see it.
type subject struct {
	address string
	role    access.Role
}

// watchedPage is a page that someone has open. live.mu guards it.
type watchedPage struct {
	watchers int
	end      context.CancelFunc
	now      *figures.Page // nil if not made yet
	made     chan struct{} // closed and replaced whenever figures are made
}

func newLive(p *Pages) *live {
	l := &live{pages: p, patterns: make(map[string]bool), watched: make(map[subject]*watchedPage)}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

func (l *live) close() {
	l.mu.Lock()
	l.stop()
	l.mu.Unlock()
	l.work.Wait()
}

// ServeHTTP sends the changes of a page until the request ends. The query parameter "of" is the
// address of the page.
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

// isLive reports whether an address is that of a page with live figures.
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

// watch adds a watcher to a page, and starts to make figures for the first one. It returns nil if
// there are too many watchers, or after close.
func (l *live) watch(of subject, user access.User) (page *watchedPage, leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watchers >= liveMost || l.ctx.Err() != nil {
		return nil, nil
	}
	page = l.watched[of]
	if page == nil {
		ctx, end := context.WithCancel(access.With(l.ctx, access.User{Role: user.Role}))
		page = &watchedPage{end: end, made: make(chan struct{})}
		l.watched[of] = page
		l.work.Go(func() { l.makeFigures(ctx, of.address, page) })
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

// makeFigures makes a page's figures repeatedly until ctx is done.
func (l *live) makeFigures(ctx context.Context, address string, page *watchedPage) {
	for {
		began := time.Now()
		made := figures.Of(ctx, l.pages.mux, address)
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

// send writes all figures once, and then only those that change.
func (l *live) send(ctx context.Context, w http.ResponseWriter, page *watchedPage) {
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // the server's read deadline would end the answer
	var sent *figures.Page
	quiet := time.NewTicker(liveQuiet)
	defer quiet.Stop()
	write := func(format string, args ...any) bool {
		_ = out.SetWriteDeadline(time.Now().Add(liveWrite)) // not every server supports deadlines
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
			if changed := now.Since(sent); changed != nil {
				text, _ := json.Marshal(changed) // strings cannot fail
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
