package pages

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// searchedRows is how many offsets of the log one page searches for a row whose offset is not known.
const searchedRows = 500_000

// notificationPage is the data of a notification's page.
type notificationPage struct {
	Answer   admin.Answer
	Envelope *notification.Envelope // nil if at most receipts are left
	Sinks    []sinkVerdict
	// About says what it is if it is the delivery to an endpoint of a customer, whose path is Endpoint; "" if the pages
	// do not show endpoints.
	About, Endpoint string
	// Correlation is the correlation id of its chain.
	Correlation string
	// Chain is nil unless the user asked for it.
	Chain *admin.Tree
	// Payload is nil unless the user asked for it.
	Payload *payload
	// Next is the offset down to which the log was searched without finding the row; 0 if the
	// search is complete.
	Next int64
	// MayAct says that the user may act on the notification.
	MayAct bool
}

// sinkVerdict is the state of the notification at one sink.
type sinkVerdict struct {
	admin.Verdict
	// Parked is nil if the notification is not parked for the sink.
	Parked *parkedRow
}

// Acts returns the acts that apply to the state of the parked delivery.
func (v sinkVerdict) Acts() []string {
	switch {
	case v.Parked == nil:
		return nil
	case v.Parked.State == store.StateDead && v.Sink == store.SinkUnrouted:
		return []string{"discard"}
	case v.Parked.State == store.StateDead && v.Parked.Envelope.Key != "":
		return []string{"requeue", "discard", "skip"}
	case v.Parked.State == store.StateDead, v.Parked.State == store.StateRetrying,
		v.Parked.InCollection() && !v.Parked.DueAt.IsZero(): // the first member, with which all of it is tried
		return []string{"requeue", "discard"}
	}
	return []string{"discard"}
}

// look shows a notification.
func (p *Pages) look(ctx context.Context, r *request) (any, error) {
	page, _, err := p.notification(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.URL.Query().Has("chain") {
		from, err := number(r.URL.Query(), "from")
		if err != nil {
			return nil, err
		}
		tree, err := r.Admin.Tree(ctx, page.Correlation, from, r.Routing)
		if err != nil {
			return nil, err
		}
		page.Chain = &tree
	}
	if !page.Answer.Known {
		return answer{status: http.StatusNotFound, data: page}, nil
	}
	return page, nil
}

// lookAtPayload shows a notification with its payload, and logs who looked. It is a POST, so that
// a link cannot lead to it.
func (p *Pages) lookAtPayload(ctx context.Context, r *request) (any, error) {
	page, e, err := p.notification(ctx, r)
	if err != nil {
		return nil, err
	}
	if e == nil {
		return nil, problem{http.StatusNotFound, "there is no payload: the row is no longer in the log"}
	}
	shown := show(p.Masks, r.Routing.Names(e.Type), e.Payload)
	shown.By, shown.At = r.User.Name, time.Now()
	page.Payload = &shown
	p.Logger.Info("a payload was viewed", "user", r.User.Name, "address", r.User.Address, "id", e.ID, "type", e.Type)
	return page, nil
}

func (p *Pages) notification(ctx context.Context, r *request) (page notificationPage, e *notification.Envelope, err error) {
	at, err := number(r.URL.Query(), "offset")
	if err != nil {
		return page, nil, err
	}
	var trace store.Trace
	before, err := number(r.URL.Query(), "before")
	if err != nil {
		return page, nil, err
	}
	q := store.TraceQuery{ID: r.PathValue("id"), Offset: at, Before: before, Offsets: searchedRows}
	if page.Answer, trace, err = r.Admin.Look(ctx, q, r.Routing); err != nil {
		return page, nil, err
	}
	page.Next = trace.Next
	e = trace.Envelope()
	page.Correlation, page.MayAct = page.Answer.ID, r.User.May(access.Operator)
	if e != nil {
		shown := *e
		shown.Payload, shown.Metadata = nil, p.Masks.Metadata(r.Routing.Names(e.Type), e.Metadata)
		page.Envelope = &shown
		if e.Type == webhooks.Type {
			page.About = webhooks.About(shown.Metadata)
			if id := webhooks.EndpointOf(e.Metadata); r.Endpoints != nil && id != "" {
				page.Endpoint = endpointPath(id)
			}
		}
		if id := e.Metadata.Get(notification.MetadataCorrelationID); id != "" {
			page.Correlation = id
		}
	}
	for _, v := range page.Answer.Verdicts {
		s := sinkVerdict{Verdict: v}
		i := slices.IndexFunc(trace.Parked, func(d store.ParkedDelivery) bool {
			return d.Sink == v.Sink && (e == nil || d.Envelope.Offset == e.Offset)
		})
		if i >= 0 {
			s.Parked = &parkedRow{trace.Parked[i]}
		}
		page.Sinks = append(page.Sinks, s)
	}
	return page, e, nil
}
