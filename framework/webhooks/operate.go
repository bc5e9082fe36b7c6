package webhooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

// ErrGone: what should be sent again is no longer kept.
var ErrGone = errors.New("the notification is no longer kept")

// TestType is the type of what [Endpoints.SendTest] sends.
const TestType = "webhooks.test"

// Answer is what an endpoint has answered.
type Answer struct {
	At       time.Time
	Duration time.Duration
	// Status is 0 if there was no answer.
	Status int
	// Request and Answer are the beginnings of both, with their headers; without secrets.
	Request, Answer store.Exchange
	// Err is why it was not accepted; nil if it was.
	Err error
}

// SendTest sends a test notification to an endpoint at once, past the outbox, whether the endpoint is enabled or
// not, and returns the answer. The error is one of this package or of the database; what the endpoint refuses
// is in the answer. It is signed as all requests, and has the type [TestType].
func (e *Endpoints) SendTest(ctx context.Context, tenant, id string) (Answer, error) {
	now, err := e.Get(ctx, tenant, id)
	if err != nil {
		return Answer{}, err
	}
	if now.broken != nil {
		return Answer{}, now.broken
	}
	client, err := httpsink.NewClient(e.in, e.config.ClientConfig)
	if err != nil {
		return Answer{}, err
	}
	defer client.Close()
	at := time.Now()
	body := appendBody(nil, TestType, at, []byte(`{"message":"This is a test."}`), true)
	keys, err := httpsink.ParseSecrets(now.private.at(at))
	if err != nil {
		return Answer{}, err
	}
	answer := Answer{At: at}
	err = e.record(ctx, "test", tenant, id, func() error {
		var sent httpsink.Exchange
		sent, _, answer.Err = client.Post(ctx, httpsink.Post{URL: now.URL, Header: now.Headers, ID: "test_" + notification.NewID(), Body: body, Keys: keys, At: at})
		answer.Err = judged(sent, answer.Err)
		answer.Duration, answer.Status = sent.Duration, sent.Status
		answer.Request, answer.Answer = exchanges(sent, body, now.Headers, keys, maxBody)
		return nil
	})
	return answer, err
}

// Attempts returns recorded attempts at the endpoints of q.Tenant, newest first; at most 1,000.
func (e *Endpoints) Attempts(ctx context.Context, q store.AttemptQuery) ([]store.Attempt, error) {
	if q.Tenant == "" {
		return nil, fmt.Errorf("%w: attempts are those of one tenant", ErrUnknown)
	}
	q.Limit = min(cmp.Or(q.Limit, maxPage), maxPage)
	return e.store.Attempts(ctx, q)
}

// Hours counts the recorded attempts at an endpoint by hour, from since on.
func (e *Endpoints) Hours(ctx context.Context, tenant, id string, since time.Time) ([]store.AttemptHour, error) {
	return e.store.AttemptHours(ctx, tenant, id, since)
}

// Waiting counts the deliveries to an endpoint that are parked, by state: retrying and blocked ones are tried
// again, and dead ones can be recovered.
func (e *Endpoints) Waiting(ctx context.Context, tenant, id string) (map[store.State]int64, error) {
	if _, err := e.Get(ctx, tenant, id); err != nil {
		return nil, err
	}
	counts, err := e.acting.Count(ctx, e.parked(id))
	if errors.Is(err, store.ErrUnknownSink) {
		err = nil // no forwarder has had the sink yet
	}
	states := make(map[store.State]int64)
	for _, c := range counts {
		states[c.State] += c.Count
	}
	return states, err
}

// parked selects the parked deliveries to an endpoint.
func (e *Endpoints) parked(id string) admin.Filter {
	return admin.Filter{Sink: e.in.Name, Type: Type, Metadata: map[string]string{metadataEndpoint: id}}
}

// Recover delivers again what has failed at an endpoint for good since a time: all deliveries that are dead and
// were first parked then or later. It returns how many. They keep their ids, and the order of their keys.
// Deliveries that are still retried are not touched. It fails with [ErrDisabled] if the endpoint is disabled.
func (e *Endpoints) Recover(ctx context.Context, tenant, id string, since time.Time) (int64, error) {
	plan, err := e.PlanRecovery(ctx, tenant, id, since)
	if errors.Is(err, store.ErrUnknownSink) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	action, err := plan.Run(ctx, nil)
	return action.Count, err
}

// PlanRecovery counts what [Endpoints.Recover] would deliver again, for those who show that before or run it in the
// background. It also fails with [store.ErrUnknownSink] if no forwarder has delivered to endpoints yet.
func (e *Endpoints) PlanRecovery(ctx context.Context, tenant, id string, since time.Time) (*admin.Plan, error) {
	if err := e.enabled(ctx, tenant, id); err != nil {
		return nil, err
	}
	f := e.parked(id)
	if f.NewerThan = time.Since(since); f.NewerThan <= 0 {
		return nil, fmt.Errorf("%w: since is in the future: name a time that is over", ErrInvalid)
	}
	return e.acting.Requeue(ctx, f)
}

// Resend delivers a recorded delivery to its endpoint again, whether it had failed or not, with the same id. It
// fails with [ErrUnknown] if the tenant has no such attempt, with [ErrDisabled] if the endpoint is disabled, and
// with [ErrGone] if retention has removed the notification.
func (e *Endpoints) Resend(ctx context.Context, tenant, attempt string) error {
	found, err := e.store.Attempts(ctx, store.AttemptQuery{Tenant: tenant, ID: attempt, Limit: 1})
	if err != nil {
		return err
	}
	if len(found) == 0 || tenant == "" {
		return fmt.Errorf("%w: tenant %q has no attempt %q", ErrUnknown, tenant, attempt)
	}
	of := found[0]
	if err := e.enabled(ctx, tenant, of.Endpoint); err != nil {
		return err
	}
	acting := e.acting
	f := e.parked(of.Endpoint)
	f.ID = of.Delivery
	plan, err := acting.Requeue(ctx, f)
	if err != nil {
		return err
	}
	if plan.Total() > 0 {
		_, err = plan.Run(ctx, nil)
		return err
	}
	if again, err := acting.Again(ctx, e.in.Name, store.Ref{Offset: of.Offset, ID: of.Delivery}); err != nil || again {
		return err
	}
	counts, err := acting.Count(ctx, f)
	if err == nil && len(counts) == 0 {
		err = fmt.Errorf("%w: %s; the log keeps notifications for outbox.retention", ErrGone, of.Delivery)
	}
	return err // it is about to be delivered
}

// enabled fails if an endpoint is disabled.
func (e *Endpoints) enabled(ctx context.Context, tenant, id string) error {
	now, err := e.Get(ctx, tenant, id)
	if err == nil && !now.Enabled() {
		err = fmt.Errorf("%w: %s; enable it first", ErrDisabled, now.DisabledReason)
	}
	return err
}
