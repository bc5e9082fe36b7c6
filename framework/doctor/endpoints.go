package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/internal/endpoint"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// endpointPages is how many pages of endpoints a check reads at most.
const endpointPages = 10

// checkEndpoints looks at customers' endpoints: what is in trouble, and whether secrets can be read.
func checkEndpoints(ctx context.Context, x *examination) (verdict, error) {
	if x.Forwarder == nil {
		return skip("no configuration says whether customers have endpoints", "waybill doctor -c waybill.yaml"), nil
	}
	sink, name := endpoint.SinkOf(x.Forwarder.Sinks)
	if sink == nil {
		return ok("no sink is of kind webhooks"), nil
	}
	outbox, is := x.store.(webhooks.Store)
	if !is {
		return skip("the store keeps no endpoints", ""), nil
	}
	all, err := sink.Endpoints(outbox, "")
	if err != nil {
		return verdict{}, err
	}
	seen, err := lookAtEndpoints(ctx, all)
	if err != nil {
		return verdict{}, err
	}
	texts, fixes := seen.texts()
	if !x.learnsOfDisabling(name) {
		texts = append(texts, "no route takes "+webhooks.DisabledType+" to the application, so it does not learn when an endpoint is disabled")
		fixes = append(fixes, "route "+webhooks.DisabledType+" to a sink of the application, which informs the customer")
	}
	text, fix := strings.Join(texts, "; "), strings.Join(fixes, "\n")
	switch {
	case len(seen.locked) > 0:
		return fail(fix, "%s", text), nil
	case len(fixes) > 0:
		return warn(fix, "%s", text), nil
	}
	return ok("%s", text), nil
}

// learnsOfDisabling reports whether a sink other than that of the endpoints gets what is published when one is
// disabled.
func (x *examination) learnsOfDisabling(sink string) bool {
	for pattern, rules := range x.Forwarder.Routes {
		if route.Matches(pattern, webhooks.DisabledType) && slices.ContainsFunc(rules, func(r route.Rule) bool { return r.Sink != sink }) {
			return true
		}
	}
	return false
}

// endpointsSeen is what a check has seen of endpoints.
type endpointsSeen struct {
	count, failing, disabled int
	more                     bool // there are others
	troubled                 []string
	locked                   []string
	key                      error // of the first one that is locked
}

// lookAtEndpoints looks at the first endpoints.
func lookAtEndpoints(ctx context.Context, all *webhooks.Endpoints) (seen endpointsSeen, err error) {
	var after store.EndpointPlace
	for range endpointPages {
		page, err := all.List(ctx, webhooks.Query{After: after})
		if err != nil || len(page) == 0 {
			return seen, err
		}
		for i := range page {
			seen.add(&page[i])
		}
		last := page[len(page)-1]
		after = store.EndpointPlace{Tenant: last.Tenant, ID: last.ID}
	}
	seen.more = true
	return seen, nil
}

func (s *endpointsSeen) add(e *webhooks.Endpoint) {
	s.count++
	of := fmt.Sprintf("%s of tenant %s", e.ID, e.Tenant)
	if err := e.Locked(); err != nil {
		if s.locked = append(s.locked, of); s.key == nil {
			s.key = err
		}
	}
	switch {
	case !e.Enabled() && !strings.HasPrefix(e.DisabledReason, store.DisabledByPerson):
		s.disabled++
	case e.Enabled() && !e.FailingSince.IsZero():
		s.failing++
	}
	if e.Trouble != "" {
		s.troubled = append(s.troubled, fmt.Sprintf("%s (%s)", of, oneLine(e.Trouble, 100)))
	}
}

// texts says what was seen, and how to mend it.
func (s *endpointsSeen) texts() (texts, fixes []string) {
	which := ""
	if s.more {
		which = "the first "
	}
	texts = []string{fmt.Sprintf("of %s%s, %d fail now", which, count(s.count, "endpoint"), s.failing)}
	if len(s.locked) > 0 {
		texts = append(texts, "no key decrypts the secrets of "+some(s.locked)+", so nothing is delivered to them")
		fixes = append(fixes, s.key.Error())
	}
	if s.disabled > 0 {
		texts = append(texts, fmt.Sprintf("%d were disabled because they failed", s.disabled))
		fixes = append(fixes, "waybill endpoints list --troubled, and once an endpoint works waybill endpoints enable and recover")
	}
	if len(s.troubled) > 0 {
		texts = append(texts, "in trouble: "+some(s.troubled))
		fixes = append(fixes, "correct it with waybill endpoints update")
	}
	return texts, fixes
}
