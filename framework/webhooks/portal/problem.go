package portal

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/waybill-go/waybill/framework/webhooks"
)

const problemType = "application/problem+json"

// problem is an error as in RFC 9457. Its texts are for customers.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Errors are the mistakes in fields.
	Errors []mistake `json:"errors,omitempty"`
}

// mistake is a mistake in a field of an endpoint.
type mistake struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// mistakesIn returns the mistakes in an error of package webhooks.
func mistakesIn(err error) (all []mistake) {
	for _, m := range webhooks.FieldErrors(err) {
		all = append(all, mistake{m.Field, m.Err.Error()})
	}
	return all
}

func (p *problem) Error() string { return p.Detail }

func problemOf(status int, format string, args ...any) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

// known has the answers to errors that customers can do something about.
var known = []struct {
	err    error
	status int
	text   string
}{
	{webhooks.ErrUnknown, http.StatusNotFound, "there is no such endpoint or attempt"},
	{webhooks.ErrChanged, http.StatusConflict, "someone else has changed the endpoint meanwhile: read it again, and repeat the change"},
	{webhooks.ErrKeyUsed, http.StatusUnprocessableEntity, "this key was used for a different endpoint: use a new one"},
	{webhooks.ErrDisabled, http.StatusConflict, "the endpoint is disabled: enable it first"},
	{webhooks.ErrGone, http.StatusGone, "what was sent is no longer kept"},
	{context.DeadlineExceeded, http.StatusGatewayTimeout, "this took too long: try again in a moment"},
}

// problem returns the problem that answers an error. Others than the known ones are only in the log: they may
// name tables and addresses.
func (p *portal) problem(r *http.Request, err error) *problem {
	if what, ok := errors.AsType[*problem](err); ok {
		return what
	}
	if tooLong, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return problemOf(http.StatusRequestEntityTooLarge, "the request has more than %d bytes", tooLong.Limit)
	}
	if errors.Is(err, webhooks.ErrInvalid) {
		what := problemOf(http.StatusUnprocessableEntity, "the endpoint cannot be like this: errors says why")
		what.Errors = mistakesIn(err)
		return what
	}
	if errors.Is(err, webhooks.ErrTooMany) {
		return problemOf(http.StatusConflict, "you can have %d endpoints, and have them already: delete one", p.endpoints.Config().EndpointsPerTenant)
	}
	for _, k := range known {
		if errors.Is(err, k.err) {
			return problemOf(k.status, "%s", k.text)
		}
	}
	p.Logger.Error("a request to the portal failed", "method", r.Method, "path", r.URL.Path, "error", err)
	return problemOf(http.StatusInternalServerError, "that failed, and the operators can see why: try again later")
}

// fail answers with an error: the API with a problem, and a page in words.
func (p *portal) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the client is gone
	}
	what := p.problem(r, err)
	if p.isAPI(r) {
		p.write(w, r, what.Status, problemType, what)
		return
	}
	p.render(w, r, page{name: "problem", status: what.Status, data: struct {
		*problem
		Back string
	}{what, what.back(strings.TrimPrefix(r.URL.Path, p.Prefix), r.PathValue("id"))}})
}

// Heading is the heading of the page of a problem.
func (p *problem) Heading() string {
	switch {
	case p.Status == http.StatusUnauthorized:
		return "Log in"
	case p.Status == http.StatusForbidden:
		return "Not allowed"
	case p.Status == http.StatusNotFound:
		return "Not found"
	case p.Status >= http.StatusInternalServerError:
		return "That failed"
	}
	return "That was not done"
}

// Sentence is Detail as a page has it.
func (p *problem) Sentence() string { return strings.ToUpper(p.Detail[:1]) + p.Detail[1:] }

// back returns the path of the endpoint or the attempt that a request with a problem was about; "" if there is none.
func (p *problem) back(path, id string) string {
	if id == "" || p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden || p.Status == http.StatusNotFound {
		return ""
	}
	return "/" + strings.Split(path, "/")[1] + "/" + url.PathEscape(id)
}
