package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/doctor"
)

func schedules(ctx context.Context, r *request) (any, error) {
	rows, err := r.Admin.Schedules(ctx)
	views := make([]admin.ScheduleView, len(rows))
	for i, row := range rows {
		views[i] = admin.ViewOfSchedule(row)
	}
	return map[string]any{"schedules": views}, err
}

func forwarders(ctx context.Context, r *request) (any, error) {
	all, err := r.Admin.Forwarders(ctx)
	return map[string]any{"forwarders": all}, err
}

func types(ctx context.Context, r *request) (any, error) {
	rows, err := r.number("rows", 10_000, 1, 1_000_000)
	if err != nil {
		return nil, err
	}
	counts, err := r.Admin.Types(ctx, rows)
	if err != nil {
		return nil, err
	}
	routing, err := r.Admin.Beside(ctx, r.Routing)
	return map[string]any{"types": admin.Types(counts, routing, r.Types)}, err
}

// schema returns the JSON Schema of a type's version.
func schema(_ context.Context, r *request) (any, error) {
	name := r.PathValue("type")
	version, err := strconv.Atoi(r.PathValue("version"))
	if err != nil || version < 1 {
		return nil, problemOf(http.StatusBadRequest, "the version is %q: use a number from 1", r.PathValue("version"))
	}
	c, _ := target.ContractOf(r.Target, name, version)
	if c == nil {
		return nil, problemOf(http.StatusNotFound, "there is no contract of %s", contract.About{Type: name, Version: version})
	}
	return json.RawMessage(c.Text), nil
}

func configuration(_ context.Context, r *request) (any, error) {
	if r.Configuration == nil {
		return nil, problemOf(http.StatusNotFound, "this process has no configuration to show")
	}
	text, err := r.Configuration()
	if err != nil {
		return nil, err
	}
	var shown map[string]any
	if err := yaml.Unmarshal(text, &shown); err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return shown, nil
}

func diagnose(_ context.Context, r *request) (any, error) {
	only := slices.Clone(r.values["only"])
	if err := (doctor.Options{Only: only}).Validate(); err != nil {
		return nil, problemOf(http.StatusBadRequest, "%s", err)
	}
	switch {
	case !r.User.May(access.Operator):
		return nil, problemOf(http.StatusForbidden, "the checks need the role operator")
	case r.Doctor == nil:
		return nil, problemOf(http.StatusNotFound, "this process cannot run the checks")
	}
	ctx, cancel := r.longer(doctorTime)
	defer cancel()
	found, err := r.API.doctors.run(ctx, r.Target, only)
	return map[string]any{"findings": append([]doctor.Finding{}, r.Store.Findings(found)...)}, err
}

// longer returns a context for a request that takes longer than the server's deadlines and requestTime.
func (r *request) longer(d time.Duration) (context.Context, context.CancelFunc) {
	out := http.NewResponseController(r.body)
	_ = out.SetReadDeadline(time.Time{})
	_ = out.SetWriteDeadline(time.Now().Add(d + requestTime))
	return context.WithTimeout(r.Context(), d)
}

// checks runs the doctor's checks, one run at a time, and keeps the findings of the last run.
type checks struct {
	running sync.Mutex

	// of what the findings are: what was checked of which outbox, and when.
	target   *target.Target
	only     []string
	at       time.Time
	findings []doctor.Finding
}

// checksFresh is for how long requests for the same checks get the findings of the last run.
const checksFresh = 5 * time.Second

func (c *checks) run(ctx context.Context, t *target.Target, only []string) ([]doctor.Finding, error) {
	if !c.running.TryLock() {
		return nil, problemOf(http.StatusTooManyRequests, "the checks are already running for another request")
	}
	defer c.running.Unlock()
	if c.target == t && slices.Equal(c.only, only) && time.Since(c.at) < checksFresh {
		return c.findings, nil
	}
	found := t.Doctor(ctx, only...)
	if ctx.Err() == nil {
		c.target, c.only, c.at, c.findings = t, only, time.Now(), found
	}
	return found, nil
}
