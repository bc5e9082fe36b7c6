package portal

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// pageRows is how many rows a page has.
const pageRows = 25

// pages are the templates, besides those that all share.
var pages = []string{"list", "form", "endpoint", "secret", "confirm", "attempt", "done", "problem"}

// routes has all pages and the API.
var routes = append([]route{
	{"GET /{$}", listPage, nil},
	{"GET /new", newPage, nil},
	{"POST /new", createFromPage, nil},
	{"GET /endpoints/{id}", endpointPage, nil},
	{"GET /endpoints/{id}/edit", editPage, nil},
	{"POST /endpoints/{id}/edit", updateFromPage, nil},
	{"GET /endpoints/{id}/{act}", confirmPage, nil},
	{"POST /endpoints/{id}/secret", secretPage, nil},
	{"POST /endpoints/{id}/rotate", rotateFromPage, nil},
	{"POST /endpoints/{id}/enable", enableFromPage, nil},
	{"POST /endpoints/{id}/disable", disableFromPage, nil},
	{"POST /endpoints/{id}/delete", deleteFromPage, nil},
	{"POST /endpoints/{id}/test", testFromPage, nil},
	{"POST /endpoints/{id}/recover", recoverFromPage, nil},
	{"GET /attempts/{id}", attemptPage, nil},
	{"POST /attempts/{id}/resend", resendFromPage, nil},
	{"GET /static/{name}", static, nil},
}, api...)

func static(_ context.Context, r *request) (any, error) {
	switch name := r.PathValue("name"); name {
	case "style.css":
		return file{"text/css; charset=utf-8", r.portal.style}, nil
	case "icon.svg":
		content, err := files.ReadFile("static/" + name)
		return file{"image/svg+xml", content}, err
	}
	return nil, problemOf(http.StatusNotFound, "there is no such file")
}

func listPage(ctx context.Context, r *request) (any, error) {
	after := r.values.Get("after")
	found, next, err := r.list(ctx, after, pageRows)
	return page{name: "list", data: struct {
		Endpoints []webhooks.Endpoint
		First     bool
		Next      string
	}{found, after == "", next}}, err
}

func newPage(_ context.Context, r *request) (any, error) {
	f := form{Key: notification.NewID(), Types: r.portal.types()}
	return page{name: "form", data: &f}, nil
}

// createFromPage adds an endpoint. The key of the form makes one endpoint of it, however often it is sent.
func createFromPage(ctx context.Context, r *request) (any, error) {
	f := sentForm(r.values, r.portal.types())
	c, err := f.change()
	var made webhooks.Endpoint
	var secret string
	if err == nil {
		made, secret, err = r.create(ctx, f.Key, f.Secret, f.Asymmetric, c)
	}
	if err != nil {
		return f.refused(err, nil)
	}
	return r.secret(&made, secret, "The endpoint was added."), nil
}

func editPage(ctx context.Context, r *request) (any, error) {
	e, err := r.endpoint(ctx)
	f := formOf(&e, r.portal.types())
	return page{name: "form", data: &f}, err
}

func updateFromPage(ctx context.Context, r *request) (any, error) {
	now, err := r.endpoint(ctx)
	if err != nil {
		return nil, err
	}
	f := sentForm(r.values, r.portal.types())
	f.ID = now.ID
	c, err := f.change()
	if err == nil {
		_, err = r.update(ctx, f.Version, c)
	}
	if err != nil {
		return f.refused(err, &now)
	}
	return goTo("/endpoints/" + now.ID), nil
}

// shown is the page of an endpoint.
type shown struct {
	webhooks.Endpoint
	Waiting, Dead int64
	Chart         chart
	// Recorded says which attempts are recorded.
	Recorded webhooks.Attempts
	Keeps    time.Duration
	Since    string // the default of recovering
	Filter   url.Values
	Filtered bool
	Attempts []store.Attempt
	First    bool
	Next     template.URL // the query of the next page
}

