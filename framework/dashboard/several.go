package dashboard

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// listed is a database of a list whose pages someone has opened.
type listed struct {
	*board
	handler http.Handler
	store   any
	last    time.Time
}

// unseen is how long a database without requests stays shown.
const unseen = 10 * time.Minute

// serveListed serves the databases of a list to users that the gate has let in.
func (d *Dashboard) serveListed(w http.ResponseWriter, r *http.Request) {
	all := d.config.List()
	rest, below := strings.CutPrefix(r.URL.Path, "/in/")
	name, _, _ := strings.Cut(rest, "/")
	switch {
	case all == nil:
		d.board.handler.ServeHTTP(w, r)
	case below && slices.ContainsFunc(all, func(l Listed) bool { return l.Name == name }):
		d.of(name).ServeHTTP(w, r)
	case r.URL.Path == "/" && len(all) > 0:
		http.Redirect(w, r, (&url.URL{Path: "/in/" + all[0].Name + "/databases"}).String(), http.StatusSeeOther)
	default:
		http.NotFound(w, r)
	}
}

// of returns the handler of a database.
func (d *Dashboard) of(name string) http.Handler {
	d.mu.Lock()
	defer d.mu.Unlock()
	for other, its := range d.all {
		if other != name && time.Since(its.last) > unseen {
			delete(d.all, other)
			go its.close() // it waits for running actions
		}
	}
	its := d.all[name]
	if its == nil {
		c := d.config
		c.Prefix = "/in/" + name
		b := newBoard(c, c.List)
		its = &listed{board: b, handler: below(c.Prefix, b.handler)}
		d.all[name] = its
	}
	its.last = time.Now()
	if t, open := d.config.Open(name); open && its.store != any(t.Store) {
		its.store = t.Store
		its.Show(t)
	}
	return its.handler
}
