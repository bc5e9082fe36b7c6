package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard/internal/history"
	"github.com/waybill-go/waybill/framework/store"
)

func status(ctx context.Context, r *request) (any, error) {
	if _, err := r.query(); err != nil {
		return nil, err
	}
	look, err := r.API.History.Wait(ctx)
	if err != nil {
		return nil, err
	}
	return admin.StatusOf(look.At, look.Sample.Status(look.Holders), look.Membership), nil
}

// sinkView is a sink with its figures. Those that are counted stop at store.PendingLimit.
type sinkView struct {
	// SampledAt is when the outbox was looked at.
	SampledAt  time.Time `json:"sampled_at"`
	Sink       string    `json:"sink"`
	Paused     bool      `json:"paused"`
	Pending    int       `json:"pending"`
	LagSeconds float64   `json:"lag_seconds"`
	// Lanes that have a forwarder, and that have none.
	Owned      int               `json:"lanes_owned"`
	Free       int               `json:"lanes_free"`
	Parked     map[string]int    `json:"parked"`
	Overdue    int               `json:"overdue"`
	DeadKeys   int               `json:"dead_keys"`
	Conditions []store.Condition `json:"conditions"`
}

func (s sinkView) dead() int { return s.Parked[string(store.StateDead)] }

// sample is the last look at all sinks.
func (r *request) sample(ctx context.Context) (views []sinkView, look history.Look, err error) {
	if look, err = r.API.History.Wait(ctx); err != nil {
		return nil, look, err
	}
	conditions := look.Membership.Conditions(time.Now())
	views = []sinkView{}
	for _, s := range look.Sample.Sinks {
		v := sinkView{
			SampledAt: look.At.UTC(), Sink: s.Sink, Paused: s.Paused, Pending: s.Pending, LagSeconds: s.Lag.Seconds(), Owned: s.Owned, Free: s.Free,
			Parked: make(map[string]int), Overdue: s.Parked.Overdue, DeadKeys: s.Parked.DeadKeys, Conditions: []store.Condition{},
		}
		for _, p := range s.Parked.States {
			v.Parked[string(p.State)] = p.Count
		}
		for _, c := range conditions {
			if c.Sink == s.Sink {
				v.Conditions = append(v.Conditions, c)
			}
		}
		views = append(views, v)
	}
	return views, look, nil
}

// sampleOf is that of the sink in the path.
func (r *request) sampleOf(ctx context.Context) (view sinkView, look history.Look, err error) {
	name, err := r.name("sink")
	if err != nil {
		return view, look, err
	}
	views, look, err := r.sample(ctx)
	if err != nil {
		return view, look, err
	}
	names := make([]string, len(views))
	for i, v := range views {
		if names[i] = v.Sink; v.Sink == name {
			return v, look, nil
		}
	}
	return view, look, fmt.Errorf("%w %q: the outbox knows %s", store.ErrUnknownSink, name, cmp.Or(strings.Join(names, ", "), "none yet"))
}

func sinks(ctx context.Context, r *request) (any, error) {
	if _, err := r.query(); err != nil {
		return nil, err
	}
	views, _, err := r.sample(ctx)
	return map[string]any{"sinks": views}, err
}

func sink(ctx context.Context, r *request) (any, error) {
	if _, err := r.query(); err != nil {
		return nil, err
	}
	view, _, err := r.sampleOf(ctx)
	return view, err
}

func pause(ctx context.Context, r *request) (any, error) {
	return r.setPaused(ctx, true, (*admin.Admin).Pause)
}

func resume(ctx context.Context, r *request) (any, error) {
	return r.setPaused(ctx, false, (*admin.Admin).Resume)
}

