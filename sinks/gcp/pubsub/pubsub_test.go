package pubsub_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/gcp/pubsub"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestConformance(t *testing.T) {
	var current *service
	failing := func(code codes.Code) func(*testing.T) sinks.Sink {
		return func(t *testing.T) sinks.Sink {
			s := start(t)
			s.answers(func(context.Context, *pubsubpb.PublishRequest) error { return status.Error(code, "no") })
			return unopened(t, s.settings("topic: orders"))
		}
	}
	sinktest.Run(t, sinktest.Subject{
		New: func(t *testing.T) sinks.Sink {
			current = start(t)
			return unopened(t, current.settings("topic: orders"))
		},
		Received: func(*testing.T) []notification.Envelope { return current.received() },
		Refused: func(n int) *notification.Delivery {
			d := sinktest.NewDelivery(n)
			d.Payload = make([]byte, 10_000_000)
			return d
		},
		Broken: map[sinks.Class]func(*testing.T) sinks.Sink{
			sinks.ClassThrottled: failing(codes.ResourceExhausted),
			sinks.ClassPermanent: failing(codes.InvalidArgument),
			sinks.ClassUnavailable: func(t *testing.T) sinks.Sink {
				return unopened(t, "{topic: orders, project: shop, endpoint: 'http://"+servertest.Unused+"'}")
			},
		},
		Stuck: func(t *testing.T) sinks.Sink {
			return unopened(t, "{topic: orders, project: shop, timeout: 1m, endpoint: 'http://"+servertest.Silent(t)+"'}")
		},
		Receipts: true,
	})
}

func unopened(t *testing.T, settings string) sinks.Sink {
	sink, err := build(t, sinks.Instance{}, settings)
	require.NoError(t, err)
	return sink
}

func TestKind(t *testing.T) {
	t.Setenv(pubsub.EnvEmulator, "")
	sinktest.RunKind(t, pubsub.Kind(), pubsub.Config{Topic: "projects/shop/topics/orders"})
}

// Each row of the reference has its class. No answer of a service that is down, throttles or revokes rights kills a
// notification.
func TestEachAnswerHasItsClass(t *testing.T) {
	s := start(t)
	s.create(t, "sinktest.happened")
	configured := s.sink(t, "")
	fromData := newSink(t, sinks.Instance{}, s.settings("topic: '{{.Type}}'"))
	rows := map[string]sinks.Class{}
	for _, row := range pubsub.Kind().Answers {
		for _, name := range strings.FieldsFunc(row.Says, func(r rune) bool { return (r < 'A' || r > 'Z') && r != '_' }) {
			for _, class := range []sinks.Class{sinks.ClassPermanent, sinks.ClassThrottled, sinks.ClassUnavailable} {
				if strings.HasPrefix(row.Means, class.String()) && strings.Contains(row.Says, name) && len(name) > 3 {
					rows[name] = class
				}
			}
		}
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		s.answers(func(context.Context, *pubsubpb.PublishRequest) error { return status.Error(code, "said the service") })
		name := strings.ToUpper(regexpName(code.String()))
		want, listed := rows[name]
		if !listed {
			want = sinks.ClassUnavailable // any other code
		}
		delete(rows, name)
		_, err := configured.Deliver(t.Context(), sinktest.NewDelivery(1))
		require.Equal(t, want, sinktest.Class(err), "%s: %v", name, err)
		var answer *pubsub.Error
		require.ErrorAs(t, err, &answer)
		require.Equal(t, code, answer.Code)
		require.ErrorContains(t, err, "said the service")
		if want == sinks.ClassPermanent {
			require.NotContains(t, sinks.Brief(err), "said the service")
		}
		_, err = fromData.Deliver(t.Context(), sinktest.NewDelivery(1))
		require.Equal(t, want, sinktest.Class(err), "%s: %v", name, err)
	}
	require.Empty(t, rows, "these are no codes")
	s.answers(nil)
	for _, sink := range []*pubsub.Sink{configured, fromData} {
		_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
		require.NoError(t, err)
	}
}

// regexpName converts CodeName to CODE_NAME, and Canceled to the protocol's spelling.
func regexpName(name string) string {
	var b strings.Builder
	for i, r := range strings.ReplaceAll(name, "Canceled", "Cancelled") {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return b.String()
}

func TestAThrottledSinkWaitsAsLongAsTheServiceSays(t *testing.T) {
	s := start(t)
	sink := s.sink(t, "")
	answer := status.New(codes.ResourceExhausted, "quota")
	s.answers(func(context.Context, *pubsubpb.PublishRequest) error { return answer.Err() })
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	class, until := sinks.Classify(err)
	require.Equal(t, sinks.ClassThrottled, class)
	require.Less(t, time.Until(until), 2*time.Second)

	answer, err = answer.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Hour)})
	require.NoError(t, err)
	_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	_, until = sinks.Classify(err)
	require.InDelta(t, time.Hour, time.Until(until), float64(10*time.Minute))
}

