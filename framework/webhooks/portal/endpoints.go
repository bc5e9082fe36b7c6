package portal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/internal/endpoint"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// How many rows a page has, those of the API by default, and at most.
const (
	pageRows  = 25
	usualRows = 50
	mostRows  = 200
)

// list returns endpoints after an id, and the id after which more follow; "" if none does.
func (r *request) list(ctx context.Context, usual int) (found []webhooks.Endpoint, next string, err error) {
	limit, err := r.limit(usual)
	if err != nil {
		return nil, "", err
	}
	found, err = r.endpoints.List(ctx, webhooks.Query{Tenant: r.tenant, After: store.EndpointPlace{Tenant: r.tenant, ID: r.values.Get("after")}, Limit: limit + 1})
	if len(found) > limit {
		found, next = found[:limit], found[limit-1].ID
	}
	return found, next, err
}

func listPage(ctx context.Context, r *request) (any, error) {
	found, next, err := r.list(ctx, pageRows)
	return page{name: "list", data: struct {
		Endpoints []webhooks.Endpoint
		First     bool
		Next      string
	}{found, r.values.Get("after") == "", next}}, err
}

func listEndpoints(ctx context.Context, r *request) (any, error) {
	found, next, err := r.list(ctx, usualRows)
	views := make([]endpointView, len(found))
	for i := range found {
		views[i] = viewOf(&found[i])
	}
	return listed("endpoints", views, next), err
}

// create adds an endpoint, unless there is a mistake already. With a key it can be repeated.
func (r *request) create(ctx context.Context, key string, like *newEndpoint, mistake error) (webhooks.Endpoint, string, error) {
	n := webhooks.NewEndpoint{Tenant: r.tenant, Key: key, Secret: like.Secret, Asymmetric: like.Asymmetric}
	if err := r.apply(&like.change, &n, mistake); err != nil {
		return webhooks.Endpoint{}, "", err
	}
	return r.endpoints.Create(ctx, n)
}

// apply changes settings. If that is a mistake, it returns all others with it.
func (r *request) apply(c *change, to *webhooks.NewEndpoint, mistake error) error {
	if err := errors.Join(mistake, c.Apply(&to.Settings)); err != nil {
		return errors.Join(r.endpoints.Check(to), err)
	}
	return nil
}

func newPage(_ context.Context, r *request) (any, error) {
	return page{name: "form", data: &form{Key: notification.NewID(), Types: r.portal.types()}}, nil
}

// createPage adds an endpoint. The key of the form makes one endpoint of it, however often it is sent.
func createPage(ctx context.Context, r *request) (any, error) {
	f := sentForm(r.values, r.portal.types())
	made, secret, err := r.create(ctx, f.Key, &f.newEndpoint, f.read())
	if err != nil {
		return f.refused(err, nil)
	}
	return r.secret(&made, secret, "The endpoint was added."), nil
}

func createEndpoint(ctx context.Context, r *request) (any, error) {
	var like newEndpoint
	if err := r.decode(&like); err != nil {
		return nil, err
	}
	key := r.Header.Get("Idempotency-Key")
	if !isText(key) {
		return nil, problemOf(http.StatusBadRequest, "the Idempotency-Key is not valid text")
	}
	made, secret, err := r.create(ctx, key, &like, nil)
	if err != nil {
		return nil, err
	}
	answer := r.secret(&made, secret, "").(reply)
	answer.status, answer.header["Location"] = http.StatusCreated, r.portal.path+"/api/endpoints/"+made.ID
	return answer, nil
}

// endpoint returns the endpoint of the path.
func (r *request) endpoint(ctx context.Context) (webhooks.Endpoint, error) {
	return r.endpoints.Get(ctx, r.tenant, r.id)
}

// endpointData is the page of an endpoint.
type endpointData struct {
	webhooks.Endpoint
	Deliveries endpoint.Deliveries
	Chart      chart
	Config     webhooks.Config
	Since      time.Time // the default of recovering
	Attempts   attemptsData
}