func (r *request) setPaused(ctx context.Context, paused bool, set func(*admin.Admin, context.Context, ...string) ([]string, error)) (any, error) {
	name, err := r.name("sink")
	if err != nil {
		return nil, err
	}
	var body struct {
		Reason string `json:"reason"`
	}
	if err := r.decode(&body, true); err != nil {
		return nil, err
	}
	if !isText(body.Reason) {
		return nil, problemOf(http.StatusBadRequest, "the reason has a NUL")
	}
	changed, err := set(r.Admin.For(admin.Request{Address: r.User.Address, Reason: body.Reason}), ctx, name)
	if err != nil {
		return nil, err
	}
	return map[string]any{"sink": name, "paused": paused, "changed": len(changed) > 0}, nil
}

// defaultMaxLag is how late a healthy sink may be.
const defaultMaxLag = 5 * time.Minute

// healthView is whether sinks are healthy.
type healthView struct {
	SampledAt time.Time    `json:"sampled_at"`
	Healthy   bool         `json:"healthy"`
	Sinks     []sinkHealth `json:"sinks"`
}

// sinkHealth is whether one is, and why not.
type sinkHealth struct {
	Sink    string   `json:"sink"`
	Healthy bool     `json:"healthy"`
	Reasons []reason `json:"reasons"`
}

// reason is why a sink is not healthy: a code for programs, and a text.
type reason struct {
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

func healthOfSinks(ctx context.Context, r *request) (any, error) {
	return r.health(ctx, func() ([]sinkView, history.Look, error) { return r.sample(ctx) })
}

func healthOfSink(ctx context.Context, r *request) (any, error) {
	return r.health(ctx, func() ([]sinkView, history.Look, error) {
		view, look, err := r.sampleOf(ctx)
		return []sinkView{view}, look, err
	})
}

// health is 200 or 503, with the same body.
func (r *request) health(_ context.Context, look func() ([]sinkView, history.Look, error)) (any, error) {
	values, err := r.query("max_lag", "max_dead")
	if err != nil {
		return nil, err
	}
	maxLag, err := span(values, "max_lag", defaultMaxLag)
	if err != nil {
		return nil, err
	}
	maxDead, err := number(values, "max_dead", 0, 0, store.PendingLimit-1)
	if err != nil {
		return nil, err
	}
	views, seen, err := look()
	if err != nil {
		return nil, err
	}
	answer := &reply{status: http.StatusOK}
	health := healthView{SampledAt: seen.At.UTC(), Healthy: true, Sinks: []sinkHealth{}}
	for _, v := range views {
		reasons := v.ills(maxLag, maxDead, seen.Sample.Forwarders)
		health.Sinks = append(health.Sinks, sinkHealth{v.Sink, len(reasons) == 0, reasons})
		health.Healthy = health.Healthy && len(reasons) == 0
	}
	if !health.Healthy {
		answer.status = http.StatusServiceUnavailable
	}
	answer.body = health
	return answer, nil
}

// ills are the reasons for which a sink is not healthy.
func (s sinkView) ills(maxLag time.Duration, maxDead, forwarders int) []reason {
	ills := []reason{}
	ill := func(code, format string, args ...any) {
		ills = append(ills, reason{code, fmt.Sprintf(format, args...)})
	}
	if s.Paused {
		ill("paused", "a person has paused it")
	}
	if i := slices.IndexFunc(s.Conditions, func(c store.Condition) bool {
		return c.Kind == store.ConditionBreakerOpen && c.Destination == ""
	}); i >= 0 {
		c := s.Conditions[i]
		ill("breaker_open", "its breaker is open since %s at %s: %s", c.Since.UTC().Format(time.RFC3339), c.Forwarder, c.Cause)
	}
	if lag := time.Duration(s.LagSeconds * float64(time.Second)); lag > maxLag {
		ill("lag", "the oldest pending notification occurred %s ago, and %s is allowed", lag.Round(time.Second), maxLag)
	}
	if s.dead() > maxDead {
		ill("dead", "%d deliveries are dead, and %d are allowed", s.dead(), maxDead)
	}
	switch {
	case forwarders == 0:
		ill("no_forwarder", "no forwarder lives")
	case s.Free > 0 && !s.Paused:
		ill("lanes_unowned", "%d of %d lanes have no forwarder", s.Free, s.Free+s.Owned)
	}
	return ills
}
