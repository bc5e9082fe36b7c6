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
	"github.com/waybill-go/waybill/framework/store"
)

func status(ctx context.Context, r *request) (any, error) {
	if _, err := r.query(); err != nil {
		return nil, err
	}
	return answered(r.Admin.Status(ctx, r.Routing.Routes))
}

// sinkView is a sink with its figures. Those that are counted stop at store.PendingLimit.
type sinkView struct {
	Sink       string  `json:"sink"`
	Paused     bool    `json:"paused"`
	Pending    int     `json:"pending"`
	LagSeconds float64 `json:"lag_seconds"`
	// Lanes that have a forwarder, and that have none.
	Owned      int               `json:"lanes_owned"`
	Free       int               `json:"lanes_free"`
	Parked     map[string]int    `json:"parked"`
	Overdue    int               `json:"overdue"`
	DeadKeys   int               `json:"dead_keys"`
	Conditions []store.Condition `json:"conditions"`
}

func (s sinkView) dead() int { return s.Parked[string(store.StateDead)] }

// sample looks at all sinks.
func (r *request) sample(ctx context.Context) (views []sinkView, forwarders int, err error) {
	sample, err := r.Store.Sample(ctx, store.SampleQuery{Types: r.Routing.Filters()})
	if err != nil {
		return nil, 0, err
	}
	membership, err := r.Store.Membership(ctx)
	if err != nil {
		return nil, 0, err
	}
	conditions := membership.Conditions(time.Now())
	views = []sinkView{}
	for _, s := range sample.Sinks {
		v := sinkView{
			Sink: s.Sink, Paused: s.Paused, Pending: s.Pending, LagSeconds: s.Lag.Seconds(), Owned: s.Owned, Free: s.Free,
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
	return views, sample.Forwarders, nil
}

// sampleOf is that of the sink in the path.
func (r *request) sampleOf(ctx context.Context) (view sinkView, forwarders int, err error) {
	name, err := r.name("sink")
	if err != nil {
		return view, 0, err
	}
	views, forwarders, err := r.sample(ctx)
	if err != nil {
		return view, 0, err
	}
	names := make([]string, len(views))
	for i, v := range views {
		if names[i] = v.Sink; v.Sink == name {
			return v, forwarders, nil
		}
	}
	return view, 0, fmt.Errorf("%w %q: the outbox knows %s", store.ErrUnknownSink, name, cmp.Or(strings.Join(names, ", "), "none yet"))
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
	Healthy bool         `json:"healthy"`
	Sinks   []sinkHealth `json:"sinks"`
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
	return r.health(ctx, func() ([]sinkView, int, error) { return r.sample(ctx) })
}

func healthOfSink(ctx context.Context, r *request) (any, error) {
	return r.health(ctx, func() ([]sinkView, int, error) {
		view, forwarders, err := r.sampleOf(ctx)
		return []sinkView{view}, forwarders, err
	})
}

// health is 200 or 503, with the same body.
func (r *request) health(_ context.Context, look func() ([]sinkView, int, error)) (any, error) {
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
	views, forwarders, err := look()
	if err != nil {
		return nil, err
	}
	answer := &reply{status: http.StatusOK}
	health := healthView{Healthy: true, Sinks: []sinkHealth{}}
	for _, v := range views {
		reasons := v.ills(maxLag, maxDead, forwarders)
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