func TestAMessageHasTheNotification(t *testing.T) {
	s := start(t)
	d := sinktest.NewDelivery(1)
	d.Metadata["region"] = "eu"
	for settings, want := range map[string]struct{ data, contentType string }{
		"format: payload":                          {string(d.Payload), "application/json"},
		"format: envelope":                         {`{"id":"` + d.ID + `","type":"sinktest.happened","version":2`, "application/json"},
		"format: cloudevents\nsource: /shop":       {`{"specversion":"1.0","id":"` + d.ID, "application/cloudevents+json"},
		"format: payload\nunordered: true\n# none": {string(d.Payload), "application/json"},
	} {
		s.fake.ClearMessages()
		_, err := s.sink(t, "attributes: [region]\n"+settings).Deliver(t.Context(), d)
		require.NoError(t, err)
		m := s.fake.Messages()[0]
		require.True(t, strings.HasPrefix(string(m.Data), want.data), "%s", m.Data)
		require.Equal(t, map[string]string{
			"id": d.ID, "type": d.Type, "version": "2", "key": "key-1", "occurred-on": "2025-01-02T03:04:05.000678Z",
			"region": "eu", "Content-Type": want.contentType,
		}, m.Attributes)
		if strings.Contains(settings, "unordered: true") {
			require.Empty(t, m.OrderingKey)
		} else {
			require.Equal(t, "key-1", m.OrderingKey)
		}
	}
}

func TestAnEventInBinaryModeHasAttributes(t *testing.T) {
	s := start(t)
	d := sinktest.NewDelivery(1)
	sink := s.sink(t, "format: cloudevents\ncontent_mode: binary\nsource: /shop")
	_, err := sink.Deliver(t.Context(), d)
	require.NoError(t, err)
	m := s.fake.Messages()[0]
	require.Equal(t, d.Payload, m.Data)
	for name, want := range map[string]string{
		"ce-specversion": "1.0", "ce-id": d.ID, "ce-source": "/shop", "ce-type": d.Type, "ce-time": "2025-01-02T03:04:05.000678Z",
		"ce-partitionkey": "key-1", "ce-payloadversion": "2", "ce-correlationid": "correlation-1", "Content-Type": "application/json", "id": d.ID,
	} {
		require.Equal(t, want, m.Attributes[name], name)
	}
	for n := range 100 {
		d.Metadata[fmt.Sprint("name", n)] = "text"
	}
	_, err = sink.Deliver(t.Context(), d)
	require.ErrorIs(t, err, pubsub.ErrAttribute)
	require.ErrorContains(t, err, "content_mode: structured")
	require.Equal(t, sinks.ClassInvalid, sinktest.Class(err))
}

func TestLimits(t *testing.T) {
	s := start(t)
	sink := s.sink(t, "attributes: [note]")
	for says, change := range map[string]func(*notification.Delivery){
		"note has 1025 bytes, the limit is 1024": func(d *notification.Delivery) { d.Metadata["note"] = strings.Repeat("n", 1025) },
		"note is not UTF-8":                      func(d *notification.Delivery) { d.Metadata["note"] = "\xff" },
		"key is not UTF-8":                       func(d *notification.Delivery) { d.Key = "\xff" },
		"set large.store":                        func(d *notification.Delivery) { d.Payload = make([]byte, 9_999_900) },
	} {
		d := sinktest.NewDelivery(1)
		change(d)
		_, err := sink.Deliver(t.Context(), d)
		require.Equal(t, sinks.ClassInvalid, sinktest.Class(err), "%v", err)
		require.ErrorContains(t, err, says)
	}
	require.Zero(t, s.count())

	d := delivery(1, strings.Repeat("k", notification.MaxKeyLength))
	d.Metadata["note"] = strings.Repeat("n", 1024)
	d.Payload = make([]byte, 9_990_000)
	_, err := sink.Deliver(t.Context(), d)
	require.NoError(t, err)
}

