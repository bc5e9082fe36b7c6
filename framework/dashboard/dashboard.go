// Package dashboard shows an outbox to people, as web pages, and to programs, as the admin API.
//
//	d, err := dashboard.New(dashboard.Config{})
//	defer d.Close()
//	defer d.Show(dashboard.Target{Store: store, Forwarder: f})()
//	http.ListenAndServe("127.0.0.1:8090", d)
//
// All that it does is also done by the command line, which needs no running process:
// both use package admin.
package dashboard

import (
	"log/slog"
	"net/http"

	"github.com/waybill-go/waybill/framework/dashboard/internal/acts"
	"github.com/waybill-go/waybill/framework/dashboard/internal/history"
	"github.com/waybill-go/waybill/framework/dashboard/internal/pages"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
)

// Target is an outbox to show.
type Target = target.Target

// Config is what a dashboard works with. The zero value is the usual one.
type Config struct {
	// Prefix is the path below which it is served, such as /admin/outbox. Requests come with
	// it.
	Prefix string
	// Logger gets a line for each request that fails for a reason of ours; default: slog's.
	Logger *slog.Logger
}

// Dashboard is an http.Handler. It is safe for concurrent use.
type Dashboard struct {
	current target.Current
	acts    *acts.Runner
	history *history.History
	pages   *pages.Pages
	handler http.Handler
}

// New returns a dashboard that shows nothing yet.
func New(c Config) (*Dashboard, error) {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	d := &Dashboard{acts: acts.New(c.Logger)}
	d.history = history.New(&d.current, c.Logger)
	d.pages = pages.New(pages.Config{Target: &d.current, Acts: d.acts, History: d.history, Prefix: c.Prefix, Logger: c.Logger})
	d.handler = http.StripPrefix(c.Prefix, d.pages)
	return d, nil
}

// Close ends live figures, interrupts the actions that it runs, each between two batches, and
// waits for that. A server that waits for its requests to end is shut down behind it.
func (d *Dashboard) Close() {
	d.pages.Close()
	d.acts.Close()
	d.history.Close()
}

// Show makes an outbox the one that is shown, in place of the one before. From then on the
// dashboard looks at its figures every ten seconds, until Close. release ends that the outbox is
// shown, unless another one is by then.
func (d *Dashboard) Show(t Target) (release func()) {
	release = d.current.Show(t)
	d.history.Begin()
	return release
}

// ServeHTTP serves the pages and the API.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }
