package dashboard

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/dashboard/internal/pages"
)

// Listed is a database in the list of [Several]: its Name, its State, and in Error why no forwarder works on
// it, "" if there is no error.
type Listed = pages.Listed

// Several shows several databases, each with a Dashboard below /in/NAME whose pages list all of
// them. It does not query a database before someone opens its pages. It is safe for concurrent use.
type Several struct {
	config Config
	list   func() []Listed
	target func(name string) (Target, bool)

	mu  sync.Mutex
	all map[string]*shown
}

// shown is a database whose pages someone has opened.
type shown struct {
	*Dashboard
	store any
	last  time.Time
}

// unseen is how long a database without requests stays shown.
const unseen = 10 * time.Minute

// NewSeveral returns a dashboard of the databases that list returns, in that order. target returns
// the Target of a database, and false if this process has not opened it. The configuration must not
// have a Prefix.
func NewSeveral(c Config, list func() []Listed, target func(name string) (Target, bool)) (*Several, error) {
	d, err := New(c) // check the configuration, which all dashboards share
	if err != nil {
		return nil, err
	}
	d.Close()
	return &Several{config: c, list: list, target: target, all: make(map[string]*shown)}, nil
}

// ServeHTTP serves the pages and the API of each database, and the list of all databases.
func (s *Several) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	listed := s.list()
	rest, below := strings.CutPrefix(r.URL.Path, "/in/")
	name, _, _ := strings.Cut(rest, "/")
	switch {
	case below && slices.ContainsFunc(listed, func(l Listed) bool { return l.Name == name }):
		if d := s.of(name); d != nil {
			d.ServeHTTP(w, r)
			return
		}
		http.Error(w, "making the dashboard failed", http.StatusInternalServerError)
	case r.URL.Path == "/" && len(listed) > 0:
		http.Redirect(w, r, (&url.URL{Path: "/in/" + listed[0].Name + "/databases"}).String(), http.StatusSeeOther)
	default:
		http.NotFound(w, r)
	}
}

// of returns the dashboard of a database.
func (s *Several) of(name string) *Dashboard {
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
		c.Prefix, c.list = "/in/"+name, s.list
		made, err := New(c)
		if err != nil { // cannot happen: NewSeveral and Change have checked it
			return nil
		}
		d = &shown{Dashboard: made}
		s.all[name] = d
	}
	d.last = time.Now()
	if t, open := s.target(name); open && d.store != any(t.Store) {
		d.store = t.Store
		d.Show(t)
	}
	return d.Dashboard
}

// Change replaces the access of all dashboards; see [Dashboard.Change].
func (s *Several) Change(a Access) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.config
	c.Access = a
	d, err := New(c)
	if err != nil {
		return err
	}
	d.Close()
	s.config = c
	for _, shown := range s.all {
		if err := shown.Change(a); err != nil {
			return err
		}
	}
	return nil
}

// Close closes all dashboards; see [Dashboard.Close].
func (s *Several) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, d := range s.all {
		d.Close()
		delete(s.all, name)
	}
}
