package admin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
)

// Routing is what a configuration says about where notifications go. The zero value means that
// nothing is known about it.
type Routing struct {
	// Routes say which sinks get which types; nil: unknown.
	Routes *route.Table
	// MaxAttempts returns how many attempts a delivery of a type to a sink has; nil: unknown.
	MaxAttempts func(sink, typ string) int
	// Collect returns how a sink collects; nil: unknown.
	Collect func(sink string) settings.Collect
	// Unrouted is what happens to types that no route matches: park or ignore; "": unknown.
	Unrouted string
	// Elsewhere are the sinks that other forwarders' configurations route to, with the types that they take; see
	// [Routing.Beside].
	Elsewhere map[string]notification.TypeFilter
}

// Beside returns the routing with the sinks of other configurations, such as those of a program that runs beside
// `waybill forward`: the outbox knows which types each sink takes.
func (r Routing) Beside(m store.Membership) Routing {
	r.Elsewhere = make(map[string]notification.TypeFilter)
	mine := r.Filters()
	for i := range m.Lanes {
		l := &m.Lanes[i]
		if _, known := mine[l.Lane.Sink]; !known && l.Types != nil && l.Lane.Sink != store.SinkUnrouted {
			r.Elsewhere[l.Lane.Sink] = *l.Types
		}
	}
	return r
}

// Beside returns the routing with the sinks of other configurations; see [Routing.Beside].
func (a *Admin) Beside(ctx context.Context, routing Routing) (Routing, error) {
	m, err := a.store.Membership(ctx)
	return routing.Beside(m), err
}

// takenElsewhere returns the sinks of other configurations that take a type, by name.
func (r Routing) takenElsewhere(typ string) (sinks []string) {
	for _, sink := range slices.Sorted(maps.Keys(r.Elsewhere)) {
		if r.Elsewhere[sink].Matches(typ) {
			sinks = append(sinks, sink)
		}
	}
	return sinks
}

// Filters returns the types that go to each sink and, under store.SinkUnrouted, those without a
// route; nil if the routes are unknown.
func (r Routing) Filters() map[string]notification.TypeFilter {
	if r.Routes == nil {
		return nil
	}
	filters := r.Routes.Filters()
	filters[store.SinkUnrouted] = r.Routes.Unrouted()
	return filters
}

// Names returns all names of a type that the routes know.
func (r Routing) Names(typ string) []string {
	if r.Routes == nil {
		return []string{typ}
	}
	return r.Routes.Names(typ)
}

// Answer says where a notification is.
type Answer struct {
	ID string `json:"id"`
	// Known reports that something of it was found: a row, a parked delivery or a receipt.
	Known bool `json:"known"`
	// Type, Key, Offset and OccurredOn are set if the notification's row or a parked delivery
	// of it exists.
	Type       string    `json:"type,omitempty"`
	Key        string    `json:"key,omitempty"`
	Offset     int64     `json:"offset,omitempty"`
	OccurredOn time.Time `json:"occurred_on,omitzero"`
	// InLog reports that its row is in the log. Otherwise retention has removed it.
	InLog bool `json:"in_log"`
	// Verdicts has an entry for each sink, in alphabetical order.
	Verdicts []Verdict `json:"sinks"`
	// Text is about the notification as a whole; "" if the verdicts say everything.
	Text string `json:"text,omitempty"`
}

// Why reports where a notification is, and why. With routing.Routes, it reports only the sinks
// that the notification is for, and those that have a parked delivery or a receipt of it;
// without them, all sinks that may take it.
//
// It does not read one snapshot: a delivery that moves meanwhile may be reported as it was a
// moment ago.
func (a *Admin) Why(ctx context.Context, id string, routing Routing) (Answer, error) {
	answer, _, err := a.Look(ctx, store.TraceQuery{ID: id}, routing)
	return answer, err
}

// Look is Why, and also returns all that the outbox has of the notification, including its
// payload. If the query bounds the search for the row, the trace says where to continue.
func (a *Admin) Look(ctx context.Context, q store.TraceQuery, routing Routing) (Answer, store.Trace, error) {
	trace, err := a.store.Trace(ctx, q)
	if err != nil {
		return Answer{}, trace, err
	}
	w, err := a.inquire(ctx, routing)
	if err != nil {
		return Answer{}, trace, err
	}
	w.trace = trace
	answer, err := w.answer(ctx, q.ID)
	return answer, trace, err
}

