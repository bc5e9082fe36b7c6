package portal

import (
	"strconv"
	"time"

	"github.com/waybill-go/waybill/framework/internal/endpoint"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// endpointView is an endpoint as JSON.
type endpointView struct {
	endpoint.OwnView
	Deliveries *endpoint.Deliveries `json:"deliveries,omitempty"`
}

func viewOf(e *webhooks.Endpoint) endpointView { return endpointView{OwnView: endpoint.OwnViewOf(e)} }

// tagged returns the headers of an answer with an endpoint.
func tagged(e *webhooks.Endpoint) map[string]string {
	return map[string]string{"ETag": strconv.Quote(strconv.FormatInt(e.Version, 10))}
}

// attemptView is an attempt as JSON. A list has no requests and answers.
type attemptView struct {
	endpoint.AttemptView
	Endpoint  string          `json:"endpoint"`
	KeptUntil time.Time       `json:"kept_until"`
	Request   *store.Exchange `json:"request,omitempty"`
	Answer    *store.Exchange `json:"answer,omitempty"`
}

func viewOfAttempt(a *store.Attempt) attemptView {
	return attemptView{endpoint.AttemptViewOf(a), a.Endpoint, a.Until, &a.Request, &a.Answer}
}

// testView is a test as JSON.
type testView struct {
	endpoint.AnswerView
	Request *store.Exchange `json:"request"`
	Answer  *store.Exchange `json:"answer"`
}

func viewOfTest(a *store.Attempt) testView {
	return testView{endpoint.AttemptViewOf(a).AnswerView, &a.Request, &a.Answer}
}

// listed is a page of a list. next is the place after which more follow; "" is the last page.
func listed[T any](name string, rows []T, next string) map[string]any {
	page := map[string]any{name: rows}
	if next != "" {
		page["next"] = next
	}
	return page
}
