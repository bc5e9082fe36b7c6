package portal

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// masked stands for the value of an extra header, which is never shown.
const masked = "***"

// change has the settings of an endpoint that a request sends: as JSON, or made of a form. Those that are left
// out, or null, stay as they are; an empty one is the default.
type change struct {
	URL         *string            `json:"url"`
	Description *string            `json:"description"`
	Types       *[]string          `json:"types"`
	When        *string            `json:"when"`
	Headers     *map[string]string `json:"headers"` // all of them; masked keeps a value
	Rate        *string            `json:"rate"`
}

// apply changes settings. It returns mistakes as package webhooks does.
func (c *change) apply(to *webhooks.Settings) error {
	set(&to.URL, c.URL)
	set(&to.Description, c.Description)
	set(&to.Types, c.Types)
	set(&to.When, c.When)
	var wrong []error
	if c.Headers != nil {
		headers, err := unmasked(*c.Headers, to.Headers)
		to.Headers, wrong = headers, append(wrong, err)
	}
	if c.Rate != nil {
		to.Rate = settings.Rate{}
		if *c.Rate != "" {
			rate, err := settings.ParseRate(*c.Rate)
			if to.Rate = rate; err != nil {
				wrong = append(wrong, invalid("rate", "%w", err))
			}
		}
	}
	return errors.Join(wrong...)
}

func set[T any](to, value *T) {
	if value != nil {
		*to = *value
	}
}

// unmasked returns the headers of a request. Those that are masked keep the value that they have.
func unmasked(sent, before map[string]string) (map[string]string, error) {
	all := make(map[string]string, len(sent))
	for name, value := range sent {
		all[name] = value
		if value != masked {
			continue
		}
		kept := false
		for old, its := range before {
			if http.CanonicalHeaderKey(old) == http.CanonicalHeaderKey(name) {
				all[name], kept = its, true
			}
		}
		if !kept {
			return nil, invalid("headers", "%s has no value yet that %s could keep: write its value", name, masked)
		}
	}
	return all, nil
}

// unchanged is an error of a change to an endpoint that does not have a version.
func unchanged(e *webhooks.Endpoint, version int64) error {
	if version != 0 && e.Version != version {
		return fmt.Errorf("%w: it has version %d", webhooks.ErrChanged, e.Version)
	}
	return nil
}

// create adds an endpoint of the tenant. With a key it can be repeated.
func (r *request) create(ctx context.Context, key, secret string, asymmetric bool, c *change) (webhooks.Endpoint, string, error) {
	n := webhooks.NewEndpoint{Tenant: r.tenant, Key: key, Secret: secret, Asymmetric: asymmetric}
	if err := c.apply(&n.Settings); err != nil {
		return webhooks.Endpoint{}, "", err
	}
	return r.endpoints.Create(ctx, n)
}

// update changes the endpoint of the path, if it has a version; 0 is any.
func (r *request) update(ctx context.Context, version int64, c *change) (webhooks.Endpoint, error) {
	return r.endpoints.Update(ctx, r.tenant, r.PathValue("id"), func(e *webhooks.Endpoint) error {
		if err := unchanged(e, version); err != nil {
			return err
		}
		return c.apply(&e.Settings)
	})
}

// endpoint returns the endpoint of the path.
func (r *request) endpoint(ctx context.Context) (webhooks.Endpoint, error) {
	return r.endpoints.Get(ctx, r.tenant, r.PathValue("id"))
}

// list returns endpoints of the tenant after an id, and the id after which more follow; "" if none does.
func (r *request) list(ctx context.Context, after string, limit int) (found []webhooks.Endpoint, next string, err error) {
	found, err = r.endpoints.List(ctx, webhooks.Query{Tenant: r.tenant, After: store.EndpointPlace{Tenant: r.tenant, ID: after}, Limit: limit + 1})
	if len(found) > limit {
		found = found[:limit]
		next = found[limit-1].ID
	}
	return found, next, err
}

// waiting counts the deliveries to the endpoint of the path that wait, and those that have failed for good.
func (r *request) waiting(ctx context.Context) (waiting, dead int64, err error) {
	counts, err := r.endpoints.Waiting(ctx, r.tenant, r.PathValue("id"))
	for state, n := range counts {
		if state == store.StateDead {
			dead += n
		} else {
			waiting += n
		}
	}
	return waiting, dead, err
}

// test sends a test to the endpoint of the path. So that slow endpoints do not use up the server, few tests wait at
// once.
func (r *request) test(ctx context.Context) (webhooks.Answer, error) {
	select {
	case r.portal.tests <- struct{}{}:
		defer func() { <-r.portal.tests }()
		return r.endpoints.SendTest(ctx, r.tenant, r.PathValue("id"))
	default:
		return webhooks.Answer{}, problemOf(http.StatusTooManyRequests, "too many tests wait for answers: try again in a moment")
	}
}

// recover delivers again what has failed for good since a time.
func (r *request) recover(ctx context.Context, since time.Time) (int64, error) {
	switch {
	case since.IsZero():
		return 0, problemOf(http.StatusBadRequest, "since is missing: name the time since when to deliver again")
	case since.After(time.Now()):
		return 0, problemOf(http.StatusBadRequest, "since is in the future: name a time that is over")
	}
	return r.endpoints.Recover(ctx, r.tenant, r.PathValue("id"), since)
}

// revealed notes that a secret is shown.
func (r *request) revealed(endpoint string) {
	r.portal.Logger.Info("the secret of an endpoint was shown to its customer", "tenant", r.tenant, "endpoint", endpoint)
}
