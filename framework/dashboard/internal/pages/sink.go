package pages

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/store"
)

// sinkPage is what the page of one sink shows.
type sinkPage struct {
	sinkRow
	Seen         seen
	Troubles     []trouble
	Lanes        []laneRow
	Destinations []store.Condition
	Settings     []setting
	// Paused is the latest pause or resume; nil: there was none of late.
	Paused *pausing
	// Action is the one that the request began; nil: none.
	Action *store.Action
	// Replays says whether the sink may be replayed to.
	Replays bool
}

// laneRow is a lane of a sink.
type laneRow struct {
	store.LaneState
	Pending int64
	Lag     time.Duration
}

// setting is one in effect.
type setting struct{ Name, Value string }

// pausing is a pause or resume.
type pausing struct {
	store.Action
	Reason string
}

// sink is the page of one sink.
func sink(ctx context.Context, r *request) (any, error) {
	look, err := r.look(ctx)
	if err != nil {
		return nil, err
	}
	name := r.PathValue("name")
	i := slices.IndexFunc(look.Sample.Sinks, func(s store.SinkSample) bool { return s.Sink == name })
	if i < 0 {
		return nil, unknownSink(name)
	}
	sample := look.Sample.Sinks[i]
	if look.Err == nil { // what a person has just done is seen at once
		if look.Membership, err = r.Store.Membership(ctx); err != nil {
			return nil, err
		}
		sample.Paused = slices.ContainsFunc(look.Membership.Lanes, func(l store.LaneState) bool { return l.Lane.Sink == name && l.Paused })
	}
	page := sinkPage{sinkRow: r.sinkRow(look, sample), Seen: seenOf(look), Replays: name != store.SinkUnrouted}
	page.Troubles = page.troubles(look)
	for i := range page.Troubles {
		page.Troubles[i].Sink = "" // it is this page's
	}
	if page.SinkSample.Paused {
		page.Troubles = slices.DeleteFunc(page.Troubles, func(t trouble) bool { return strings.HasPrefix(t.ID, "state ") }) // the page says more
	}
	page.Lanes = lanesOf(look.Membership, page.SinkSample)
	for _, c := range look.Membership.Conditions(time.Now()) {
		if c.Sink == name && c.Destination != "" {
			page.Destinations = append(page.Destinations, c)
		}
	}
	if r.Forwarder != nil {
		if s, works := r.Forwarder.Settings(name); works {
			page.Settings = settingsOf(s)
		}
	}
	if look.Err != nil {
		return page, nil // the rest would wait for the database
	}
	if page.sinkRow.Paused {
		if page.Paused, err = r.lastPause(ctx, name); err != nil {
			return nil, err
		}
	}
	return page, r.follow(ctx, &page)
}

// follow looks for the action that the query names.
func (r *request) follow(ctx context.Context, page *sinkPage) error {
	id := r.URL.Query().Get("action")
	if id == "" {
		return nil
	}
	action, err := r.Admin.Action(ctx, id)
	page.Action = &action
	return err
}

// actionsLooked is how many of the latest actions are looked through for a pause.
const actionsLooked = 100

// lastPause is the latest pause or resume of a sink; nil if it is not among the latest actions.
func (r *request) lastPause(ctx context.Context, sink string) (*pausing, error) {
	actions, err := r.Admin.Actions(ctx, actionsLooked)
	if err != nil {
		return nil, err
	}
	for _, a := range actions {
		var f admin.PauseFilter
		if (a.Name == "pause" || a.Name == "resume") && json.Unmarshal(a.Filter, &f) == nil && slices.Contains(f.Sinks, sink) {
			return &pausing{a, a.Reason}, nil
		}
	}
	return nil, nil
}

func lanesOf(m store.Membership, s store.SinkSample) (rows []laneRow) {
	for _, l := range m.Lanes {
		if l.Lane.Sink != s.Sink {
			continue
		}
		row := laneRow{LaneState: l}
		if i := slices.IndexFunc(s.Lanes, func(of store.LaneSample) bool { return of.Lane == l.Lane.Number }); i >= 0 {
			row.Pending, row.Lag = int64(s.Lanes[i].Pending), s.Lanes[i].Lag
		}
		rows = append(rows, row)
	}
	return rows
}

