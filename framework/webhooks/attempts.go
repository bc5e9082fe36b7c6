package webhooks

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

// maxBody is the most of a body that is recorded, in bytes, and the default.
const maxBody = 8 << 10

// attempt is what is remembered of an attempt until a checkpoint writes what became of it.
type attempt struct {
	store.Attempt
	endpoint *known
	gone     bool      // the answer was 410
	used     time.Time // when a checkpoint first wrote it
}

// attempt returns what is remembered of an attempt. Bodies and headers are left out if they are not recorded, and what
// repeats private values if the delivery revealed them.
func (s *Sink) attempt(d *notification.Delivery, k *known, sent httpsink.Exchange, at time.Time, err error) *attempt {
	a := &attempt{endpoint: k, gone: sent.Status == http.StatusGone, Attempt: store.Attempt{
		ID: notification.NewID(), Endpoint: k.ID, EndpointCreatedAt: k.CreatedAt, Tenant: k.Tenant, Offset: d.Offset, Delivery: d.ID,
		Notification: d.Metadata.Get(notification.MetadataCausationID), Type: d.Metadata.Get(metadataType),
		Number: d.Attempt, At: at, Duration: sent.Duration, Status: sent.Status, Until: at.Add(s.config.AttemptsRetention),
	}}
	if err != nil {
		a.Error = store.CutText(ForCustomer(err), maxError)
	}
	if s.records(a) {
		limit := *s.config.AttemptsBytes
		if d.Revealed {
			limit = 0
		}
		a.Request, a.Answer = exchanges(sent, d.Payload, k.Headers, k.keys, limit)
	}
	return a
}

// ForCustomer returns the text of an attempt's error for the owner of the endpoint: without the addresses of
// servers inside, such as that of this process and of the resolver, and without what a name resolves to.
func ForCustomer(err error) string {
	var name *net.DNSError
	var network *net.OpError
	var call *os.SyscallError
	switch {
	case errors.Is(err, httpsink.ErrGuarded):
		return "no connection: the address of the host is not public"
	case errors.As(err, &name):
		return "no connection: the name of the host cannot be found"
	case errors.As(err, &call):
		return "no connection: " + call.Err.Error()
	case errors.As(err, &network) && network.Err != nil:
		return "no connection: " + network.Err.Error()
	}
	return sinks.Brief(withoutClass(err))
}

// withoutClass returns the cause of an error with a class, which means nothing to a customer.
func withoutClass(err error) error {
	if classed := new(sinks.Error); errors.As(err, &classed) {
		return classed.Err
	}
	return err
}

// maxError bounds the recorded error of an attempt, in bytes.
const maxError = 1000

// records reports whether an attempt is recorded for the customer.
func (s *Sink) records(a *attempt) bool {
	return s.config.Attempts == AttemptsAll || s.config.Attempts == AttemptsFailed && a.Error != ""
}

// masked replaces what is secret in a recorded request.
const masked = "***"

// exchanges returns the beginnings of a request and of its answer, as they are recorded: without the values
// of extra headers, which may be secret, and without keys, also where the answer repeats them. Bodies have at most
// limit bytes; with 0 there is nothing of the answer.
func exchanges(sent httpsink.Exchange, body []byte, headers map[string]string, keys httpsink.Keys, limit int) (request, answer store.Exchange) {
	request = store.Exchange{Header: clean(sent.RequestHeader), Body: beginning(body, limit)}
	for name := range headers {
		if name = http.CanonicalHeaderKey(name); request.Header[name] != nil {
			request.Header[name] = []string{masked}
		}
	}
	if limit == 0 {
		return request, answer
	}
	mask := keys.Mask(headers)
	answer = store.Exchange{Header: clean(sent.Header), Body: beginning([]byte(mask(string(sent.Body))), limit)}
	for _, values := range answer.Header {
		for i := range values {
			values[i] = mask(values[i])
		}
	}
	return request, answer
}

// maxValues is how many values of headers are recorded of a request or an answer.
const maxValues = 100

