package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/store"
)

func schedules(ctx context.Context, r *request) (any, error) {
	if _, err := r.query(); err != nil {
		return nil, err
	}
	rows, err := r.Admin.Schedules(ctx)
	views := make([]admin.ScheduleView, len(rows))
	for i, row := range rows {
		views[i] = admin.ViewOfSchedule(row)
	}
	return map[string]any{"schedules": views}, err
}

// forwarderView is a forwarder that lives.
type forwarderView struct {
	Forwarder string `json:"forwarder"`
	Version   string `json:"version,omitempty"`
	// Settings is a digest of its configuration.
	Settings string   `json:"settings,omitempty"`
	Sinks    []string `json:"sinks"`
	// Lanes are how many it has of each sink.
	Lanes map[string]int `json:"lanes"`
	// CheckpointSeconds is how long the slowest checkpoint of about its last minute took.
	CheckpointSeconds float64                    `json:"checkpoint_seconds,omitempty"`
	States            map[string]store.SinkState `json:"states,omitempty"`
}

// living are the forwarders.
func (r *request) living(ctx context.Context) ([]forwarderView, error) {
	membership, err := r.Store.Membership(ctx)
	views := []forwarderView{}
	for _, m := range membership.Members {
		v := forwarderView{
			Forwarder: m.Owner, Version: m.Version, Settings: m.Settings, Sinks: append([]string{}, m.Sinks...), Lanes: make(map[string]int),
			CheckpointSeconds: m.Checkpoint.Seconds(), States: m.States,
		}
		for _, l := range membership.Lanes {
			if l.Owner == m.Owner && !strings.HasPrefix(l.Lane.Sink, "_") {
				v.Lanes[l.Lane.Sink]++
			}
		}
		views = append(views, v)
	}
	return views, err
}

func forwarders(ctx context.Context, r *request) (any, error) {
	if _, err := r.query(); err != nil {
		return nil, err
	}
	views, err := r.living(ctx)
	return map[string]any{"forwarders": views}, err
}

// typeView is a type in the last rows of the log and among what is parked, and the sinks to
// which it goes.
type typeView struct {
	Type       string        `json:"type"`
	Versions   []versionView `json:"versions"`
	OccurredOn time.Time     `json:"occurred_on,omitzero"`
	Sinks      []string      `json:"sinks"`
}

type versionView struct {
	Version int   `json:"version"`
	Rows    int64 `json:"rows"`
	Parked  int64 `json:"parked"`
}

func types(ctx context.Context, r *request) (any, error) {
	values, err := r.query("rows")
	if err != nil {
		return nil, err
	}
	rows, err := number(values, "rows", 10_000, 1, 1_000_000)
	if err != nil {
		return nil, err
	}
	counts, err := r.Admin.Types(ctx, rows)
	views := []typeView{}
	for _, c := range counts {
		if n := len(views); n == 0 || views[n-1].Type != c.Type {
			v := typeView{Type: c.Type, Sinks: []string{}}
			if r.Routing.Routes != nil {
				v.Sinks = append(v.Sinks, r.Routing.Routes.Sinks(c.Type)...)
			}
			views = append(views, v)
		}
		v := &views[len(views)-1]
		v.Versions = append(v.Versions, versionView{c.Version, c.Rows, c.Parked})
		if c.OccurredOn.After(v.OccurredOn) {
			v.OccurredOn = c.OccurredOn
		}
	}
	return map[string]any{"types": views}, err
}

func configuration(_ context.Context, r *request) (any, error) {
	if _, err := r.query(); err != nil {
		return nil, err
	}
	if r.Configuration == nil {
		return nil, problemOf(http.StatusNotFound, "this process does not know its configuration")
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
	values, err := r.query("only")
	if err != nil {
		return nil, err
	}
	only := slices.Clone(values["only"])
	if err := (doctor.Options{Only: only}).Validate(); err != nil {
		return nil, problemOf(http.StatusBadRequest, "%s", err)
	}
	if r.Doctor == nil {
		return nil, problemOf(http.StatusNotFound, "this process has no checks to make")
	}
	select {
	case r.API.doctors <- struct{}{}:
		defer func() { <-r.API.doctors }()
	default:
		return nil, problemOf(http.StatusTooManyRequests, "the checks are being made for another request")
	}
	out := http.NewResponseController(r.body) // the server's deadlines are for requests that take less
	_ = out.SetReadDeadline(time.Time{})
	_ = out.SetWriteDeadline(time.Now().Add(doctorTime + requestTime))
	ctx, cancel := context.WithTimeout(r.Context(), doctorTime)
	defer cancel()
	return map[string]any{"findings": append([]doctor.Finding{}, r.Doctor(ctx, only...)...)}, nil
}
