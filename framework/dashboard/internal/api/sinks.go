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
	snapshot, err := r.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return admin.StatusOf(snapshot.At, snapshot.Sample.Status(snapshot.Holders), snapshot.Membership), nil
}

// snapshot returns a sample of the outbox.
func (r *request) snapshot(ctx context.Context) (history.Snapshot, error) {
	snapshot, err := r.API.History.Wait(ctx)
	return r.Store.Snapshot(snapshot), err
}

// sinkView is a sink with its figures. Counts stop at store.PendingLimit.
type sinkView struct {
	// SampledAt is the time of the sample.
	SampledAt  time.Time `json:"sampled_at"`
	Sink       string    `json:"sink"`
	Paused     bool      `json:"paused"`
	Pending    int       `json:"pending"`
	LagSeconds float64   `json:"lag_seconds"`
	// Owned counts the lanes that have a forwarder, Free the others.
	Owned      int               `json:"lanes_owned"`
	Free       int               `json:"lanes_free"`
	Parked     map[string]int    `json:"parked"`
	Overdue    int               `json:"overdue"`
	DeadKeys   int               `json:"dead_keys"`
	Conditions []store.Condition `json:"conditions"`
}

func (s sinkView) dead() int { return s.Parked[string(store.StateDead)] }

// sample returns the figures of all sinks.
func (r *request) sample(ctx context.Context) (views []sinkView, snapshot history.Snapshot, err error) {
	if snapshot, err = r.snapshot(ctx); err != nil {
		return nil, snapshot, err
	}
	conditions := snapshot.Membership.Conditions(time.Now())
	views = []sinkView{}
	for _, s := range snapshot.Sample.Sinks {
		v := sinkView{
			SampledAt: snapshot.At.UTC(), Sink: s.Sink, Paused: s.Paused, Pending: s.Pending, LagSeconds: s.Lag.Seconds(), Owned: s.Owned, Free: s.Free,
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
	return views, snapshot, nil
}

// sampleOf returns the figures of the sink in the path.
func (r *request) sampleOf(ctx context.Context) (view sinkView, snapshot history.Snapshot, err error) {
	name, err := r.name("sink")
	if err != nil {
		return view, snapshot, err
	}
	views, snapshot, err := r.sample(ctx)
	if err != nil {
		return view, snapshot, err
	}
	names := make([]string, len(views))
	for i, v := range views {
		if names[i] = v.Sink; v.Sink == name {
			return v, snapshot, nil
		}
	}
	return view, snapshot, fmt.Errorf("%w %q: the outbox knows %s", store.ErrUnknownSink, name, cmp.Or(strings.Join(names, ", "), "none yet"))
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

// onSink returns the handler of an operation on the sink in the path.
func onSink(operation string) handler {
	o, _ := admin.Named(admin.OnSinks, operation)
	return func(ctx context.Context, r *request) (any, error) { return r.onSink(ctx, o) }
}

func (r *request) onSink(ctx context.Context, o admin.Operation) (any, error) {
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
	changed, err := r.Admin.For(admin.Request{Address: r.User.Address, Reason: body.Reason}).Do(ctx, o, name)
	if err != nil {
		return nil, err
	}
	return map[string]any{"sink": name, "paused": o.Name == "pause", "changed": len(changed) > 0}, nil
}

// defaultMaxLag is the maximum lag of a healthy sink.
const defaultMaxLag = 5 * time.Minute

// healthView reports whether sinks are healthy.
type healthView struct {
	SampledAt time.Time    `json:"sampled_at"`
	Healthy   bool         `json:"healthy"`
	Sinks     []sinkHealth `json:"sinks"`
}

// sinkHealth reports whether a sink is healthy, and why not.
type sinkHealth struct {
	Sink    string   `json:"sink"`
	Healthy bool     `json:"healthy"`
	Reasons []reason `json:"reasons"`
}

// reason is why a sink is unhealthy: a code for programs, and a text.
type reason struct {
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

func healthOfSinks(ctx context.Context, r *request) (any, error) {
	return r.health(ctx, func() ([]sinkView, history.Snapshot, error) { return r.sample(ctx) })
}

func healthOfSink(ctx context.Context, r *request) (any, error) {
	return r.health(ctx, func() ([]sinkView, history.Snapshot, error) {
		view, snapshot, err := r.sampleOf(ctx)
		return []sinkView{view}, snapshot, err
	})
}

// health answers 200 if all sinks are healthy and 503 if not, with a body of the same form.
func (r *request) health(_ context.Context, sample func() ([]sinkView, history.Snapshot, error)) (any, error) {
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
	views, snapshot, err := sample()
	if err != nil {
		return nil, err
	}
	answer := &reply{status: http.StatusOK}
	health := healthView{SampledAt: snapshot.At.UTC(), Healthy: true, Sinks: []sinkHealth{}}
	for _, v := range views {
		reasons := v.unhealthy(maxLag, maxDead, snapshot.Sample.Forwarders, snapshot.Membership.Unowned(v.Sink))
		health.Sinks = append(health.Sinks, sinkHealth{v.Sink, len(reasons) == 0, reasons})
		health.Healthy = health.Healthy && len(reasons) == 0
	}
	if !health.Healthy {
		answer.status = http.StatusServiceUnavailable
	}
	answer.body = health
	return answer, nil
}

// unhealthy returns the reasons why a sink is unhealthy; none if it is healthy.
func (s sinkView) unhealthy(maxLag time.Duration, maxDead, forwarders, unowned int) []reason {
	reasons := []reason{}
	add := func(code, format string, args ...any) {
		reasons = append(reasons, reason{code, fmt.Sprintf(format, args...)})
	}
	if s.Paused {
		add("paused", "the sink is paused")
	}
	if i := slices.IndexFunc(s.Conditions, func(c store.Condition) bool {
		return c.Kind == store.ConditionBreakerOpen && c.Destination == ""
	}); i >= 0 {
		c := s.Conditions[i]
		add("breaker_open", "the breaker of %[2]s has been open since %[1]s: %[3]s", c.Since.UTC().Format(time.RFC3339), c.Forwarder, c.Cause)
	}
	if lag := time.Duration(s.LagSeconds * float64(time.Second)); lag > maxLag {
		add("lag", "the oldest pending notification occurred %s ago, and the limit is %s", lag.Round(time.Second), maxLag)
	}
	if s.dead() > maxDead {
		add("dead", "%d deliveries are dead, and the limit is %d", s.dead(), maxDead)
	}
	switch {
	case forwarders == 0:
		add("no_forwarder", "no forwarder is running")
	case unowned > 0:
		add("lanes_unowned", "%d of %d lanes have no forwarder", unowned, s.Free+s.Owned)
	}
	return reasons
}
