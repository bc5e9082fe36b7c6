package portal

import (
	"strconv"
	"time"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// endpointView is an endpoint as JSON. Values of headers are masked.
type endpointView struct {
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
	Deliveries     *deliveriesView   `json:"deliveries,omitempty"`
	Secret         string            `json:"secret,omitempty"`
}

// deliveriesView counts deliveries that have not succeeded.
type deliveriesView struct {
	Waiting int64 `json:"waiting"`
	Dead    int64 `json:"dead"`
}

func viewOf(e *webhooks.Endpoint) endpointView {
	headers := make(map[string]string, len(e.Headers))
	for name := range e.Headers {
		headers[name] = masked
	}
	return endpointView{
		ID: e.ID, URL: e.URL, Description: e.Description, Types: e.Types, When: e.When, Headers: headers, Rate: e.Rate.String(),
		Enabled: e.Enabled(), DisabledReason: e.DisabledReason, DisabledAt: e.DisabledAt, FailingSince: e.FailingSince, Trouble: e.Trouble,
		CreatedAt: e.CreatedAt, ChangedAt: e.ChangedAt, Version: e.Version,
	}
}

// tagged returns the headers of an answer with an endpoint.
func tagged(e *webhooks.Endpoint) map[string]string {
	return map[string]string{"ETag": strconv.Quote(strconv.FormatInt(e.Version, 10))}
}

// attemptView is an attempt as JSON. A list has no requests and answers.
type attemptView struct {
	ID           string    `json:"id"`
	Endpoint     string    `json:"endpoint"`
	Delivery     string    `json:"delivery"`
	Notification string    `json:"notification"`
	Type         string    `json:"type"`
	Number       int       `json:"number"`
	KeptUntil    time.Time `json:"kept_until"`
	exchangeView
}

func viewOfAttempt(a *store.Attempt) attemptView {
	return attemptView{a.ID, a.Endpoint, a.Delivery, a.Notification, a.Type, a.Number, a.Until, viewOfExchange(a)}
}

// exchangeView is what an attempt or a test has sent and got.
type exchangeView struct {
	At         time.Time       `json:"at"`
	DurationMS int64           `json:"duration_ms"`
	Succeeded  bool            `json:"succeeded"`
	Status     int             `json:"status,omitempty"`
	Error      string          `json:"error,omitempty"`
	Request    *store.Exchange `json:"request,omitempty"`
	Answer     *store.Exchange `json:"answer,omitempty"`
}

func viewOfExchange(a *store.Attempt) exchangeView {
	return exchangeView{a.At.UTC(), a.Duration.Milliseconds(), a.Error == "", a.Status, a.Error, &a.Request, &a.Answer}
}

// listed is a page of a list. next is the place after which more follow; "" is the last page.
func listed[T any](name string, rows []T, next string) map[string]any {
	page := map[string]any{name: rows}
	if next != "" {
		page["next"] = next
	}
	return page
}
