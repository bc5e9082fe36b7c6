package endpoint

import (
	"time"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/sinks"
)

// View is an endpoint as JSON, for operators.
type View struct {
	OwnView
	Tenant string `json:"tenant"`
}

// OwnView is an endpoint as JSON, for its tenant. Values of headers are masked.
type OwnView struct {
	ID             string            `json:"id"`
	URL            string            `json:"url"`
	Description    string            `json:"description"`
	Types          []string          `json:"types"`
	When           string            `json:"when"`
	Headers        map[string]string `json:"headers"`
	Rate           string            `json:"rate"`
	Enabled        bool              `json:"enabled"`
	DisabledReason string            `json:"disabled_reason,omitempty"`
	DisabledAt     time.Time         `json:"disabled_at,omitzero"`
	FailingSince   time.Time         `json:"failing_since,omitzero"`
	Trouble        string            `json:"trouble,omitempty"`
	CreatedAt      time.Time         `json:"created_at"`
	ChangedAt      time.Time         `json:"changed_at"`
	Version        int64             `json:"version"`
	Secret         string            `json:"secret,omitempty"` // of a new or rotated endpoint
}

// ViewOf returns an endpoint for operators, with what is wrong with the keys of the installation.
func ViewOf(e *webhooks.Endpoint) View {
	view := View{OwnViewOf(e), e.Tenant}
	if err := e.Locked(); err != nil {
		view.Trouble = err.Error()
	}
	return view
}

// OwnViewOf returns an endpoint for its tenant.
func OwnViewOf(e *webhooks.Endpoint) OwnView {
	headers := make(map[string]string, len(e.Headers))
	for name := range e.Headers {
		headers[name] = Masked
	}
	return OwnView{
		ID: e.ID, URL: e.URL, Description: e.Description, Types: e.Types, When: e.When, Headers: headers, Rate: e.Rate.String(),
		Enabled: e.Enabled(), DisabledReason: e.DisabledReason, DisabledAt: e.DisabledAt, FailingSince: e.FailingSince, Trouble: e.Trouble,
		CreatedAt: e.CreatedAt, ChangedAt: e.ChangedAt, Version: e.Version,
	}
}

// State returns a word or two for what an endpoint does: its worst trouble.
func (v *View) State() string {
	switch {
	case !v.Enabled:
		return "disabled"
	case !v.FailingSince.IsZero():
		return "failing"
	case v.Trouble != "":
		return "in trouble"
	}
	return "ok"
}

// AttemptView is an attempt as JSON, without what was sent and answered.
type AttemptView struct {
	ID           string `json:"id"`
	Delivery     string `json:"delivery"`
	Notification string `json:"notification"`
	Type         string `json:"type"`
	Number       int    `json:"number"`
	AnswerView
}

// AnswerView is how an attempt or a test has ended, as JSON.
type AnswerView struct {
	At         time.Time `json:"at"`
	DurationMS int64     `json:"duration_ms"`
	Succeeded  bool      `json:"succeeded"`
	Status     int       `json:"status,omitempty"` // omitted if there was no answer
	Error      string    `json:"error,omitempty"`
}

// AttemptViewOf returns an attempt as JSON.
func AttemptViewOf(a *store.Attempt) AttemptView {
	return AttemptView{a.ID, a.Delivery, a.Notification, a.Type, a.Number, AnswerView{a.At.UTC(), a.Duration.Milliseconds(), a.Error == "", a.Status, a.Error}}
}

func viewOfAnswer(a *webhooks.Answer) AnswerView {
	view := AnswerView{At: a.At.UTC(), DurationMS: a.Duration.Milliseconds(), Succeeded: a.Err == nil, Status: a.Status}
	if a.Err != nil {
		view.Error = sinks.Brief(a.Err)
	}
	return view
}
