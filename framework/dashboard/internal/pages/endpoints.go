package pages

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/internal/endpoint"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// shownTenants is how many tenants with endpoints in trouble are listed.
const shownTenants = 20

// endpointsPage is the data of the list of endpoints.
type endpointsPage struct {
	Tenant string
	// All says that the list has endpoints that are not in trouble, too.
	All     bool
	Tenants []tenantRow
	Rows    []endpointRow
	// Next is the query of the next page; "" on the last one.
	Next string
}

// tenantRow is a tenant with endpoints in trouble.
type tenantRow struct{ store.EndpointCount }

// Words says how many of its endpoints are in which trouble.
func (r tenantRow) Words() string {
	var words []string
	for _, of := range []struct {
		n    int
		word string
	}{{r.Failing, "failing"}, {r.Disabled, "disabled"}, {r.Troubled, "in trouble"}} {
		if of.n > 0 {
			words = append(words, fmt.Sprintf("%d %s", of.n, of.word))
		}
	}
	return strings.Join(words, ", ") + fmt.Sprintf(" of %d", r.All)
}

// endpointRow is an endpoint.
type endpointRow struct{ endpoint.View }

// Badge returns the state of the endpoint.
func (r endpointRow) Badge() badge {
	b := badge{Word: r.State(), Class: "warn"}
	switch {
	case !r.Enabled && strings.HasPrefix(r.DisabledReason, store.DisabledByPerson):
		b.Class = ""
	case !r.Enabled:
		b.Class = "bad"
	case r.FailingSince.IsZero() && r.Trouble == "":
		b.Class = "good"
	}
	return b
}

// Since returns since when the endpoint has its state; zero if that is not known.
func (r endpointRow) Since() time.Time {
	if r.Enabled {
		return r.FailingSince
	}
	return r.DisabledAt
}

// Why returns what is known about the state.
func (r endpointRow) Why() string {
	var all []string
	for _, text := range []string{r.DisabledReason, r.Trouble} {
		if text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, "; ")
}

// desk returns what manages the endpoints in the name of the user.
func (r *request) desk(reason string) (*webhooks.Endpoints, error) {
	if r.Endpoints == nil {
		return nil, problem{http.StatusNotFound, "this process has no sink of kind webhooks"}
	}
	return r.Endpoints.As(r.Admin.For(admin.Request{Address: r.User.Address, Reason: reason})), nil
}

// endpoints lists endpoints: those in trouble, or all.
func endpoints(ctx context.Context, r *request) (any, error) {
	all, err := r.desk("")
	if err != nil {
		return nil, err
	}
	page := endpointsPage{Tenant: r.Form.Get("tenant"), All: r.Form.Get("all") != ""}
	counts, err := all.InTrouble(ctx, shownTenants)
	if err != nil {
		return nil, err
	}
	for _, c := range counts {
		page.Tenants = append(page.Tenants, tenantRow{c})
	}
	q := webhooks.Query{Tenant: page.Tenant, Troubled: !page.All, Limit: pageRows + 1}
	if after := r.Form.Get("after"); after != "" {
		if json.Unmarshal([]byte(after), &[]any{&q.After.Tenant, &q.After.ID}) != nil || strings.ContainsRune(q.After.Tenant+q.After.ID, 0) {
			return nil, problem{http.StatusBadRequest, "this address is incomplete or was changed: start from the first page"}
		}
	}
	found, err := all.List(ctx, q)
	if len(found) > pageRows {
		found = found[:pageRows]
		last, _ := json.Marshal([]string{found[pageRows-1].Tenant, found[pageRows-1].ID})
		next := url.Values{"tenant": {page.Tenant}, "after": {string(last)}}
		if page.All {
			next.Set("all", "1")
		}
		page.Next = next.Encode()
	}
	for i := range found {
		page.Rows = append(page.Rows, endpointRow{r.Store.Endpoint(endpoint.ViewOf(&found[i]))})
	}
	return page, err
}

// endpointPage is the data of an endpoint's page.
type endpointPage struct {
	endpointRow
	Deliveries endpoint.Deliveries
	Attempts   []endpoint.AttemptView
	// HeaderNames are the names of its extra headers.
	HeaderNames []string
}