func endpointPage(ctx context.Context, r *request) (any, error) {
	e, err := r.endpoint(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	data := endpointData{Endpoint: e, Config: r.endpoints.Config(), Since: now.Add(-24 * time.Hour)}
	if data.Deliveries, err = r.deliveries(ctx); err != nil {
		return nil, err
	}
	hours, err := r.endpoints.Hours(ctx, r.tenant, r.id, chartBegins(now))
	if err != nil {
		return nil, err
	}
	data.Chart = chartOf(hours, now)
	data.Attempts, err = r.attemptsData(ctx)
	return page{name: "endpoint", data: &data}, err
}

func getEndpoint(ctx context.Context, r *request) (any, error) {
	e, err := r.endpoint(ctx)
	if err != nil {
		return nil, err
	}
	deliveries, err := r.deliveries(ctx)
	view := viewOf(&e)
	view.Deliveries = &deliveries
	return reply{http.StatusOK, tagged(&e), view}, err
}

// deliveries counts the deliveries to the endpoint of the path that have not succeeded.
func (r *request) deliveries(ctx context.Context) (endpoint.Deliveries, error) {
	return endpoint.DeliveriesOf(ctx, r.endpoints, r.tenant, r.id)
}

// update changes the endpoint of the path, if it has a version, and unless there is a mistake already; 0 is any version.
// What is like that already is no conflict, as if a form is sent twice.
func (r *request) update(ctx context.Context, version int64, c *change, mistake error) (webhooks.Endpoint, error) {
	return r.endpoints.Update(ctx, r.tenant, r.id, func(e *webhooks.Endpoint) error {
		changed := webhooks.NewEndpoint{Tenant: r.tenant, Settings: e.Settings}
		err := r.apply(c, &changed, mistake)
		if version != 0 && e.Version != version && (err != nil || !same(&e.Settings, &changed.Settings)) {
			return webhooks.ErrChanged
		}
		e.Settings = changed.Settings
		return err
	})
}

func same(a, b *webhooks.Settings) bool {
	all := func(types []string) bool { return len(types) == 0 || slices.Equal(types, []string{"*"}) }
	return a.URL == b.URL && a.Description == b.Description && a.When == b.When && a.Rate == b.Rate &&
		(slices.Equal(a.Types, b.Types) || all(a.Types) && all(b.Types)) && maps.Equal(a.Headers, b.Headers)
}

func editPage(ctx context.Context, r *request) (any, error) {
	e, err := r.endpoint(ctx)
	return page{name: "form", data: formOf(&e, r.portal.types())}, err
}

func updatePage(ctx context.Context, r *request) (any, error) {
	now, err := r.endpoint(ctx)
	if err != nil {
		return nil, err
	}
	f := sentForm(r.values, r.portal.types())
	f.ID = now.ID
	if _, err = r.update(ctx, f.Version, &f.change, f.read()); err != nil {
		return f.refused(err, &now)
	}
	return goTo("/endpoints/" + now.ID), nil
}

// updateEndpoint changes settings. If-Match has the ETag of the endpoint; without it, or with *, any version is
// changed.
func updateEndpoint(ctx context.Context, r *request) (any, error) {
	var c change
	if err := r.decode(&c); err != nil {
		return nil, err
	}
	match, version := r.Header.Get("If-Match"), int64(0)
	if match != "" && match != "*" {
		var err error
		if version, err = strconv.ParseInt(strings.Trim(match, `"`), 10, 64); err != nil || version < 1 {
			return nil, problemOf(http.StatusBadRequest, `If-Match is %q: use the ETag of the endpoint, such as "1"`, match)
		}
	}
	e, err := r.update(ctx, version, &c, nil)
	if version != 0 && errors.Is(err, webhooks.ErrChanged) {
		return nil, problemOf(http.StatusPreconditionFailed, "the endpoint does not have this ETag any more: read it again, and repeat the change")
	}
	return reply{http.StatusOK, tagged(&e), viewOf(&e)}, err
}

// confirmPage asks before an act.
func confirmPage(ctx context.Context, r *request) (any, error) {
	e, err := r.endpoint(ctx)
	act := r.PathValue("act")
	if err == nil && act != "rotate" && act != "disable" && act != "delete" {
		err = problemOf(http.StatusNotFound, "there is no such page")
	}
	return page{name: "confirm", data: struct {
		*webhooks.Endpoint
		Act     string
		Overlap time.Duration
	}{&e, act, r.endpoints.Config().SecretOverlap}}, err
}

// secret returns an answer with a secret of an endpoint, and notes that it is shown.
func (r *request) secret(e *webhooks.Endpoint, secret, notice string) any {
	r.portal.Logger.Info("the secret of an endpoint was shown to its customer", "tenant", r.tenant, "endpoint", e.ID)
	view := viewOf(e)
	view.Secret = secret
	return r.either(page{name: "secret", data: struct {
		endpointView
		Notice string
		Public bool
	}{view, notice, strings.HasPrefix(secret, "whpk_")}}, reply{http.StatusOK, tagged(e), view})
}

func secretPage(ctx context.Context, r *request) (any, error) {
	e, err := r.endpoint(ctx)
	if err != nil {
		return nil, err
	}
	secret, err := r.endpoints.Secret(ctx, r.tenant, r.id)
	if err != nil {
		return nil, err
	}
	return r.secret(&e, secret, ""), nil
}

// rotate makes a new secret. A page sends the version of the endpoint, so that no second one is made if the browser
// sends the form again.
func rotate(ctx context.Context, r *request) (any, error) {
	now, err := r.endpoint(ctx)
	if err == nil && !r.isAPI && r.values.Get("version") != fmt.Sprint(now.Version) {
		err = problemOf(http.StatusConflict, "the endpoint has got a new secret already, or was changed meanwhile: go back to it, which can also show the secret")
	}
	if err != nil {
		return nil, err
	}
	now, secret, err := r.endpoints.Rotate(ctx, r.tenant, r.id)
	if err != nil {
		return nil, err
	}
	return r.secret(&now, secret, "The endpoint has a new secret. The old one signs as well for "+span(r.endpoints.Config().SecretOverlap)+"."), nil
}

func enable(ctx context.Context, r *request) (any, error) {
	return r.changed(r.endpoints.Enable(ctx, r.tenant, r.id))
}

func disable(ctx context.Context, r *request) (any, error) {
	return r.changed(r.endpoints.Disable(ctx, r.tenant, r.id, ""))
}

// changed returns the answer to an act on an endpoint.
func (r *request) changed(e webhooks.Endpoint, err error) (any, error) {
	return r.either(goTo("/endpoints/"+e.ID), reply{http.StatusOK, tagged(&e), viewOf(&e)}), err
}

func remove(ctx context.Context, r *request) (any, error) {
	return r.either(goTo("/"), reply{status: http.StatusNoContent}), r.endpoints.Delete(ctx, r.tenant, r.id)
}

// recoverDead delivers again what has failed for good since a time.
func recoverDead(ctx context.Context, r *request) (any, error) {
	var body struct {
		Since time.Time `json:"since"`
	}
	var err error
	if r.isAPI {
		err = r.decode(&body)
	} else {
		body.Since, err = moment("since", r.values.Get("since"))
	}
	if err != nil {
		return nil, err
	}
	if body.Since.IsZero() || body.Since.After(time.Now()) {
		return nil, problemOf(http.StatusBadRequest, "the time since when to deliver again is missing, or in the future: name one that is over")
	}
	n, err := r.endpoints.Recover(ctx, r.tenant, r.id, body.Since)
	said := done{"Delivered again", fmt.Sprintf("What had failed since %s is delivered again, in a moment. Deliveries: %d.", at(body.Since), n), r.id}
	if n == 0 {
		said.Heading, said.Text = "Nothing to deliver again", "No delivery has failed for good since "+at(body.Since)+"."
	}
	return r.either(page{name: "done", data: said}, map[string]int64{"recovered": n}), err
}

// done says what an act has done, on the page before that of the endpoint Back.
type done struct{ Heading, Text, Back string }

// slots counts the tests of each tenant that wait for answers.
type slots struct {
	mu sync.Mutex
	of map[string]int
}

func (s *slots) take(tenant string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[tenant] >= testsAtOnce {
		return false
	}
	s.of[tenant]++
	return true
}

func (s *slots) leave(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[tenant]--; s.of[tenant] == 0 {
		delete(s.of, tenant)
	}
}

// test sends a test, and returns the answer of the endpoint. So that slow endpoints do not use up the server, few tests
// wait at once.
func test(ctx context.Context, r *request) (any, error) {
	if !r.portal.tests.take(r.tenant) {
		return nil, problemOf(http.StatusTooManyRequests, "too many of your tests wait for answers: try again in a moment")
	}
	defer r.portal.tests.leave(r.tenant)
	answer, err := r.endpoints.SendTest(ctx, r.tenant, r.id)
	a := tested(answer)
	return r.either(page{name: "attempt", data: attemptData{a, r.id}}, viewOfTest(&a)), err
}
