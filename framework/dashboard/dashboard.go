// Package dashboard shows an outbox to people, as web pages, and to programs, as the admin API.
//
//	d, err := dashboard.New(dashboard.Config{})
//	defer d.Show(dashboard.Target{Store: store, Forwarder: f})()
//	http.ListenAndServe("127.0.0.1:8090", d)
//
// All that it does is also done by the command line, which needs no running process:
// both use package admin.
package dashboard

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/waybill-go/waybill/framework/dashboard/internal/acts"
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
	// Masks are what operators do not see of payloads, as JSON paths by type (order.placed), the
	// beginning of types (order.*) or * for all: {"customer.*": {"$.email", "$.card.number"}}.
	// Of a type with masks a payload that is not JSON is not shown at all.
	Masks map[string][]string
	// Logger gets a line for each request that fails for a reason of ours, and for each payload
	// that is looked at; default: slog's.
	Logger *slog.Logger
}

// Dashboard is an http.Handler. It is safe for concurrent use.
type Dashboard struct {
	current target.Current
	acts    *acts.Runner
	handler http.Handler
}

// New returns a dashboard that shows nothing yet.
func New(c Config) (*Dashboard, error) {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	masks, err := pages.ParseMasks(c.Masks)
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	d := &Dashboard{acts: acts.New(c.Logger)}
	d.handler = http.StripPrefix(c.Prefix, pages.New(pages.Config{Target: &d.current, Acts: d.acts, Prefix: c.Prefix, Logger: c.Logger, Masks: masks}))
	return d, nil
}

// Close interrupts the actions that it runs, each between two batches, and waits for that.
func (d *Dashboard) Close() { d.acts.Close() }

// Show makes an outbox the one that is shown, in place of the one before. release ends that,
// unless another one is shown by then.
func (d *Dashboard) Show(t Target) (release func()) { return d.current.Show(t) }

// ServeHTTP serves the pages and the API.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }
