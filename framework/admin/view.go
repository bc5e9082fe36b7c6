package admin

import (
	"encoding/json"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// ParkedView is a parked delivery in JSON, without metadata and payload.
type ParkedView struct {
	Sink   string      `json:"sink"`
	State  store.State `json:"state"`
	ID     string      `json:"id"`
	Type   string      `json:"type"`
	Key    string      `json:"key,omitempty"`
	Offset int64       `json:"offset"`
	// Attempt is how many attempts were made.
	Attempt int `json:"attempt"`
	// DueAt is when the delivery, or its hook, is tried again; zero if it does not wait for a time.
	DueAt         time.Time `json:"due_at,omitzero"`
	FirstParkedAt time.Time `json:"first_parked_at"`
	// UpdatedAt is the last change, such as an attempt.
	UpdatedAt time.Time `json:"updated_at"`
	// Class is the class of the last error; see store.PastAttempt.
	Class     string `json:"class,omitempty"`
	LastError string `json:"last_error,omitempty"`
	// Attempts are the last failed attempts, the newest first.
	Attempts []AttemptView `json:"attempts,omitempty"`
	// Receipt is set if the sink has accepted the delivery and a hook is still due.
	Receipt   string `json:"receipt,omitempty"`
	HookError string `json:"hook_error,omitempty"`
	// Group is the group in which it is collected, and Collection the id of its collection for the sink
	// once that is closed. They stay when it is dead.
	Group      string `json:"group,omitempty"`
	Collection string `json:"collection,omitempty"`
}

// ViewOf returns the view of a parked delivery.
func ViewOf(p *store.ParkedDelivery) ParkedView {
	e := &p.Envelope
	class, cause := p.Failure()
	return ParkedView{
		Sink: p.Sink, State: p.State, ID: e.ID, Type: e.Type, Key: e.Key, Offset: e.Offset, Attempt: p.Attempt,
		DueAt: p.DueAt.UTC(), FirstParkedAt: p.FirstParkedAt.UTC(), UpdatedAt: p.UpdatedAt.UTC(), Class: class, LastError: cause, Attempts: attemptViews(p.Attempts),
		Receipt: string(p.Receipt), HookError: p.HookError, Group: p.Group, Collection: store.CollectionRef{Group: p.Group, Number: p.Collection}.ID(),
	}
}

// AttemptView is a store.PastAttempt in JSON.
type AttemptView struct {
	Began     time.Time `json:"began"`
	Millis    int64     `json:"ms"`
	Number    int       `json:"number"`
	Class     string    `json:"class"`
	Error     string    `json:"error,omitempty"`
	Forwarder string    `json:"forwarder"`
}

// Took returns how long the call took.
func (v AttemptView) Took() time.Duration { return time.Duration(v.Millis) * time.Millisecond }

func attemptViews(attempts []store.PastAttempt) (views []AttemptView) {
	for _, a := range attempts {
		views = append(views, AttemptView{a.Began.UTC(), a.Duration.Milliseconds(), a.Number, a.Class, a.Error, a.Forwarder})
	}
	return views
}

// RowView is a row of the log in JSON, without metadata and payload.
type RowView struct {
	ID         string    `json:"id"`
	Type       string    `json:"type"`
	Version    int       `json:"version"`
	Key        string    `json:"key,omitempty"`
	Offset     int64     `json:"offset"`
	OccurredOn time.Time `json:"occurred_on"`
	// DeliverAt is when a scheduled notification is due; zero means at once.
	DeliverAt time.Time `json:"deliver_at,omitzero"`
}

// ViewOfRow returns the view of a row of the log.
func ViewOfRow(e *notification.Envelope) RowView {
	return RowView{
		ID: e.ID, Type: e.Type, Version: e.Version, Key: e.Key, Offset: e.Offset, OccurredOn: e.OccurredOn.UTC(), DeliverAt: e.DeliverAt,
	}
}

// WholeView is a parked delivery in JSON, with metadata and payload.
type WholeView struct {
	ParkedView
	Version    int                   `json:"version"`
	OccurredOn time.Time             `json:"occurred_on"`
	DeliverAt  time.Time             `json:"deliver_at,omitzero"`
	Metadata   notification.Metadata `json:"metadata"`
	Payload    any                   `json:"payload"`
}

// WholeOf returns the whole view of a parked delivery.
func WholeOf(p *store.ParkedDelivery) WholeView {
	e := &p.Envelope
	return WholeView{ViewOf(p), e.Version, e.OccurredOn, e.DeliverAt, e.Metadata, PayloadView(e.Payload)}
}

// PayloadView returns a payload for JSON: as it is if it is JSON in UTF-8, otherwise as base64.
func PayloadView(payload []byte) any {
	if store.CheckJSON(payload) == nil {
		return json.RawMessage(payload)
	}
	return payload
}

// ScheduleView is a schedule in JSON.
type ScheduleView struct {
	Name string `json:"name"`
	// When is the schedule's times, such as "every 1h"; "" before a process has run it.
	When string `json:"when"`
	// Missed is what happens to missed ticks: one, skip or all.
	Missed string `json:"missed"`
	// LastTick is zero before the first tick.
	LastTick time.Time `json:"last_tick,omitzero"`
	NextTick time.Time `json:"next_tick"`
	// RequestedAt is when an operator asked for an extra tick; zero if none is due.
	RequestedAt time.Time `json:"requested_at,omitzero"`
	Paused      bool      `json:"paused"`
	// Late reports that a tick has been due for more than a minute.
	Late bool `json:"late"`
}

// ViewOfSchedule returns the view of a schedule.
func ViewOfSchedule(s store.Schedule) ScheduleView {
	return ScheduleView{
		Name: s.Name, When: s.Spec, Missed: s.Missed, LastTick: s.LastTick, NextTick: s.NextTick, RequestedAt: s.RequestedAt,
		Paused: s.Paused, Late: s.Late(),
	}
}

// ReplayView is the content of a replay plan in JSON.
type ReplayView struct {
	store.ReplayCount
	// Gone is the result of ReplayPlan.Gone.
	Gone bool `json:"gone"`
}

// View returns the content of the plan for JSON.
func (p *ReplayPlan) View() ReplayView { return ReplayView{p.Count, p.Gone()} }