// inquire begins an inquiry, without a trace yet.
func (a *Admin) inquire(ctx context.Context, routing Routing) (*inquiry, error) {
	membership, err := a.store.Membership(ctx)
	if err != nil {
		return nil, err
	}
	w := &inquiry{admin: a, routing: routing.Beside(membership), now: time.Now(), look: Look{Membership: membership}}
	if w.look.Pauses, err = a.Pauses(ctx, membership); err != nil {
		return nil, err
	}
	for _, l := range membership.Lanes {
		w.cursors = append(w.cursors, l.Lane.Sink)
	}
	return w, nil
}

// inquiry is the work of one call of Why, or of Tree for one of its notifications.
type inquiry struct {
	admin     *Admin
	routing   Routing
	trace     store.Trace
	now       time.Time
	look      Look     // only what holds up sinks
	cursors   []string // sinks with cursors
	uncounted bool     // Before is not set in the lanes of the trace
}

func (w *inquiry) answer(ctx context.Context, id string) (Answer, error) {
	answer := Answer{ID: id, InLog: len(w.trace.Rows) > 0, Verdicts: []Verdict{}}
	e := w.trace.Envelope()
	if e != nil {
		answer.Type, answer.Key, answer.Offset, answer.OccurredOn = e.Type, e.Key, e.Offset, e.OccurredOn
	}
	answer.Known = e != nil || len(w.trace.Receipts) > 0 || len(w.trace.Cancelled) > 0
	if !answer.Known {
		answer.Text = w.unknown(id)
		return answer, nil
	}
	if !answer.InLog {
		answer.Text = "its row is no longer in the log: every sink had settled it, and retention removed it"
		if n := len(w.trace.Cancelled); n > 0 {
			answer.Text += "; it was cancelled at " + timeText(w.trace.Cancelled[n-1].At) + " by a publisher"
		}
	}
	for _, sink := range w.sinks(e) {
		v, err := w.verdict(ctx, sink, e)
		if err != nil {
			return answer, err
		}
		answer.Verdicts = append(answer.Verdicts, v)
	}
	if len(answer.Verdicts) == 0 && answer.InLog {
		answer.Text = "no route matches its type, and nothing of it is parked"
	}
	return answer, nil
}

// sinks returns the sinks to report.
func (w *inquiry) sinks(e *notification.Envelope) []string {
	names := make(map[string]bool)
	for i := range w.trace.Parked {
		names[w.trace.Parked[i].Sink] = true
	}
	for i := range w.trace.Receipts {
		names[w.trace.Receipts[i].Sink] = true
	}
	if len(w.trace.Rows) == 0 {
		return slices.Sorted(maps.Keys(names)) // nothing is known about other sinks
	}
	if w.routing.Routes == nil {
		for _, l := range w.lanes() {
			if types, known := w.routing.Elsewhere[l.Lane.Sink]; l.Lane.Sink != store.SinkUnrouted && (!known || types.Matches(e.Type)) {
				names[l.Lane.Sink] = true
			}
		}
		return slices.Sorted(maps.Keys(names))
	}
	routed := append(w.routing.Routes.Sinks(e.Type), w.routing.takenElsewhere(e.Type)...)
	for _, sink := range routed {
		names[sink] = true
	}
	if len(routed) == 0 && slices.Contains(w.cursors, store.SinkUnrouted) {
		names[store.SinkUnrouted] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// lanes returns the lanes of the notification's row, one for each sink.
func (w *inquiry) lanes() []store.TracedLane {
	if n := len(w.trace.Rows); n > 0 {
		return w.trace.Rows[n-1].Lanes
	}
	return nil
}

// unknown says what an id of which nothing was found can be.
func (w *inquiry) unknown(id string) string {
	made := notification.IDTime(id)
	switch {
	case w.trace.Next > 0:
		return fmt.Sprintf("not found yet: nothing of it is parked or archived, but its row may be before offset %d", w.trace.Next)
	case !made.IsZero() && w.trace.Oldest != nil && made.Before(w.trace.Oldest.OccurredOn):
		return "nothing is left of it: its id was made at " + timeText(made) + ", and the log begins at " + timeText(w.trace.Oldest.OccurredOn) +
			"; if it was committed, every sink has settled it and retention removed it"
	case w.trace.Oldest == nil:
		return "unknown id, and the log is empty: it was rolled back, is not committed yet, or belongs to another outbox; or every sink has settled it and retention removed it"
	}
	return "unknown id: it was rolled back, is not committed yet, or belongs to another outbox; if it is a key: waybill why --key"
}

func timeText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }
