package webhooks

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/serializer"
)

// Type is the type of the notifications that the sink publishes for itself, one for each endpoint.
const Type = "_webhooks"

// Metadata of such a notification.
const (
	metadataEndpoint = "endpoint"     // the id of its endpoint
	metadataType     = "webhook-type" // the type of the original
)

// limits are those of one checkpoint. If originals exceed them together, fewer are settled at once: see errFewer.
// thinking is what the conditions of one tenant may take at once.
type limits struct {
	endpoints, published int
	thinking             time.Duration
}

var usualLimits = limits{endpoints: 20_000, published: 20_000, thinking: 500 * time.Millisecond}

// maxPublishedBytes bounds the bodies that one checkpoint publishes.
const maxPublishedBytes = 64 << 20

// errFewer makes the engine settle fewer originals in one checkpoint.
var errFewer = errors.New("too many deliveries to customers' endpoints in one checkpoint")

// ownMetadata are the names of all metadata of such a notification but its tenant's.
var ownMetadata = []string{
	metadataEndpoint, metadataType, notification.MetadataContentType, notification.MetadataCausationID, notification.MetadataCorrelationID,
	notification.MetadataTraceparent, notification.MetadataTracestate, notification.MetadataDatabase,
}

// About says for people what a notification of the type [Type] is: which type it delivers, to which endpoint of which
// tenant.
func About(m notification.Metadata) string {
	text := "the delivery of " + m.Get(metadataType) + " to the endpoint " + m.Get(metadataEndpoint)
	for name, value := range m {
		if !slices.Contains(ownMetadata, name) {
			text += " of tenant " + value
		}
	}
	return text
}

// EndpointOf returns the id of the endpoint that such a notification is for.
func EndpointOf(m notification.Metadata) string { return m.Get(metadataEndpoint) }

// expand publishes one notification for each endpoint of the originals' tenants that matches, in the
// transaction that settles the originals. It makes one query, whatever the number of tenants, and no statement
// for a tenant without endpoints.
func (s *Sink) expand(ctx context.Context, r *residence, tx *sql.Tx, originals []*notification.Delivery) error {
	tenants := make(map[string]bool)
	for _, d := range originals {
		if tenant := d.Metadata.Get(s.tenant); tenant != "" {
			tenants[tenant] = true
		}
	}
	if len(tenants) == 0 {
		return nil
	}
	asked := time.Now()
	q := store.EndpointQuery{Tenants: slices.Sorted(maps.Keys(tenants)), Enabled: true}
	if len(tenants) > 1 {
		q.Limit = s.limits.endpoints
	}
	rows, err := r.store.Endpoints(ctx, tx, q)
	if err != nil {
		return err
	}
	if len(rows) == q.Limit && q.Limit > 0 {
		return errFewer
	}
	of := make(map[string][]*known, len(tenants))
	for _, k := range r.learn(rows, asked, nil) {
		of[k.Tenant] = append(of[k.Tenant], k)
	}
	x := expansion{sink: s, of: r, troubles: make(map[string]string)}
	for i, d := range originals {
		if err := x.add(ctx, d, of[d.Metadata.Get(s.tenant)]); err != nil {
			return err
		}
		if i > 0 && (len(x.made) > s.limits.published || x.bytes > maxPublishedBytes) {
			return errFewer
		}
	}
	if len(x.made) > 0 {
		if err := r.publisher.Append(ctx, tx, x.made...); err != nil {
			return err
		}
	}
	if len(x.troubles) == 0 {
		return nil
	}
	_, err = r.store.MarkEndpoints(ctx, tx, store.EndpointMarks{Trouble: x.troubles})
	return err
}

// expansion is what one checkpoint publishes.
type expansion struct {
	sink     *Sink
	of       *residence
	made     []notification.Envelope
	bytes    int
	troubles map[string]string // why conditions failed, by endpoint
}

// add adds a notification for each of a tenant's endpoints that matches.
func (x *expansion) add(ctx context.Context, d *notification.Delivery, endpoints []*known) error {
	names := x.sink.names(d.Type)
	facts := route.NewFacts(d.Envelope, x.sink.in.Types)
	var body []byte
	for _, k := range endpoints {
		if !matchesAny(k.Types, names) {
			continue
		}
		if holds, err := x.holds(ctx, facts, names[0], k); err != nil {
			return err
		} else if !holds {
			continue
		}
		if body == nil {
			body = appendBody(nil, names[0], d.OccurredOn, d.Payload, isJSON(d.Metadata))
			if x.of.store.CheckPayload(body) != nil { // the database takes no JSON that is nested so deeply
				body = appendBody(nil, names[0], d.OccurredOn, d.Payload, false)
			}
		}
		x.bytes += len(body)
		made := envelopeFor(k.ID, d, names[0], x.sink.tenant, body)
		if err := x.of.private.Load().Move(ctx, d.Envelope, &made); err != nil {
			return err
		}
		x.made = append(x.made, made)
	}
	return nil
}

// holds reports whether the condition of an endpoint holds. One that fails holds, so that nothing is lost, and is
// not evaluated again in this checkpoint; so do the conditions of a tenant that take too long together.
func (x *expansion) holds(ctx context.Context, facts *route.Facts, typ string, k *known) (bool, error) {
	failed := func(why string) (bool, error) {
		x.troubles[k.ID] = store.CutText("when: "+why, maxTrouble)
		return true, nil
	}
	switch _, before := x.troubles[k.ID]; {
	case k.When == "" || before:
		return true, nil
	case k.noWhen != nil:
		return failed(k.noWhen.Error())
	case !x.of.thinking.may(k.Tenant, x.sink.limits.thinking, time.Now()):
		return failed("the conditions of all endpoints together take too long")
	}
	began := time.Now()
	holds, err := facts.Holds(ctx, k.when)
	x.of.thinking.took(k.Tenant, began, time.Now())
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil: // its text may have values of the notification that customers do not get
		return failed("it cannot be evaluated for a notification of the type " + typ + "; write ?. before what may be missing")
	}
	return holds, nil
}

// maxTrouble bounds the text of a trouble, in bytes.
const maxTrouble = 1000

// names returns the names of a type, the present one first.
func (s *Sink) names(typ string) []string {
	if s.in.Types != nil {
		if info, known := s.in.Types.Lookup(typ); known {
			return append([]string{info.Name}, info.Aliases...)
		}
	}
	return []string{typ}
}

func isJSON(m notification.Metadata) bool {
	media := m.Get(notification.MetadataContentType)
	return media == "" || serializer.IsJSON(media)
}

// envelopeFor returns the notification for an endpoint. Its id is that of the original with the endpoint, so
// that it is the same if the original is replayed; its key orders the deliveries of one key to one endpoint.
func envelopeFor(endpoint string, d *notification.Delivery, typ, tenant string, body []byte) notification.Envelope {
	correlation := d.Metadata.Get(notification.MetadataCorrelationID)
	if correlation == "" {
		correlation = d.ID
	}
	m := notification.Metadata{
		tenant:                             d.Metadata.Get(tenant),
		metadataEndpoint:                   endpoint,
		metadataType:                       typ,
		notification.MetadataContentType:   contentType,
		notification.MetadataCausationID:   d.ID,
		notification.MetadataCorrelationID: correlation,
	}
	for _, name := range []string{notification.MetadataTraceparent, notification.MetadataTracestate} {
		if value := d.Metadata.Get(name); value != "" {
			m[name] = value
		}
	}
	e := notification.Envelope{Type: Type, Version: 1, OccurredOn: d.OccurredOn, Metadata: m, Payload: body}
	e.ID = joined(d.ID, "_", endpoint, notification.MaxIDLength)
	if d.Key != "" {
		e.Key = joined(endpoint, "/", d.Key, notification.MaxKeyLength)
	}
	return e
}

// joined joins two texts; if that would be too long, it takes a digest instead.
func joined(a, between, b string, most int) string {
	if len(a)+len(between)+len(b) <= most {
		return a + between + b
	}
	sum := sha256.Sum256([]byte(a + between + b))
	return hex.EncodeToString(sum[:])
}

const contentType = "application/json"

// appendBody appends the body of a request, as Standard Webhooks recommends it. A payload that is not JSON is
// base64, as data_base64.
func appendBody(b []byte, typ string, at time.Time, payload []byte, isJSON bool) []byte {
	quoted, _ := json.Marshal(typ) // never fails for a string
	b = append(append(b, `{"type":`...), quoted...)
	b = append(at.UTC().AppendFormat(append(b, `,"timestamp":"`...), time.RFC3339Nano), '"')
	switch {
	case len(payload) == 0:
		b = append(b, `,"data":null`...)
	case isJSON && json.Valid(payload):
		b = append(append(b, `,"data":`...), payload...)
	default:
		b = base64.StdEncoding.AppendEncode(append(b, `,"data_base64":"`...), payload)
		b = append(b, '"')
	}
	return append(b, '}')
}

// delivered is the hook for deliveries that succeeded: originals are expanded, and what was delivered to
// endpoints is recorded.
func (s *Sink) delivered(r *residence) func(context.Context, *sql.Tx, []forwarder.Delivered) error {
	return func(ctx context.Context, tx *sql.Tx, delivered []forwarder.Delivered) error {
		var originals, made []*notification.Delivery
		for _, d := range delivered {
			if d.Type == Type {
				made = append(made, d.Delivery)
			} else {
				originals = append(originals, d.Delivery)
			}
		}
		if err := s.expand(ctx, r, tx, originals); err != nil {
			return err
		}
		return s.record(ctx, r, tx, made)
	}
}
