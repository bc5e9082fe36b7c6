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
)

// docs is where the links of findings lead.
const docs = "https://github.com/waybill-go/waybill/blob/main/"

// checkup makes the doctor's checks in the background, one after the other and one run at a
// time, and keeps the last run. It is safe for concurrent use.
type checkup struct {
	acts    *acts.Runner
	current *target.Current

	mu   sync.Mutex
	last run
}

// run is one run of all checks.
type run struct {
	// Who began it, and when; zero: there was none in this process. Ended is zero while it
	// goes on.
	Who          string
	Began, Ended time.Time
	Findings     []doctor.Finding
	// Done is how many checks were looked at, of All.
	Done, All int
	// Interrupted says that it ended before its time.
	Interrupted bool
}

// Running reports whether it goes on.
func (r run) Running() bool { return !r.Began.IsZero() && r.Ended.IsZero() }

type doctorPage struct {
	run
	// Can says that this process can make the checks.
	Can bool
	// Counts are how many findings have each status, from bad to good.
	Counts []statusCount
	// Status is the one that is selected; "" for all.
	Status string
	// Shown are the findings of that status, failing ones first.
	Shown []doctor.Finding
	// Checks are what there is to look at.
	Checks []doctor.Check
}

type statusCount struct {
	Status doctor.Status
	Count  int
}

// statuses are in the order in which people look at them.
var statuses = []doctor.Status{doctor.Fail, doctor.Warn, doctor.Skip, doctor.OK}

// Docs is the address of a finding's section.
func (doctorPage) Docs(link string) string { return docs + link }

// Class is that of a status's badge.
func (doctorPage) Class(s doctor.Status) string {
	return map[doctor.Status]string{doctor.OK: "good", doctor.Warn: "warn", doctor.Fail: "bad"}[s]
}

// SQL reports whether a fix is some, rather than a key or a command.
func (doctorPage) SQL(fix string) bool {
	return strings.Contains(fix, "\n") || strings.HasSuffix(strings.TrimSpace(fix), ";")
}

// look shows the last run.
func (c *checkup) look(_ context.Context, r *request) (any, error) {
	page := doctorPage{Can: r.Doctor != nil, Status: r.FormValue("status"), Checks: doctor.Checks()}
	if page.Status != "" && !slices.Contains(statuses, doctor.Status(page.Status)) {
		return nil, problem{http.StatusBadRequest, "there is no such status: use fail, warn, skip or ok"}
	}
	c.mu.Lock()
	page.run = c.last
	page.Findings = slices.Clone(c.last.Findings)
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

// start begins a run, unless one goes on.
func (c *checkup) start(_ context.Context, r *request) (any, error) {
	if err := r.operates(); err != nil {
		return nil, err
	}
	if r.Doctor == nil {
		return nil, problem{http.StatusNotFound, "this process cannot make the checks: use waybill doctor"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.last.Running() {
		c.last = run{Who: r.User.Name, Began: time.Now(), All: len(doctor.IDs())}
		c.acts.Go(func(ctx context.Context) { c.make(ctx, r.Target) })
	}
	return goTo{path: "/doctor"}, nil
}

// make makes each check by itself, so that what is found is there at once. It ends early when
// the outbox is shown no more: its database is closed then.
func (c *checkup) make(ctx context.Context, t *target.Target) {
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
