package dashboard

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/masks"
	"github.com/waybill-go/waybill/framework/dashboard/internal/pages"
)

// Listed is a database in the list of [Several]: its Name, its State, and in Error why no forwarder works on
// it, "" if there is no error.
type Listed = pages.Listed

// Several shows several databases, each below /in/NAME with pages that list all of them. It does
// not query a database before someone opens its pages. While there is no list, it shows the one
// outbox of Show instead, as a [Dashboard] does. All share one access control. It is safe for
// concurrent use.
type Several struct {
	*board // of one outbox
	gate   *access.Gate
	config Config
	hidden masks.Masks
	list   func() []Listed
	target func(name string) (Target, bool)

	mu  sync.Mutex
	all map[string]*shown
}

// shown is a database whose pages someone has opened.
type shown struct {
	*board
	handler http.Handler
	store   any
	last    time.Time
}

// unseen is how long a database without requests stays shown.
const unseen = 10 * time.Minute

// NewSeveral returns a dashboard of the databases that list returns, in that order; nil means that
// there is no list. target returns the Target of a database, and false if this process has not
// opened it. The prefix of the configuration is ignored.
func NewSeveral(c Config, list func() []Listed, target func(name string) (Target, bool)) (*Several, error) {
	c.Prefix = ""
	c, hidden, err := c.checked()
	if err != nil {
		return nil, err
	}
	s := &Several{board: newBoard(c, hidden, nil), config: c, hidden: hidden, list: list, target: target, all: make(map[string]*shown)}
	s.gate, err = access.New(c.Access, http.HandlerFunc(s.serve), c.Logger)
	return s, err
}

// ServeHTTP serves the pages and the API of each database, and the list of all databases.
func (s *Several) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.gate.ServeHTTP(w, r) }

// serve answers users that the gate has let in.
func (s *Several) serve(w http.ResponseWriter, r *http.Request) {
	listed := s.list()
	rest, below := strings.CutPrefix(r.URL.Path, "/in/")
	name, _, _ := strings.Cut(rest, "/")
	switch {
	case listed == nil:
		s.handler.ServeHTTP(w, r)
	case below && slices.ContainsFunc(listed, func(l Listed) bool { return l.Name == name }):
		s.of(name).ServeHTTP(w, r)
	case r.URL.Path == "/" && len(listed) > 0:
		http.Redirect(w, r, (&url.URL{Path: "/in/" + listed[0].Name + "/databases"}).String(), http.StatusSeeOther)
	default:
		http.NotFound(w, r)
	}
}

// of returns the handler of a database.
func (s *Several) of(name string) http.Handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, d := range s.all {
		if other != name && time.Since(d.last) > unseen {
			delete(s.all, other)
			go d.Close() // it waits for running actions
		}
	}
	d := s.all[name]
	if d == nil {
		c := s.config
		c.Prefix = "/in/" + name
		b := newBoard(c, s.hidden, s.list)
		d = &shown{board: b, handler: below(c.Prefix, b.handler)}
		s.all[name] = d
	}
	d.last = time.Now()
	if t, open := s.target(name); open && d.store != any(t.Store) {
		d.store = t.Store
		d.Show(t)
	}
	return d.handler
}

// Change replaces the access; see [Dashboard.Change].
func (s *Several) Change(a Access) error { return s.gate.Change(a) }

// Close closes the pages of all databases; see [Dashboard.Close].
func (s *Several) Close() {
	s.board.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, d := range s.all {
		d.Close()
		delete(s.all, name)
	}
}