// oneEndpoint is the page of one endpoint.
func oneEndpoint(ctx context.Context, r *request) (any, error) {
	all, err := r.desk("")
	if err != nil {
		return nil, err
	}
	whole, err := endpoint.Show(ctx, all, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	whole = r.Store.WholeEndpoint(whole)
	page := endpointPage{endpointRow: endpointRow{whole.View}, Deliveries: whole.Deliveries, Attempts: whole.Attempts}
	for name := range whole.Headers {
		page.HeaderNames = append(page.HeaderNames, name)
	}
	slices.Sort(page.HeaderNames)
	return page, nil
}

// endpointPath returns the path of an endpoint's page.
func endpointPath(id string) string { return "/endpoints/" + url.PathEscape(id) }

// onEndpoint returns the view that does an operation on an endpoint. It asks for confirmation, or acts if the
// form is confirmed.
func onEndpoint(operation string) view {
	o, _ := endpoint.Named(operation)
	return func(ctx context.Context, r *request) (any, error) {
		id := r.PathValue("id")
		reason, all, err := r.reasoned()
		if err != nil {
			return nil, err
		}
		if r.PostForm.Get("confirmed") == "" {
			e, err := all.Find(ctx, id)
			question := confirm(o.Operation, e.URL, endpointPath(id), endpointPath(id))
			question.Reason = reason
			return question, err
		}
		_, err = o.Do(ctx, all, id, reason)
		return goTo{path: endpointPath(id)}, err
	}
}

// recoverEndpoint delivers again what has failed at an endpoint for good since a time, which the form has as an
// age first.
func recoverEndpoint(ctx context.Context, r *request) (any, error) {
	id := r.PathValue("id")
	reason, all, err := r.reasoned()
	if err != nil {
		return nil, err
	}
	since, err := moment("since", r.Form.Get("since"))
	if err != nil {
		return nil, err
	}
	if since.IsZero() {
		age, err := readAge(r.PostForm.Get("age"))
		if err != nil {
			return nil, err
		}
		since = time.Now().Add(-age).UTC()
	}
	e, err := all.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	p, err := all.PlanRecovery(ctx, e.Tenant, id, since)
	if err != nil {
		return nil, err
	}
	if r.PostForm.Get("confirmed") != "" {
		action, err := r.Acts.Start(ctx, p)
		return goTo{path: "/actions/" + url.PathEscape(action.ID)}, err
	}
	question := confirm(endpoint.Recover, e.URL, endpointPath(id), endpointPath(id))
	question.Path += "?since=" + url.QueryEscape(since.Format(time.RFC3339))
	question.What = fmt.Sprintf("Dead since %s or later: %s. %s", at(since), count(p.Total()), question.What)
	question.Reason = reason
	return question, nil
}

// reasoned returns the reason in the form, and what manages the endpoints for it.
func (r *request) reasoned() (string, *webhooks.Endpoints, error) {
	reason, err := r.reason()
	if err != nil {
		return "", nil, err
	}
	all, err := r.desk(reason)
	return reason, all, err
}

// troubledEndpoints returns the trouble that endpoints are in, for the overview; none if they cannot be read.
func (r *request) troubledEndpoints(ctx context.Context) (all []trouble) {
	if r.Endpoints == nil {
		return nil
	}
	found, err := r.Endpoints.List(ctx, webhooks.Query{Troubled: true, Limit: pageRows + 1})
	if err != nil || len(found) == 0 {
		return nil
	}
	tenants := make(map[string]bool)
	for _, e := range found {
		tenants[e.Tenant] = true
	}
	number, be := fmt.Sprint(len(found)), "are"
	switch {
	case len(found) > pageRows:
		number = fmt.Sprintf("More than %d", pageRows)
	case len(found) == 1:
		be = "is"
	}
	text := fmt.Sprintf("%s %s of %d %s %s failing or in trouble.", number, plural(len(found), "endpoint"), len(tenants), plural(len(tenants), "tenant"), be)
	return []trouble{{ID: "endpoints", Class: "warn", Text: text, Path: "/endpoints"}}
}

// plural returns the form of a noun for a number.
func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
