package alerts

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// goneFor is for how many periods, a minute, a cause must be gone before its alert is cleared: longer than a forwarder
// takes to start again, or a requeued delivery to fail again.
const goneFor = 4

// state is what the row in the database remembers. Times are the database's.
type state struct {
	// Raised has the alerts that are raised, by key.
	Raised map[string]*raised `json:"raised,omitempty"`
	// Stalls are the sinks with pending rows.
	Stalls map[string]stall `json:"stalls,omitempty"`
}

type raised struct {
	Raised
	ToldAt    time.Time `json:"told_at"`             // when it was last published
	GoneSince time.Time `json:"gone_since,omitzero"` // since when its cause is gone
}

// stall is a mark of a sink's cursors, and since when they have it.
type stall struct {
	Mark  uint64    `json:"mark,string"`
	Since time.Time `json:"since"`
}

func readState(row store.Schedule) (s state, err error) {
	if row.Spec != "" {
		err = json.Unmarshal([]byte(row.Spec), &s)
	}
	if s.Raised == nil {
		s.Raised = make(map[string]*raised)
	}
	return s, err
}

// RaisedIn returns the alerts that are raised, as the row store.ScheduleAlerts says.
func RaisedIn(row store.Schedule) (all []Raised, err error) {
	s, err := readState(row)
	for _, key := range slices.Sorted(maps.Keys(s.Raised)) {
		all = append(all, s.Raised[key].Raised)
	}
	return all, err
}

// cause is a trouble at this moment. One that is not ripe keeps an alert raised, but raises none.
type cause struct {
	admin.Trouble
	ripe bool
}

// keyOf returns the key of an alert about a trouble.
func keyOf(t admin.Trouble) string {
	return strings.TrimRight(strings.Join([]string{t.What, t.Sink, t.Tenant, t.Endpoint}, " "), " ")
}

// turn is one look of a judge.
type turn struct {
	*Judge
	now time.Time
	// partial reports that there are more disabled endpoints than were read.
	partial bool
}

// next moves the state to what is the case now, and returns what to publish.
func (t *turn) next(s *state, causes []cause) (published []notification.Envelope, err error) {
	there := make(map[string]bool, len(causes))
	publish := func(typ, key string, payload any) {
		data, failed := json.Marshal(payload)
		err = cmp.Or(err, failed)
		published = append(published, notification.Envelope{
			ID: notification.NewID(), Type: typ, Version: 1, Key: key, OccurredOn: t.now, Payload: data,
			Metadata: notification.Metadata{notification.MetadataContentType: "application/json"},
		})
	}
	for _, c := range causes {
		key := keyOf(c.Trouble)
		there[key] = true
		r := s.Raised[key]
		if r == nil && !c.ripe {
			continue
		}
		tell := r == nil
		if tell {
			r = &raised{Raised: Raised{RaisedAt: t.now, Since: cmp.Or(c.Since, t.now).UTC()}}
			s.Raised[key] = r
		} else if every := t.config.Settings.Every; every > 0 && c.ripe && t.now.Sub(r.ToldAt) >= every {
			tell, r.Reminder = true, true
		}
		t.describe(&r.Raised, c.Trouble)
		if r.GoneSince = (time.Time{}); tell {
			r.ToldAt = t.now
			told := r.Raised
			if told.Reminder {
				told.Text = fmt.Sprintf("for %s: %s", t.now.Sub(r.RaisedAt).Round(time.Second), r.Text)
			}
			publish(notification.AlertRaised, key, told)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Raised)) {
		switch r := s.Raised[key]; {
		case there[key], t.partial && r.Cause == admin.DisabledEndpoint:
		case r.GoneSince.IsZero():
			r.GoneSince = t.now
		case t.now.Sub(r.GoneSince) >= goneFor*t.config.Period:
			over := Cleared(r.Raised)
			over.Forwarder, over.Text = t.owner(), fmt.Sprintf("over after %s: %s", t.now.Sub(r.RaisedAt).Round(time.Second), r.Text)
			publish(notification.AlertCleared, key, over)
			delete(s.Raised, key)
		}
	}
	return published, err
}

// describe fills in what is known now.
func (t *turn) describe(r *Raised, c admin.Trouble) {
	r.Cause, r.Sink, r.Endpoint, r.Tenant, r.Count = c.What, c.Sink, c.Endpoint, c.Tenant, c.Count
	r.Database, r.Forwarder, r.Dashboard = t.config.Database, cmp.Or(c.Forwarder, t.owner()), t.config.Settings.Dashboard
	r.Command = commandFor(c)
	text := c.Text
	if c.What != admin.DisabledEndpoint { // whose reason is Waybill's own
		text = strings.TrimSuffix(text, ": "+c.Cause)
	}
	about := strings.Join(slices.DeleteFunc([]string{t.config.Database, c.Sink}, func(s string) bool { return s == "" }), " ")
	if t.config.Database != "" {
		r.Command += " --in " + t.config.Database
	}
	if r.Text = text; about != "" {
		r.Text = about + ": " + text
	}
}

// plain matches what a shell takes as one word.
var plain = regexp.MustCompile(`^[\w.@%+:,/-]+$`)

// word returns a text as one word of a command for a shell: a publisher or a customer may have chosen it.
func word(text string) string {
	if plain.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

func commandFor(t admin.Trouble) string {
	switch t.What {
	case admin.DeadLetters:
		return "waybill parked list --sink " + word(t.Sink) + " --state dead"
	case admin.DisabledEndpoint:
		if t.Endpoint == "" {
			return "waybill endpoints list --troubled"
		}
		return fmt.Sprintf("waybill endpoints show %s --tenant %s", word(t.Endpoint), word(t.Tenant))
	case admin.HeldTransaction:
		return "waybill doctor --only held-transactions"
	}
	return "waybill status"
}
