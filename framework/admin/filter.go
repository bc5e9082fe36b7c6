package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Filter selects parked deliveries. Each field that is set narrows the selection; the zero
// value selects all.
type Filter struct {
	Sink string
	// ID is the notification's id.
	ID string
	// Type is a type (order.placed), a prefix of types (order.*), or *.
	Type string
	Key  string
	// Group is the group in which a sink collects deliveries.
	Group string
	// States are the states to select. Each action has its own default, and accepts only some
	// of the states.
	States []store.State
	// Metadata selects by metadata: each name must have its value.
	Metadata map[string]string
	// OlderThan and NewerThan bound how long ago a delivery was first parked.
	OlderThan, NewerThan time.Duration
	// Error is a part of the last error's text; case does not matter.
	Error string
	// Cause is the ID of a Cause. It selects the deliveries that have it among those of which Admin.Causes makes them
	// with the rest of the filter.
	Cause string
	// Selected selects single deliveries; if empty, all.
	Selected []store.ParkedPlace
	// PlannedAt excludes deliveries that were parked or changed after it, by the database's
	// clock; see Plan.PlannedAt.
	PlannedAt time.Time
}

// Validate reports all mistakes in the filter, as ErrFilter.
func (f Filter) Validate() error {
	_, err := f.parse()
	return err
}

// states are all states of a parked delivery.
var states = []store.State{store.StateRetrying, store.StateScheduled, store.StateBlocked, store.StateQuiet, store.StateDead, store.StateSettling, store.StateCollecting, store.StateCancelled}

func (f Filter) parse() (store.ParkedFilter, error) {
	var problems []error
	problem := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("%w: "+format, append([]any{ErrFilter}, args...)...))
	}
	types, err := parseType(f.Type)
	if err != nil {
		problems = append(problems, err)
	}
	texts := []string{f.Sink, f.ID, f.Key, f.Group, f.Error, f.Cause}
	for name, value := range f.Metadata {
		texts = append(texts, name, value)
		if name == "" {
			problem("metadata needs a name, such as tenant=acme")
		}
	}
	for _, place := range f.Selected {
		texts = append(texts, place.Sink, place.ID)
	}
	for _, text := range texts {
		if err := checkText(text); err != nil {
			problems = append(problems, err)
		}
	}
	for _, s := range f.States {
		if !slices.Contains(states, s) {
			problem("unknown state %q: use retrying, scheduled, blocked, quiet, dead, settling, collecting or cancelled", s)
		}
	}
	if !isDate(f.PlannedAt) {
		problem("planned_at is outside of the years 0 to 9999")
	}
	if f.OlderThan < 0 || f.NewerThan < 0 {
		problem("an age is negative")
	}
	if f.OlderThan > 0 && f.NewerThan > 0 && f.OlderThan >= f.NewerThan {
		problem("nothing is older than %s and newer than %s", f.OlderThan, f.NewerThan)
	}
	return store.ParkedFilter{
		Sink: f.Sink, ID: f.ID, Types: types, Key: f.Key, Group: f.Group, States: f.States, Metadata: f.Metadata,
		OlderThan: f.OlderThan, NewerThan: f.NewerThan, Error: f.Error, Places: f.Selected, Until: f.PlannedAt.UTC(),
	}, errors.Join(problems...)
}

// checkText returns ErrFilter for a text that a database would refuse.
func checkText(text string) error {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return fmt.Errorf("%w: %q is not valid text: it is not UTF-8, or contains a NUL byte", ErrFilter, text)
	}
	return nil
}

// isDate reports whether JSON and all databases can hold a time, in UTC.
func isDate(t time.Time) bool { return t.UTC().Year() >= 0 && t.UTC().Year() <= 9999 }

// parseType parses a pattern, as in routes. "" gives the zero value.
func parseType(pattern string) (notification.TypeFilter, error) {
	prefix, isPrefix := strings.CutSuffix(pattern, ".*")
	switch {
	case pattern == "":
		return notification.TypeFilter{}, nil
	case pattern == "*":
		return notification.AllTypes, nil
	case notification.ValidateType(prefix) != nil:
		return notification.TypeFilter{}, fmt.Errorf("%w: type %q: use a type like order.placed, a prefix of types like order.*, or *", ErrFilter, pattern)
	case isPrefix:
		return notification.TypeFilter{Prefixes: []string{prefix + "."}}, nil
	}
	return notification.TypeFilter{Names: []string{pattern}}, nil
}

// ParseMetadata parses texts of the form NAME=VALUE, for Filter.Metadata. It fails with ErrFilter.
func ParseMetadata(pairs []string) (map[string]string, error) {
	var metadata map[string]string
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("%w: metadata %q: use a name and a value, such as tenant=acme", ErrFilter, pair)
		}
		if other, given := metadata[name]; given && other != value {
			return nil, fmt.Errorf("%w: metadata %s cannot be both %q and %q", ErrFilter, name, other, value)
		}
		if metadata == nil {
			metadata = make(map[string]string)
		}
		metadata[name] = value
	}
	return metadata, nil
}

// filterForm is a Filter in JSON.
type filterForm struct {
	Sink      string            `json:"sink,omitempty"`
	ID        string            `json:"id,omitempty"`
	Type      string            `json:"type,omitempty"`
	Key       string            `json:"key,omitempty"`
	Group     string            `json:"group,omitempty"`
	States    []store.State     `json:"states,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"`
	OlderThan string            `json:"older_than,omitempty"`
	NewerThan string            `json:"newer_than,omitempty"`
	Error     string            `json:"error,omitempty"`
	Cause     string            `json:"cause,omitempty"`
	Selected  []placeForm       `json:"selected,omitempty"`
	PlannedAt time.Time         `json:"planned_at,omitzero"`
}

// placeForm is a store.ParkedPlace in JSON.
type placeForm struct {
	Sink   string `json:"sink"`
	Offset int64  `json:"offset"`
	ID     string `json:"id"`
}

// MarshalJSON writes the fields that are set, for the table of actions.
func (f Filter) MarshalJSON() ([]byte, error) {
	form := filterForm{f.Sink, f.ID, f.Type, f.Key, f.Group, f.States, f.Metadata, durationText(f.OlderThan), durationText(f.NewerThan), f.Error, f.Cause, nil, f.PlannedAt}
	for _, p := range f.Selected {
		form.Selected = append(form.Selected, placeForm{p.Sink, p.Offset, p.ID})
	}
	return json.Marshal(form)
}

// UnmarshalJSON reads what MarshalJSON writes, and refuses unknown fields.
func (f *Filter) UnmarshalJSON(text []byte) error {
	var form filterForm
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&form); err != nil {
		return err
	}
	older, olderErr := parseDuration("older_than", form.OlderThan)
	newer, newerErr := parseDuration("newer_than", form.NewerThan)
	var selected []store.ParkedPlace
	for _, p := range form.Selected {
		selected = append(selected, store.ParkedPlace{Sink: p.Sink, Ref: store.Ref{Offset: p.Offset, ID: p.ID}})
	}
	*f = Filter{form.Sink, form.ID, form.Type, form.Key, form.Group, form.States, form.Metadata, older, newer, form.Error, form.Cause, selected, form.PlannedAt}
	return errors.Join(olderErr, newerErr)
}

func parseDuration(name, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%w: %s is %q: use a duration such as 90m or 36h", ErrFilter, name, text)
	}
	return d, nil
}

func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}