// settingsOf are the settings of a sink, by their keys in waybill.yaml.
func settingsOf(s forwarder.Sink) []setting {
	retry := fmt.Sprintf("%d attempts, %s to %s, × %g", s.Retry.MaxAttempts, compact(s.Retry.Initial), compact(s.Retry.Max), s.Retry.Multiplier)
	if s.Retry.MaxAge > 0 {
		retry += ", for " + compact(s.Retry.MaxAge) + " at most"
	}
	if n := len(s.Retry.Types); n > 0 {
		retry += fmt.Sprintf("; others for %d types", n)
	}
	breaker := "off"
	if !s.Breaker.Off {
		breaker = fmt.Sprintf("opens at %g%% failures among %d, tries at least each %s", s.Breaker.FailureShare*100, s.Breaker.Among, compact(s.Breaker.MaxPause))
	}
	rate := s.Rate.String()
	if rate == "" {
		rate = "not bounded"
	}
	parallelism := fmt.Sprintf("threshold %d, above it %s", s.Parallelism.Threshold, s.Parallelism.Above)
	if s.Parallelism.IsAdaptive() {
		parallelism = fmt.Sprintf("adaptive, %d to %d", s.Parallelism.Adaptive.Min, s.Parallelism.Adaptive.Max)
	}
	settings := []setting{
		{"parallelism", parallelism},
		{"timeout", compact(s.Timeout)},
		{"rate", rate},
		{"retry", retry},
		{"on_dead", string(s.OnDead)},
		{"on_unknown", "retry for " + compact(s.OnUnknown.RetryFor)},
		{"breaker", breaker},
	}
	if s.Fairness != "" {
		settings = append(settings, setting{"fairness", "by " + s.Fairness})
	}
	return settings
}

// confirmation is an act that a person is asked about.
type confirmation struct {
	// Heading and Name make the question, What says what happens, and Button does it.
	Heading, Name, What, Button string
	// Path is where the act is sent, and Back where one goes without it.
	Path, Back string
	// Danger says that it cannot be undone, or stops something.
	Danger bool
	// Reason is why a person wants it; "" is fine.
	Reason string
}

// reasonMost is how long a reason may be, in characters.
const reasonMost = 500

func pause(ctx context.Context, r *request) (any, error) {
	return r.pausing(ctx, "pause", "Deliveries to it stop until it is resumed. What is published meanwhile waits in the log, which keeps it.", (*admin.Admin).Pause)
}

func resume(ctx context.Context, r *request) (any, error) {
	return r.pausing(ctx, "resume", "Forwarders take up its lanes again, from where they stand.", (*admin.Admin).Resume)
}

// pausing asks for confirmation, or acts on it.
func (r *request) pausing(ctx context.Context, verb, what string, act func(a *admin.Admin, ctx context.Context, sinks ...string) ([]string, error)) (any, error) {
	if err := r.operates(); err != nil {
		return nil, err
	}
	sink, reason := r.PathValue("name"), strings.TrimSpace(r.PostForm.Get("reason"))
	if len([]rune(reason)) > reasonMost {
		return nil, problem{http.StatusBadRequest, fmt.Sprintf("a reason has at most %d characters", reasonMost)}
	}
	if err := r.knows(ctx, sink); err != nil {
		return nil, err
	}
	if r.PostForm.Get("confirmed") == "" {
		return confirmation{
			Heading: capital(verb), Name: sink, What: what, Button: capital(verb), Path: sinkPath(sink) + "/" + verb, Back: sinkPath(sink),
			Danger: verb == "pause", Reason: reason,
		}, nil
	}
	if _, err := act(r.Admin.For(admin.Request{Address: r.User.Address, Reason: reason}), ctx, sink); err != nil {
		return nil, err
	}
	next := goTo{path: sinkPath(sink)}
	if did, err := r.lastPause(ctx, sink); err == nil && did != nil {
		next.query = []any{"action", did.ID}
	}
	return next, nil
}

// knows is a 404 for a sink that has no lanes.
func (r *request) knows(ctx context.Context, sink string) error {
	m, err := r.Store.Membership(ctx)
	if err != nil || slices.ContainsFunc(m.Lanes, func(l store.LaneState) bool { return l.Lane.Sink == sink }) {
		return err
	}
	return unknownSink(sink)
}

func unknownSink(name string) error {
	return problem{http.StatusNotFound, fmt.Sprintf("the outbox knows no sink %q", cut(name, 200))}
}
