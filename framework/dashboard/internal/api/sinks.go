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
	snapshot, err := r.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return snapshot.Status(snapshot.Holders), nil
}

// snapshot returns a sample of the outbox.
func (r *request) snapshot(ctx context.Context) (history.Snapshot, error) {
	snapshot, err := r.API.History.Wait(ctx)
	return r.Store.Snapshot(snapshot), err
}

// sinkView is a sink with its figures. Counts of parked deliveries stop at store.ParkedLimit.
type sinkView struct {
	// SampledAt is the time of the sample.
	SampledAt  time.Time `json:"sampled_at"`
	Sink       string    `json:"sink"`
	Paused     bool      `json:"paused"`
	Pending    int       `json:"pending"`
	Estimated  bool      `json:"estimated,omitempty"` // Pending is an estimate
	LagSeconds float64   `json:"lag_seconds"`
	// Owned counts the lanes that have a forwarder, Free the others.
	Owned       int             `json:"lanes_owned"`
	Free        int             `json:"lanes_free"`
	Parked      map[string]int  `json:"parked"`
	Overdue     int             `json:"overdue"`
	Collections int             `json:"collections"`
	DeadKeys    int             `json:"dead_keys"`
	Troubles    []admin.Trouble `json:"troubles"`
}

// sample returns the figures of all sinks.
func (r *request) sample(ctx context.Context) (views []sinkView, snapshot history.Snapshot, err error) {
	if snapshot, err = r.snapshot(ctx); err != nil {
		return nil, snapshot, err
	}
	views = []sinkView{}
	for _, s := range snapshot.Sample.Sinks {
		v := sinkView{
			SampledAt: snapshot.At.UTC(), Sink: s.Sink, Paused: s.Paused, Pending: s.Pending, Estimated: s.Estimated, LagSeconds: s.Lag.Seconds(), Owned: s.Owned, Free: s.Free,
			Parked: make(map[string]int), Overdue: s.Parked.Overdue, Collections: s.Parked.Collections, DeadKeys: s.Parked.DeadKeys, Troubles: append([]admin.Trouble{}, snapshot.Troubles(&s, admin.Usual)...),
		}
		for _, p := range s.Parked.States {
			v.Parked[string(p.State)] = p.Count
		}
		views = append(views, v)
	}
	return views, snapshot, nil
}

// sampleOf returns the figures of the sink in the path.
func (r *request) sampleOf(ctx context.Context) (view sinkView, snapshot history.Snapshot, err error) {
	name := r.PathValue("sink")
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
	views, _, err := r.sample(ctx)
	return map[string]any{"sinks": views}, err
}

func sink(ctx context.Context, r *request) (any, error) {
	view, snapshot, err := r.sampleOf(ctx)
	if err != nil {
		return nil, err
	}
	unknown, err := r.Admin.UnknownTypes(ctx, &snapshot.Look, view.Sink)
	view.Troubles = append(view.Troubles, unknown...)
	return view, err
}

// onSink returns the handler of an operation on the sink in the path.
func onSink(operation string) handler {
	o, _ := admin.Named(admin.OnSinks, operation)
	return func(ctx context.Context, r *request) (any, error) { return r.onSink(ctx, o) }
}

func (r *request) onSink(ctx context.Context, o admin.Operation) (any, error) {
	name := r.PathValue("sink")
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
	snapshot, err := r.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return r.health(snapshot, snapshot.Sample.Sinks)
}

func healthOfSink(ctx context.Context, r *request) (any, error) {
	view, snapshot, err := r.sampleOf(ctx)
	if err != nil {
		return nil, err
	}
	return r.health(snapshot, slices.DeleteFunc(slices.Clone(snapshot.Sample.Sinks), func(s store.SinkSample) bool { return s.Sink != view.Sink }))
}

// health answers 200 if all sinks are healthy and 503 if not, with a body of the same form.
func (r *request) health(snapshot history.Snapshot, sinks []store.SinkSample) (any, error) {
	var tolerance admin.Tolerance
	var err error
	if tolerance.Lag, err = r.span("max_lag", admin.LateAfter); err != nil {
		return nil, err
	}
	if tolerance.Dead, err = r.number("max_dead", 0, 0, store.PendingLimit-1); err != nil {
		return nil, err
	}
	health := healthView{SampledAt: snapshot.At.UTC(), Healthy: true, Sinks: []sinkHealth{}}
	for _, s := range sinks {
		reasons := []reason{}
		for _, t := range snapshot.Troubles(&s, tolerance) {
			if t.Destination == "" && !slices.Contains(bearable, t.What) {
				reasons = append(reasons, reason{t.What, t.Text})
			}
		}
		health.Sinks = append(health.Sinks, sinkHealth{s.Sink, len(reasons) == 0, reasons})
		health.Healthy = health.Healthy && len(reasons) == 0
	}
	answer := &reply{status: http.StatusOK, body: health}
	if !health.Healthy {
		answer.status = http.StatusServiceUnavailable
	}
	return answer, nil
}

// bearable are the troubles that leave a sink healthy, as do those of single destinations.
var bearable = []string{admin.Throttled, admin.Overdue, admin.HookFails, admin.Destinations}
