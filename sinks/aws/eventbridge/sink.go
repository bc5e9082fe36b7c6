// Package eventbridge puts each notification as an event on a bus of Amazon EventBridge. Give the sink to a forwarder, or
// to Outbox.Deliver of package waybill; in waybill.yaml it is of kind eventbridge.
//
// # The event
//
// The detail is the JSON of the whole notification, or what Format says. The detail type is the notification's type, the
// time is when it occurred, and the source is a setting.
//
// # Order
//
// EventBridge keeps no order. The sink still puts no event before the earlier one of its key is on the bus: a batch has
// at most one of a key.
//
// # A bus that does not exist
//
// EventBridge accepts events for a bus that does not exist, and loses them: https://github.com/aws/aws-cli/issues/9186.
// So the sink asks for the bus before the first event, and again after a minute. A bus of another account, which can only
// be named by its ARN, often does not permit that; then the sink trusts the ARN.
//
// # Errors
//
// docs/sinks-aws.md says how error codes are handled. If the bus comes from data, a bus that does not exist or refuses
// access makes only its own events wait: the sink is a [sinks.Addresser].
package eventbridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/aws/access"
	"github.com/waybill-go/waybill/sinks/aws/internal/batches"
	"github.com/waybill-go/waybill/sinks/body"
	"github.com/waybill-go/waybill/sinks/internal/naming"
	"github.com/waybill-go/waybill/sinks/large"
)

// checkEvery is how long a bus is trusted to exist.
const checkEvery = time.Minute

// Kind is the sink kind eventbridge.
func Kind() sinks.Kind {
	return sinks.NewKind("eventbridge", "an event on a bus of Amazon EventBridge for each notification",
		func(in sinks.Instance, c Config) (sinks.Sink, error) { return New(in, c) }, answers...)
}

// Sink puts deliveries on one bus, or on those that its template names. Its methods are safe for concurrent use.
type Sink struct {
	config          Config
	bus, detailType naming.Name
	resources       []naming.Name
	body            body.Form
	large           *large.Bodies
	client          *access.Client[*eventbridge.Client]
	checked         sync.Map // when buses were last found, by what the configuration calls them
}

var (
	_ sinks.Batcher       = (*Sink)(nil)
	_ sinks.Addresser     = (*Sink)(nil)
	_ sinks.Closer        = (*Sink)(nil)
	_ sinks.HealthChecker = (*Sink)(nil)
)

// New makes a sink from the configuration with defaults for zero fields, and validates it. The first delivery connects.
func New(in sinks.Instance, c Config) (*Sink, error) {
	c.SetDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &Sink{config: c, body: c.body()}
	var err error
	if s.bus, err = naming.New(c.Bus, c.checkBus); err != nil {
		return nil, err
	}
	if s.detailType, err = naming.New(c.DetailType, checkDetailType); err != nil {
		return nil, err
	}
	for _, text := range c.Resources {
		resource, err := naming.New(text, checkResource)
		if err != nil {
			return nil, err
		}
		s.resources = append(s.resources, resource)
	}
	if s.large, err = c.Large.Open(in, c.MaxBytes); err != nil {
		return nil, err
	}
	s.client = access.NewClient(in, c.Access, func(conf aws.Config) *eventbridge.Client { return eventbridge.NewFromConfig(conf) })
	return s, nil
}

// Deliver puts one event, and returns the receipt "eventbridge BUS EVENT-ID".
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	result := s.DeliverBatch(ctx, []*notification.Delivery{d})[0]
	return result.Receipt, result.Err
}

// BatchLimits returns that a batch has up to 10 deliveries, and does not wait.
func (s *Sink) BatchLimits() sinks.BatchLimits { return sinks.BatchLimits{Size: maxEntries} }

// Destination returns the bus if it comes from data, and otherwise "".
func (s *Sink) Destination(d *notification.Delivery) string {
	return naming.Destination(s.config.Bus, s.bus, d.Envelope)
}

// DeliverBatch puts the events of a bus in as few requests as their sizes permit.
func (s *Sink) DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	return batches.Deliver(ctx, batch, batches.Limits{Entries: maxEntries, Bytes: s.config.MaxBytes}, s.entry, s.send)
}