func TestTopics(t *testing.T) {
	s := start(t)
	s.create(t, "eu-orders", "us-orders")
	d := sinktest.NewDelivery(1)
	receipt, err := s.sink(t, "").Deliver(t.Context(), d)
	require.NoError(t, err)
	require.Equal(t, notification.Receipt("pubsub orders "+s.fake.Messages()[0].ID), receipt)

	sink := newSink(t, sinks.Instance{}, s.settings("topic: '{{.Metadata.region}}-orders'"))
	batch := []*notification.Delivery{sinktest.NewDelivery(0), sinktest.NewDelivery(1), sinktest.NewDelivery(2), sinktest.NewDelivery(3)}
	for i, region := range []string{"eu", "us", "", "mars"} {
		if region != "" {
			batch[i].Metadata["region"] = region
		}
	}
	results := sink.DeliverBatch(t.Context(), batch)
	require.Contains(t, results[0].Receipt, "pubsub eu-orders m")
	require.NoError(t, results[1].Err)
	require.Equal(t, sinks.ClassInvalid, sinktest.Class(results[2].Err), "%v", results[2].Err)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(results[3].Err), "%v", results[3].Err)
	require.ErrorContains(t, results[3].Err, "create the topic")

	full := newSink(t, sinks.Instance{}, "endpoint: http://"+s.address+"\ntopic: projects/shop/topics/orders")
	receipt, err = full.Deliver(t.Context(), d)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(receipt), "pubsub projects/shop/topics/orders m"), receipt)

	d.Type = "orders"
	_, err = newSink(t, sinks.Instance{}, "endpoint: http://"+s.address+"\ntopic: '{{.Type}}'").Deliver(t.Context(), d)
	require.ErrorIs(t, err, pubsub.ErrProject)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err))

	t.Setenv(pubsub.EnvEmulator, s.address)
	_, err = newSink(t, sinks.Instance{}, "topic: orders\nproject: shop").Deliver(t.Context(), d)
	require.NoError(t, err)
}

// The notifications of a topic that data names wait for it alone.
func TestATopicFromDataIsADestination(t *testing.T) {
	s := start(t)
	d := sinktest.NewDelivery(1)
	require.Empty(t, s.sink(t, "").Destination(d))
	fromData := newSink(t, sinks.Instance{}, s.settings("topic: '{{.Metadata.region}}-orders'"))
	require.Empty(t, fromData.Destination(d), "the template needs a region")
	d.Metadata["region"] = "eu"
	require.Equal(t, "eu-orders", fromData.Destination(d))
}

func TestZeroFieldsHaveDefaults(t *testing.T) {
	s := start(t)
	sink, err := pubsub.New(sinks.Instance{}, pubsub.Config{Topic: "orders", Project: "shop", Endpoint: "http://" + s.address, Timeout: time.Minute})
	require.NoError(t, err)
	defer func() { require.NoError(t, sink.Close(t.Context())) }()
	_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.NoError(t, err)
	require.Equal(t, "key-1", s.fake.Messages()[0].OrderingKey)

	c := pubsub.Config{Unordered: true, ContentMode: pubsub.ModeBinary}
	for range 2 {
		c.SetDefaults()
		require.Equal(t, pubsub.DefaultTimeout, c.Timeout)
		require.Equal(t, "payload", c.Body.Format)
		require.True(t, c.Unordered)
		require.Equal(t, pubsub.ModeBinary, c.ContentMode)
	}
}

func TestMistakes(t *testing.T) {
	for settings, says := range map[string]string{
		"{}":                                   "topic: is missing",
		"{topic: or}":                          `topic: "or" is not the id or name of a topic`,
		"{topic: google-orders}":               `topic: "google-orders" begins with goog`,
		"{topic: 'projects/A B/topics/order'}": "is not the id or name",
		"{topic: '{{.Nothing}}'}":              "topic: ",
		"{topic: orders, project: 'a/b'}":      "project: ",
		"{topic: projects/p1/topics/orders, project: shop}":              "project: topic already names a project",
		"{topic: orders, endpoint: pubsub.googleapis.com}":               "endpoint: ",
		"{topic: orders, endpoint: 'https://pubsub.googleapis.com:443'}": "endpoint: ",
		"{topic: orders, endpoint: 'http://h:1', credentials_file: f}":   "credentials_file, impersonate: ",
		"{topic: orders, endpoint: 'http://h:1'}":                        "project: is missing, and an emulator",
		"{topic: orders, project: shop, endpoint: 'http://me:pw@h:1'}":   "endpoint: ",
		"{topic: orders, impersonate: me}":                               "impersonate: ",
		"{topic: orders, timeout: 1ms}":                                  "timeout: 1ms is less than 500ms",
		"{topic: orders, content_mode: both}":                            "content_mode: ",
		"{topic: orders, content_mode: binary}":                          "content_mode: binary is for format cloudevents",
		"{topic: orders, format: xml}":                                   "format: ",
		"{topic: orders, format: cloudevents}":                           "source: ",
		"{topic: orders, attributes: [goog-x]}":                          "attributes: ",
		"{topic: orders, attributes: [content-type]}":                    "attributes: ",
		"{topic: orders, attributes: [id]}":                              "attributes: every message already has id",
		"{topic: orders, large: {above: 1MiB}}":                          "large.above: ",
		"{topic: orders, large: {store: 'gs://b', above: 10MiB}}":        "large.above: ",
		"{topic: orders, large: {store: 'gs://b'}}":                      "large.store: this program has no store",
		"{topic: orders, format: envelope, encoding: {format: avro}}":    "encoding: is for format payload",
	} {
		_, err := build(t, sinks.Instance{Name: "events"}, settings)
		require.ErrorContains(t, err, says, settings)
	}
}

