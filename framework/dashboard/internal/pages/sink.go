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

// sinkPage is the data of a sink's page.
type sinkPage struct {
	sinkRow
	Seen         seen
	Troubles     []trouble
	Lanes        []laneRow
	Destinations []admin.Trouble
	Settings     []setting
	// Pause is the action that paused it; nil if it is not known.
	Pause *store.Action
	// Action is the action that the query names; nil if it names none.
	Action *store.Action
	// Endpoints says that the destinations are endpoints of customers.
	Endpoints bool
	// Replays says whether a replay to the sink is possible.
	Replays bool
}

// laneRow is a lane of a sink.
type laneRow struct {
	store.LaneState
	Pending string
	Lag     time.Duration
}

// setting is a setting in effect, by its key in waybill.yaml.
type setting struct{ Name, Value string }

// sink is the page of one sink.
func sink(ctx context.Context, r *request) (any, error) {
	snapshot, err := r.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	name := r.PathValue("name")
	i := slices.IndexFunc(snapshot.Sample.Sinks, func(s store.SinkSample) bool { return s.Sink == name })
	if i < 0 {
		return nil, unknownSink(name)
	}
	sample := snapshot.Sample.Sinks[i]
	if snapshot.Err == nil { // a pause or resume shows at once, before the next sample
		if snapshot.Membership, err = r.Store.Membership(ctx); err != nil {
			return nil, err
		}
		sample.Paused = slices.ContainsFunc(snapshot.Membership.Lanes, func(l store.LaneState) bool { return l.Lane.Sink == name && l.Paused })
	}
	page := sinkPage{sinkRow: r.sinkRow(snapshot, sample), Seen: seenOf(snapshot), Replays: name != store.SinkUnrouted}
	page.Endpoints = r.Endpoints != nil && r.Endpoints.Sink() == name
	page.Troubles = page.troubles()
	for i := range page.Troubles {
		page.Troubles[i].Sink = "" // the page names it
	}
	if page.Paused {
		page.Troubles = slices.DeleteFunc(page.Troubles, func(t trouble) bool { return strings.HasPrefix(t.ID, admin.Paused+" ") }) // the page shows the pause itself
	}
	page.Lanes = lanesOf(snapshot.Membership, page.SinkSample)
	page.Destinations = slices.DeleteFunc(slices.Clone(page.Wrong), func(t admin.Trouble) bool { return t.Destination == "" })
	if r.Forwarder != nil {
		if s, works := r.Forwarder.Settings(name); works {
			page.Settings = settingsOf(s)
		}
	}
	if snapshot.Err != nil {
		return page, nil // the database does not answer
	}
	if page.Paused {
		pauses, err := r.Admin.Pauses(ctx, snapshot.Membership)
		if err != nil {
			return nil, err
		}
		if pause, known := pauses[name]; known {
			page.Pause = &pause
		}
	}
	unknown, err := r.Admin.UnknownTypes(ctx, &snapshot.Look, name)
	if err != nil {
		return nil, err
	}
	for _, t := range unknown {
		page.Troubles = append(page.Troubles, trouble{ID: t.What + " " + t.Text, Class: "warn", Text: cut(t.Text, 300)})
	}
	return page, r.readAction(ctx, &page)
}

// readAction reads the action that the query names.
func (r *request) readAction(ctx context.Context, page *sinkPage) error {
	id := r.URL.Query().Get("action")
	if id == "" {
		return nil
	}
	action, err := r.Admin.Action(ctx, id)
	page.Action = &action
	return err
}

// searchedActions is how many of the latest pauses and resumes are searched for one of a sink.
const searchedActions = 100

func lanesOf(m store.Membership, s store.SinkSample) (rows []laneRow) {
	for _, l := range m.Lanes {
		if l.Lane.Sink != s.Sink {
			continue
		}
		row := laneRow{LaneState: l, Pending: "0"}
		if i := slices.IndexFunc(s.Lanes, func(of store.LaneSample) bool { return of.Lane == l.Lane.Number }); i >= 0 {
			row.Pending, row.Lag = admin.CountText(int64(s.Lanes[i].Pending), s.Lanes[i].Estimated), s.Lanes[i].Lag
		}
		rows = append(rows, row)
	}
	return rows
}