// clean returns headers as text that every database holds.
func clean(h http.Header) map[string][]string {
	all := make(map[string][]string, len(h))
	values, bytes := 0, 0
	for name, each := range h {
		for _, v := range each {
			values++
			if bytes += len(name) + len(v); values > maxValues || bytes > maxBody {
				return map[string][]string{"…": {"too many headers"}}
			}
			all[text(name)] = append(all[text(name)], text(v))
		}
	}
	return all
}

func beginning(body []byte, limit int) string { return text(string(body[:min(len(body), limit)])) }

// text returns valid UTF-8 without NUL, which PostgreSQL cannot store.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// memory remembers attempts between the call and its checkpoint. It has two generations, so that what no
// checkpoint asks for, as after a lost lease, is forgotten. Then the attempt is not recorded.
type memory struct {
	mu         sync.Mutex
	young, old map[store.Ref]*attempt
	bytes      int // of the young
	begun      time.Time
}

const (
	// maxMemory bounds a generation, in bytes, and memoryTime how long it lasts at least.
	maxMemory  = 32 << 20
	memoryTime = time.Minute
	// attemptBytes is about what an attempt takes without bodies and headers, and headerBytes a header.
	attemptBytes, headerBytes = 500, 64
	// usedFor is how long an attempt can be written after a checkpoint has first done so: if the checkpoint
	// fails, it is repeated soon.
	usedFor = 4 * time.Second
)

func (m *memory) add(of *notification.Delivery, a *attempt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rotate()
	m.young[store.RefOf(of.Envelope)] = a
	m.bytes += attemptBytes + sizeOf(a.Request) + sizeOf(a.Answer)
}

// rotate begins another generation if the present one is full or old.
func (m *memory) rotate() {
	if m.young == nil || m.bytes > maxMemory || time.Since(m.begun) > memoryTime {
		m.old, m.young, m.bytes, m.begun = m.young, make(map[store.Ref]*attempt), 0, time.Now()
	}
}

// forget forgets the last attempt of a delivery, of which nothing will be written any more.
func (m *memory) forget(of *notification.Delivery) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ref := store.RefOf(of.Envelope)
	delete(m.young, ref)
	delete(m.old, ref)
}

// sizeOf returns about how much memory an exchange takes.
func sizeOf(x store.Exchange) int {
	n := len(x.Body)
	for name, values := range x.Header {
		for _, v := range values {
			n += len(name) + len(v) + headerBytes
		}
	}
	return n
}

// of returns the last attempts of deliveries; those that made none are left out. It keeps them, since the
// checkpoint may have to be written again, but not for long: a delivery that waits for its destination is parked again
// without an attempt.
func (m *memory) of(deliveries []*notification.Delivery) (all []*attempt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rotate()
	for _, d := range deliveries {
		ref := store.RefOf(d.Envelope)
		a := m.young[ref]
		if a == nil {
			a = m.old[ref]
		}
		switch {
		case a == nil:
			continue
		case a.used.IsZero():
			a.used = time.Now()
		case time.Since(a.used) > usedFor:
			continue
		}
		all = append(all, a)
	}
	return all
}

// failed is the hook for deliveries that were parked or died.
func (s *Sink) failed(r *residence) func(context.Context, *sql.Tx, []event.Parked) error {
	return func(ctx context.Context, tx *sql.Tx, parked []event.Parked) error {
		var made []*notification.Delivery
		for _, p := range parked {
			if p.Type == Type {
				made = append(made, p.Delivery)
			}
		}
		return s.record(ctx, r, tx, made)
	}
}

// record writes the attempts at deliveries, and what they say about their endpoints, in the transaction of
// the checkpoint that settles or parks the deliveries.
func (s *Sink) record(ctx context.Context, r *residence, tx *sql.Tx, deliveries []*notification.Delivery) error {
	var recorded []store.Attempt
	v := verdict{after: s.config.DisableAfter, last: make(map[string]*attempt)}
	for _, a := range r.memory.of(deliveries) {
		if r.present(a).deleted {
			continue
		}
		v.add(a)
		if s.records(a) {
			recorded = append(recorded, a.Attempt)
		}
	}
	if len(recorded) > 0 {
		if err := r.store.AddAttempts(ctx, tx, recorded); err != nil {
			return err
		}
	}
	return v.write(ctx, r, tx, s.tenant)
}