func TestTheHealthIsThatOfTheService(t *testing.T) {
	s := start(t)
	sink, missing := s.sink(t, ""), newSink(t, sinks.Instance{}, s.settings("topic: missing"))
	fromData := newSink(t, sinks.Instance{}, s.settings("topic: '{{.Type}}'"))
	check := func(want string, sink *pubsub.Sink) {
		t.Helper()
		err := sink.CheckHealth(t.Context())
		if want == "" {
			require.NoError(t, err)
			return
		}
		require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
		require.ErrorContains(t, err, want)
	}
	check("", sink) // like an emulator, which does not know rights
	check("create the topic", missing)
	check("", fromData)
	s.rights = []string{}
	check("grant roles/pubsub.publisher on the topic", sink)
	require.ErrorIs(t, sink.CheckHealth(t.Context()), pubsub.ErrRights)
	check("", fromData)
	s.rights = []string{"pubsub.topics.publish"}
	check("", sink)
	for _, topic := range []string{"'{{.Type}}'", "orders"} {
		down := newSink(t, sinks.Instance{}, "topic: "+topic+"\nproject: shop\nendpoint: http://"+servertest.Unused)
		check("dial tcp", down)
		require.NotContains(t, down.CheckHealth(t.Context()).Error(), "grant", "no right is missing")
	}
}

// totals has a schema for the payload {"total": 12}.
type totals struct{}

func (totals) Schema(_ string, _ int, l sinks.SchemaLanguage) (sinks.Schema, error) {
	if l != sinks.Avro {
		return sinks.Schema{}, sinks.ErrNoSchema
	}
	return sinks.Schema{Text: `{"type":"record","name":"Total","fields":[{"name":"total","type":"long"}]}`}, nil
}

func (totals) Validate(string, int, []byte) error { return nil }

func TestPayloadsAreEncoded(t *testing.T) {
	s := start(t)
	registry := srfake.New()
	t.Cleanup(registry.Close)
	schema, err := totals{}.Schema("", 0, sinks.Avro)
	require.NoError(t, err)
	_, _, err = registry.RegisterSchema("orders-value", sr.Schema{Schema: schema.Text})
	require.NoError(t, err)
	sink := newSink(t, sinks.Instance{Contracts: totals{}}, s.settings("topic: orders\nencoding: {format: avro, registry: {url: '"+registry.URL()+"'}}"))
	d := sinktest.NewDelivery(1)
	d.Payload = []byte(`{"total": 12}`)
	_, err = sink.Deliver(t.Context(), d)
	require.NoError(t, err)
	require.Equal(t, "\x00\x00\x00\x00\x01\x18", string(s.fake.Messages()[0].Data))
	require.Equal(t, "application/vnd.confluent.avro", s.fake.Messages()[0].Attributes["Content-Type"])

	d.Payload = []byte(`{"total": "twelve"}`)
	_, err = sink.Deliver(t.Context(), d)
	require.Equal(t, sinks.ClassInvalid, sinktest.Class(err), "%v", err)
	require.NoError(t, sink.CheckHealth(t.Context()))
	registry.Close()
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(sink.CheckHealth(t.Context())))
}

func TestTheChannelIsDescribed(t *testing.T) {
	c := pubsub.Config{Topic: "{{.Metadata.tenant}}-orders", Endpoint: "us-east1-pubsub.googleapis.com:443"}
	c.SetDefaults()
	its := c.Channel()
	require.Equal(t, "googlepubsub", its.Protocol)
	require.Equal(t, []string{"us-east1-pubsub.googleapis.com:443"}, its.Hosts)
	require.Equal(t, "{tenant}-orders", its.Address)
	require.Equal(t, map[string]any{"googlepubsub": map[string]any{"orderingKey": "{key}", "bindingVersion": "0.2.0"}}, its.MessageBindings)
	names := func(its sinks.Channel) (all []string) {
		for _, h := range its.Headers {
			all = append(all, h.Name)
		}
		return all
	}
	require.Equal(t, []string{"Content-Type", "id", "type", "version", "occurred-on", "key"}, names(its))
	c.Body.Format, c.Body.Source, c.ContentMode = "cloudevents", "/shop", pubsub.ModeBinary
	require.Contains(t, names(c.Channel()), "ce-specversion")
	require.Nil(t, c.Channel().Body, "the body is the payload")
}