func endpointPage(ctx context.Context, r *request) (any, error) {
	e, err := r.endpoint(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	config := r.endpoints.Config()
	s := shown{Endpoint: e, Filter: r.values, First: r.values.Get("after") == "", Recorded: config.Attempts, Keeps: config.AttemptsRetention,
		Since: now.Add(-24 * time.Hour).Format("2006-01-02T15:04")}
	if s.Waiting, s.Dead, err = r.waiting(ctx); err != nil {
		return nil, err
	}
	hours, err := r.endpoints.Hours(ctx, r.tenant, e.ID, chartBegins(now))
	if err != nil {
		return nil, err
	}
	s.Chart = chartOf(hours, now)
	var last string
	if s.Attempts, last, err = r.attempts(ctx, r.values, pageRows); err != nil {
		return nil, err
	}
	next := url.Values{}
	for _, name := range []string{"outcome", "type", "since", "delivery"} {
		if value := r.values.Get(name); value != "" {
			next.Set(name, value)
			s.Filtered = true
		}
	}
	if last != "" {
		next.Set("after", last)
		s.Next = template.URL(next.Encode())
	}
	return page{name: "endpoint", data: &s}, nil
}

// confirmation asks before an act.
type confirmation struct {
	webhooks.Endpoint
	Act, Heading, What, Button string
	Danger                     bool
}

func confirmPage(ctx context.Context, r *request) (any, error) {
	e, err := r.endpoint(ctx)
	c := confirmation{Endpoint: e, Act: r.PathValue("act"), Danger: true}
	switch c.Act {
	case "rotate":
		c.Heading, c.Button, c.Danger = "Make a new secret?", "Make a new secret", false
		c.What = fmt.Sprintf("Requests are then signed with the new secret and, for %s, also with the old one. Replace it where you verify signatures within this time.", span(r.endpoints.Config().SecretOverlap))
	case "disable":
		c.Heading, c.Button = "Disable this endpoint?", "Disable"
		c.What = "It gets nothing more until it is enabled again, and nothing later of what happens meanwhile. What it has not got yet counts as failed; you can deliver that again once it is enabled."
	case "delete":
		c.Heading, c.Button = "Delete this endpoint?", "Delete"
		c.What = "It gets nothing more, and its attempts and secret are deleted. This cannot be undone."
	default:
		return nil, cmp.Or(err, error(problemOf(http.StatusNotFound, "there is no such page")))
	}
	return page{name: "confirm", data: c}, err
}

// secret is a page with a secret of an endpoint.
func (r *request) secret(e *webhooks.Endpoint, secret, notice string) page {
	r.revealed(e.ID)
	return page{name: "secret", data: struct {
		*webhooks.Endpoint
		Secret, Notice string
		Public         bool
	}{e, secret, notice, strings.HasPrefix(secret, "whpk_")}}
}

func secretPage(ctx context.Context, r *request) (any, error) {
	e, err := r.endpoint(ctx)
	if err != nil {
		return nil, err
	}
	secret, err := r.endpoints.Secret(ctx, r.tenant, e.ID)
	if err != nil {
		return nil, err
	}
	return r.secret(&e, secret, ""), nil
}

// rotateFromPage makes a new secret. Its page has the version of the endpoint, so that it is not made again if the
// browser sends the form again.
func rotateFromPage(ctx context.Context, r *request) (any, error) {
	e, err := r.endpoint(ctx)
	if err != nil {
		return nil, err
	}
	if r.values.Get("version") != fmt.Sprint(e.Version) {
		return nil, webhooks.ErrChanged
	}
	e, secret, err := r.endpoints.Rotate(ctx, r.tenant, e.ID)
	if err != nil {
		return nil, err
	}
	return r.secret(&e, secret, fmt.Sprintf("The endpoint has a new secret. The old one signs as well for %s.", span(r.endpoints.Config().SecretOverlap))), nil
}

func enableFromPage(ctx context.Context, r *request) (any, error) {
	e, err := r.endpoints.Enable(ctx, r.tenant, r.PathValue("id"))
	return goTo("/endpoints/" + e.ID), err
}

func disableFromPage(ctx context.Context, r *request) (any, error) {
	e, err := r.endpoints.Disable(ctx, r.tenant, r.PathValue("id"), "")
	return goTo("/endpoints/" + e.ID), err
}

func deleteFromPage(ctx context.Context, r *request) (any, error) {
	return goTo("/"), r.endpoints.Delete(ctx, r.tenant, r.PathValue("id"))
}

// attempted is the page of an attempt, or of a test, which has no ID.
type attempted struct {
	store.Attempt
	Back string // the id of the endpoint
}

func testFromPage(ctx context.Context, r *request) (any, error) {
	answer, err := r.test(ctx)
	return page{name: "attempt", data: attempted{tested(answer), r.PathValue("id")}}, err
}

func attemptPage(ctx context.Context, r *request) (any, error) {
	a, err := r.attempt(ctx)
	return page{name: "attempt", data: attempted{a, a.Endpoint}}, err
}

// done says what an act has done.
type done struct{ Heading, Text, Back string }

func recoverFromPage(ctx context.Context, r *request) (any, error) {
	since, err := moment("since", r.values.Get("since"))
	if err != nil {
		return nil, err
	}
	n, err := r.recover(ctx, since)
	d := done{"Delivered again", fmt.Sprintf("%d deliveries that had failed since %s are delivered again, in a moment.", n, at(since)), r.PathValue("id")}
	if n == 0 {
		d.Text = fmt.Sprintf("No delivery has failed for good since %s.", at(since))
	}
	return page{name: "done", data: d}, err
}

func resendFromPage(ctx context.Context, r *request) (any, error) {
	a, err := r.attempt(ctx)
	if err == nil {
		err = r.endpoints.Resend(ctx, r.tenant, a.ID)
	}
	return page{name: "done", data: done{"Sent again", "The request is sent again in a moment, with the same id. Its next attempt then appears among the attempts.", a.Endpoint}}, err
}
