package pages

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/dashboard/internal/acts"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/store"
)

// docs is the address to which the links of findings are relative.
const docs = "https://github.com/waybill-go/waybill/blob/main/"

// checkup runs the doctor's checks in the background, one run at a time, and keeps the last run.
// It is safe for concurrent use.
type checkup struct {
	acts    *acts.Runner
	current *target.Current

	mu   sync.Mutex
	last run
}

// run is one run of all checks.
type run struct {
	// Who started the run, and when. Began is zero if this process has had no run, Ended while
	// the run continues.
	Who          string
	Began, Ended time.Time
	Findings     []doctor.Finding
	// Done is how many of All checks have run.
	Done, All int
	// Interrupted says that the run ended before all checks had run.
	Interrupted bool
}

// Running reports whether the run continues.
func (r run) Running() bool { return !r.Began.IsZero() && r.Ended.IsZero() }

type doctorPage struct {
	run
	// Can says that this process can run the checks.
	Can bool
	// Counts has the number of findings of each status, from bad to good.
	Counts []statusCount
	// Status is the selected status; "" for all.
	Status string
	// Shown has the findings of that status, failures first.
	Shown []doctor.Finding
	// Checks describes all checks.
	Checks []doctor.Check
}

type statusCount struct {
	Status doctor.Status
	Count  int
}

// statuses has all statuses, from bad to good.
var statuses = []doctor.Status{doctor.Fail, doctor.Warn, doctor.Skip, doctor.OK}

// Docs returns the address of a finding's section.
func (doctorPage) Docs(link string) string { return docs + link }

// Class returns the CSS class of a status's badge.
func (doctorPage) Class(s doctor.Status) string {
	return map[doctor.Status]string{doctor.OK: "good", doctor.Warn: "warn", doctor.Fail: "bad"}[s]
}

// remedies are the pages of the dashboard that help with a finding, and the texts of their links.
var remedies = map[string]*struct{ Path, Act string }{
	"dead": {"/parked?state=dead", "Requeue or discard"}, "halted-keys": {"/parked?state=dead", "Requeue or skip"},
	"overdue": {"/parked?state=retrying", "Look at them"}, "hooks": {"/parked?state=settling", "Look at them"},
	"unrouted": {"/parked?sink=" + store.SinkUnrouted, "Look at them"}, "types": {"/types", "Types"},
	"schedules": {"/schedules", "Schedules"}, "endpoints": {"/endpoints", "Endpoints"},
	"lag": {"/", "Overview"}, "sinks": {"/", "Overview"}, "forwarders": {"/forwarders", "Forwarders"}, "lanes": {"/forwarders", "Forwarders"},
}

// Remedy returns the page that helps with a finding; nil if there is none.
func (doctorPage) Remedy(id string) *struct{ Path, Act string } { return remedies[id] }

// SQL reports whether a fix is SQL rather than a key or a command.
func (doctorPage) SQL(fix string) bool {
	return strings.Contains(fix, "\n") || strings.HasSuffix(strings.TrimSpace(fix), ";")
}

// look shows the last run. Findings may contain errors of the database and of receivers.
func (c *checkup) look(_ context.Context, r *request) (any, error) {
	page := doctorPage{Can: r.Doctor != nil, Status: r.FormValue("status"), Checks: doctor.Checks()}
	if page.Status != "" && !slices.Contains(statuses, doctor.Status(page.Status)) {
		return nil, problem{http.StatusBadRequest, "there is no such status: use fail, warn, skip or ok"}
	}
	c.mu.Lock()
	page.run = c.last
	page.Findings = r.Store.Findings(c.last.Findings)
	c.mu.Unlock()
	for _, s := range statuses {
		n := 0
		for _, f := range page.Findings {
			if f.Status != s {
				continue
			}
			n++
			if cmp.Or(page.Status, string(s)) == string(s) {
				page.Shown = append(page.Shown, f)
			}
		}
		page.Counts = append(page.Counts, statusCount{s, n})
	}
	if page.Running() {
		return answer{refresh: 2 * time.Second, data: page}, nil
	}
	return page, nil
}

// start starts a run, unless one is running.
func (c *checkup) start(_ context.Context, r *request) (any, error) {
	if r.Doctor == nil {
		return nil, problem{http.StatusNotFound, "this process cannot run the checks: use waybill doctor"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.last.Running() {
		c.last = run{Who: r.User.Name, Began: time.Now(), All: len(doctor.IDs())}
		c.acts.Go(func(ctx context.Context) { c.run(ctx, r.Target) })
	}
	return goTo{path: "/doctor"}, nil
}

// run runs the checks one by one, so that the page shows each finding at once. It stops when the
// dashboard no longer shows the outbox, since its database may be closed.
func (c *checkup) run(ctx context.Context, t *target.Target) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.last.Ended, c.last.Interrupted = time.Now(), c.last.Done < c.last.All
	}()
	for _, id := range doctor.IDs() {
		if now, err := c.current.Get(); err != nil || now != t {
			return
		}
		found := t.Doctor(ctx, id)
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		c.last.Done++
		c.last.Findings = append(c.last.Findings, found...)
		c.mu.Unlock()
	}
}