// settingsOf returns the settings of a sink, by their keys in waybill.yaml.
func settingsOf(s forwarder.Sink) []setting {
	retry := fmt.Sprintf("%s to %s", compact(s.Retry.Initial), compact(s.Retry.Max))
	if len(s.Retry.Pauses) > 0 {
		pauses := make([]string, len(s.Retry.Pauses))
		for i, pause := range s.Retry.Pauses {
			pauses[i] = compact(pause)
		}
		retry = "after " + strings.Join(pauses, ", ")
	}
	if s.Retry.MaxAttempts > 0 {
		retry += fmt.Sprintf(", at most %d attempts", s.Retry.MaxAttempts)
	}
	if s.Retry.MaxAge > 0 {
		retry += ", for at most " + compact(s.Retry.MaxAge)
	}
	if n := len(s.Retry.Types); n > 0 {
		retry += fmt.Sprintf("; different for %d types", n)
	}
	breaker := "off"
	if !s.Breaker.Off {
		breaker = "probes at least every " + compact(s.Breaker.MaxPause)
	}
	rate := s.Rate.String()
	if rate == "" {
		rate = "unlimited"
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
		{"breaker", breaker},
	}
	if s.Fairness != "" {
		settings = append(settings, setting{"fairness", "by " + s.Fairness})
	}
	if s.Hours.On() {
		settings = append(settings, setting{"hours", s.Hours.String()})
	}
	if s.Collect.On() {
		settings = append(settings, setting{"collect", s.Collect.String()})
	}
	return settings
}

// confirmation is the data of a page that asks for confirmation of an act.
type confirmation struct {
	// Heading and Name form the question, What explains the act, and Button is its button.
	Heading, Name, What, Button string
	// Path is the path of the form, and Back the page to return to.
	Path, Back string
	// Danger says that the act cannot be undone, or stops something.
	Danger bool
	// Reason is the user's reason; may be "".
	Reason string
}

// reasonMost is the maximum length of a reason, in characters.
const reasonMost = 500

// confirm returns the question whether to do an operation on something that has a page of acts below
// path.
func confirm(o admin.Operation, name, path, back string) confirmation {
	return confirmation{
		Heading: capital(o.Name), Name: name, What: o.About, Button: capital(o.Name), Path: path + "/" + o.Name, Back: back, Danger: o.Danger,
	}
}

// onSink returns the view that pauses or resumes a sink. It asks for confirmation, or acts if the form
// is confirmed.
func onSink(operation string) view {
	o, _ := admin.Named(admin.OnSinks, operation)
	return func(ctx context.Context, r *request) (any, error) { return r.onSink(ctx, o) }
}

func (r *request) onSink(ctx context.Context, o admin.Operation) (any, error) {
	sink := r.PathValue("name")
	reason, err := r.reason()
	if err != nil {
		return nil, err
	}
	if err := r.requireSink(ctx, sink); err != nil {
		return nil, err
	}
	if r.PostForm.Get("confirmed") == "" {
		question := confirm(o, sink, sinkPath(sink), sinkPath(sink))
		question.Reason = reason
		return question, nil
	}
	if _, err := r.Admin.For(admin.Request{Address: r.User.Address, Reason: reason}).Do(ctx, o, sink); err != nil {
		return nil, err
	}
	next := goTo{path: sinkPath(sink)}
	recent, _ := r.Store.Actions(ctx, searchedActions, "pause", "resume")
	at := slices.IndexFunc(recent, func(a store.Action) bool {
		var f admin.PauseFilter
		return json.Unmarshal(a.Filter, &f) == nil && slices.Contains(f.Sinks, sink)
	})
	if at >= 0 {
		next.query = []any{"action", recent[at].ID}
	}
	return next, nil
}

// reason returns the reason in the form; "" if there is none.
func (r *request) reason() (string, error) {
	reason := strings.TrimSpace(r.PostForm.Get("reason"))
	if len([]rune(reason)) > reasonMost {
		return "", problem{http.StatusBadRequest, fmt.Sprintf("a reason has at most %d characters", reasonMost)}
	}
	return reason, nil
}

// requireSink returns a 404 for a sink that has no lanes.
func (r *request) requireSink(ctx context.Context, sink string) error {
	m, err := r.Store.Membership(ctx)
	if err != nil || slices.ContainsFunc(m.Lanes, func(l store.LaneState) bool { return l.Lane.Sink == sink }) {
		return err
	}
	return unknownSink(sink)
}

func unknownSink(name string) error {
	return problem{http.StatusNotFound, fmt.Sprintf("this outbox has no sink %q", cut(name, 200))}
}