// entry makes the entry of a request. Its errors have a class.
func (s *Sink) entry(ctx context.Context, _ int, e *notification.Envelope) (bus string, entry batches.Entry[types.PutEventsRequestEntry], err error) {
	if bus, err = s.bus(e); err != nil {
		return bus, entry, sinks.Invalid(fmt.Errorf("bus: %w", err))
	}
	detailType, err := s.detailType(e)
	if err != nil {
		return bus, entry, sinks.Invalid(fmt.Errorf("detail_type: %w", err))
	}
	detail := s.body.Of(e)
	if s.config.Format == body.FormatPayload && !isObject(detail) {
		return bus, entry, sinks.Invalid(errors.New("the payload is not a JSON object, which the detail of an event must be; format: envelope sends any payload"))
	}
	v := &entry.Value
	v.EventBusName, v.Source, v.DetailType = &bus, &s.config.Source, &detailType
	entry.Bytes = len(*v.Source) + len(detailType)
	for _, template := range s.resources {
		resource, err := template(e)
		if err != nil {
			return bus, entry, sinks.Invalid(fmt.Errorf("resources: %w", err))
		}
		if resource != "" {
			v.Resources = append(v.Resources, resource)
			entry.Bytes += len(resource)
		}
	}
	if !e.OccurredOn.IsZero() {
		v.Time = &e.OccurredOn
		entry.Bytes += 14 // EventBridge user guide, "Calculating PutEvents event entry size"
	}
	if s.large.IsLarge(detail) || s.large != nil && entry.Bytes+len(detail) > s.config.MaxBytes {
		pointer, err := s.large.Put(ctx, e.ID, detail)
		if err != nil {
			return bus, entry, err
		}
		detail = pointerDetail(e.ID, len(detail), pointer)
	}
	v.Detail = aws.String(string(detail))
	if entry.Bytes += len(detail); entry.Bytes > s.config.MaxBytes {
		return bus, entry, sinks.Invalid(fmt.Errorf("the event takes %d bytes, max_bytes is %d; large stores larger details", entry.Bytes, s.config.MaxBytes))
	}
	return bus, entry, nil
}

func isObject(payload []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(payload, " \t\r\n"), []byte("{")) && utf8.Valid(payload) && json.Valid(payload)
}

// pointerDetail returns the detail that stands for a stored one of a size in bytes. A pointer that is JSON stays JSON.
func pointerDetail(id string, size int, pointer []byte) []byte {
	if !json.Valid(pointer) {
		pointer, _ = json.Marshal(string(pointer)) // never fails for a string
	}
	detail, _ := json.Marshal(map[string]any{"id": id, large.AttributeSize: strconv.Itoa(size), "PayloadPointer": json.RawMessage(pointer)}) // never fails
	return detail
}

// send sends one request.
func (s *Sink) send(ctx context.Context, bus string, entries []types.PutEventsRequestEntry) ([]sinks.Result, error) {
	if found, ok := s.checked.Load(bus); !ok || time.Since(found.(time.Time)) > checkEvery {
		if err := s.check(ctx, bus); err != nil {
			return nil, err
		}
	}
	var output *eventbridge.PutEventsOutput
	err := s.client.Call(ctx, codes, func(ctx context.Context, client *eventbridge.Client) (err error) {
		output, err = client.PutEvents(ctx, &eventbridge.PutEventsInput{Entries: entries})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("eventbridge %s: %w", nameOf(bus), err)
	}
	return outcomes(nameOf(bus), entries, output), nil
}

// outcomes returns the result of each entry.
func outcomes(bus string, entries []types.PutEventsRequestEntry, output *eventbridge.PutEventsOutput) []sinks.Result {
	results := make([]sinks.Result, len(entries))
	for i := range entries {
		var sent types.PutEventsResultEntry
		if len(output.Entries) == len(entries) {
			sent = output.Entries[i]
		}
		switch {
		case sent.ErrorCode != nil:
			results[i].Err = fmt.Errorf("eventbridge %s: %w", bus, codes.Error(*sent.ErrorCode, aws.ToString(sent.ErrorMessage), false))
		case sent.EventId != nil:
			results[i].Receipt = notification.Receipt("eventbridge " + bus + " " + *sent.EventId)
		default:
			results[i].Err = sinks.Unavailable(fmt.Errorf("eventbridge %s: the answer lacks the event", bus))
		}
	}
	return results
}

// check asks EventBridge for a bus. Without the right to, it trusts an ARN, which may be that of another account.
func (s *Sink) check(ctx context.Context, bus string) error {
	err := s.client.Call(ctx, codes, func(ctx context.Context, client *eventbridge.Client) error {
		_, err := client.DescribeEventBus(ctx, &eventbridge.DescribeEventBusInput{Name: &bus})
		return err
	})
	if code := access.CodeOf(err); err != nil && (!isARN(bus) || code != "AccessDeniedException" && code != "AccessDenied") {
		return fmt.Errorf("eventbridge %s: %w", nameOf(bus), access.Lookup("events:DescribeEventBus", err))
	}
	s.checked.Store(bus, time.Now())
	return nil
}

// CheckHealth asks EventBridge for the bus, and checks the store of large details. If the bus comes from data, it only
// checks the credentials.
func (s *Sink) CheckHealth(ctx context.Context) error {
	if err := s.large.CheckHealth(ctx); err != nil {
		return err
	}
	if naming.IsTemplate(s.config.Bus) {
		return s.client.Call(ctx, codes, func(context.Context, *eventbridge.Client) error { return nil })
	}
	return s.check(ctx, s.config.Bus)
}

// Close ends the calls in flight, and closes the connections.
func (s *Sink) Close(context.Context) error {
	s.client.Close()
	return nil
}
