package eventbridge_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	api "github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/aws/awstest"
	"github.com/waybill-go/waybill/sinks/aws/eventbridge"
	"github.com/waybill-go/waybill/sinks/aws/internal/kindtest"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestMain(m *testing.M) { os.Exit(awstest.Main(m)) }

func TestConformance(t *testing.T) {
	server := awstest.Moto(t)
	kindtest.Run(t, kindtest.Subject{
		Kind:   eventbridge.Kind(),
		Server: server,
		New: func(t *testing.T) (string, func(*testing.T) []notification.Envelope) {
			bus, queue := newBus(t, server)
			// moto fails at a detail type with a backslash, which types may have.
			return "bus: " + bus + "\nsource: com.example.test\ndetail_type: happened", func(t *testing.T) (all []notification.Envelope) {
				for _, e := range take(t, queue) {
					all = append(all, awstest.Whole(t, string(e.Detail)))
				}
				return all
			}
		},
		Refused: tooLarge,
		Partly:  awstest.Edit(server, failSome),
	})
}

// failSome lets a server have every other event, and answers that it failed for the rest.
func failSome(request map[string]any) func(map[string]any) {
	events, _ := request["Entries"].([]any)
	if len(events) < 2 {
		return nil
	}
	var kept []any
	for i := 0; i < len(events); i += 2 {
		kept = append(kept, events[i])
	}
	request["Entries"] = kept
	return func(answer map[string]any) {
		its, _ := answer["Entries"].([]any)
		var all []any
		for i := range events {
			if i%2 == 0 {
				all = append(all, its[i/2])
			} else {
				all = append(all, map[string]any{"ErrorCode": []string{"InternalFailure", "ThrottlingException"}[i/2%2], "ErrorMessage": "later"})
			}
		}
		answer["Entries"], answer["FailedEntryCount"] = all, len(events)-len(kept)
	}
}

func tooLarge(n int) *notification.Delivery {
	d := sinktest.NewDelivery(n)
	d.Payload = []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
	return d
}

var made atomic.Int64

// newBus makes a bus and a queue that gets its events.
func newBus(t *testing.T, server string) (name string, queue *awstest.Queue) {
	t.Helper()
	name = "bus-" + strconv.FormatInt(made.Add(1), 10)
	client := api.NewFromConfig(awstest.Config(server))
	_, err := client.CreateEventBus(t.Context(), &api.CreateEventBusInput{Name: &name})
	require.NoError(t, err)
	queue = awstest.NewQueue(t, server, name, nil)
	_, err = client.PutRule(t.Context(), &api.PutRuleInput{Name: &name, EventBusName: &name, EventPattern: aws.String(`{"source":["com.example.test"]}`)})
	require.NoError(t, err)
	_, err = client.PutTargets(t.Context(), &api.PutTargetsInput{Rule: &name, EventBusName: &name, Targets: []types.Target{
		{Id: aws.String("queue"), Arn: aws.String("arn:aws:sqs:" + awstest.Region + ":123456789012:" + name)},
	}})
	require.NoError(t, err)
	return name, queue
}

// event is an event as a target gets it.
type event struct {
	ID         string          `json:"id"`
	DetailType string          `json:"detail-type"`
	Time       string          `json:"time"`
	Resources  []string        `json:"resources"`
	Detail     json.RawMessage `json:"detail"`
}

// take returns what the queue got. moto writes JSON in another way than it got it.
func take(t *testing.T, queue *awstest.Queue) (all []event) {
	t.Helper()
	for _, m := range queue.Take(t) {
		var e event
		require.NoError(t, json.Unmarshal([]byte(*m.Body), &e))
		var detail any
		require.NoError(t, json.Unmarshal(e.Detail, &detail))
		var b bytes.Buffer
		encoder := json.NewEncoder(&b)
		encoder.SetEscapeHTML(false)
		require.NoError(t, encoder.Encode(detail))
		e.Detail = b.Bytes()
		all = append(all, e)
	}
	return all
}

const source = "source: com.example.test\n"

func newSink(t *testing.T, in sinks.Instance, endpoint, settings string) sinks.Batcher {
	t.Helper()
	sink := kindtest.Build(t, eventbridge.Kind(), in, endpoint, "10s", source+settings).(sinks.Batcher)
	t.Cleanup(func() { require.NoError(t, sink.(sinks.Closer).Close(context.WithoutCancel(t.Context()))) })
	return sink
}

// isPut reports whether a request is PutEvents.
func isPut(r *http.Request) bool { return r.Header.Get("X-Amz-Target") == "AWSEvents.PutEvents" }

// answering returns the URL of a server that has every bus, and answers PutEvents with a list of entries.
func answering(t *testing.T, entries string) string {
	proxy := awstest.NewProxy(t, "http://"+servertest.Unused)
	proxy.Break(func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		if isPut(r) {
			_, _ = fmt.Fprintf(w, `{"FailedEntryCount":1,"Entries":[%s]}`, entries)
		} else {
			_, _ = w.Write([]byte("{}"))
		}
		return true
	})
	return proxy.URL
}

// refusing returns the URL of a server that has every bus, and refuses PutEvents.
func refusing(t *testing.T, code string) string {
	proxy := awstest.NewProxy(t, answering(t, ""))
	refuse := awstest.Refuse(http.StatusBadRequest, code)
	proxy.Break(func(w http.ResponseWriter, r *http.Request) bool { return isPut(r) && refuse(w, r) })
	return proxy.URL
}

func TestEachCodeHasItsClass(t *testing.T) {
	for code, class := range map[string]sinks.Class{
		"MalformedDetail": sinks.ClassPermanent, "InvalidArgument": sinks.ClassTransient, "ValidationException": sinks.ClassTransient,
		"RedactionFailure": sinks.ClassTransient, "ResourceNotFoundException": sinks.ClassUnavailable,
		"NotAuthorizedForSourceException": sinks.ClassUnavailable, "NotAuthorizedForDetailTypeException": sinks.ClassUnavailable,
		"InvalidAccountIdException": sinks.ClassUnavailable, "OperationDisabledException": sinks.ClassUnavailable,
		"AccessDeniedException": sinks.ClassUnavailable, "InternalFailure": sinks.ClassUnavailable, "InternalException": sinks.ClassUnavailable,
		"ThrottlingException": sinks.ClassThrottled, "LimitExceededException": sinks.ClassThrottled, "SomethingNew": sinks.ClassTransient,
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			_, err := newSink(t, sinks.Instance{}, refusing(t, code), "").Deliver(t.Context(), sinktest.NewDelivery(1))
			require.Equal(t, class, sinktest.Class(err), "of a request: %v", err)
			_, err = newSink(t, sinks.Instance{}, answering(t, `{"ErrorCode":"`+code+`","ErrorMessage":"m"}`), "").Deliver(t.Context(), sinktest.NewDelivery(1))
			require.Equal(t, class, sinktest.Class(err), "of an entry: %v", err)
			require.Equal(t, "m", sinks.AnswerOf(err))
		})
	}
}

func TestEntriesAreSettledOneByOne(t *testing.T) {
	endpoint := answering(t, `{"ErrorCode":"MalformedDetail"},{"EventId":"e1"},{"ErrorCode":"InvalidArgument"}`)
	batch := []*notification.Delivery{sinktest.NewDelivery(0), sinktest.NewDelivery(1), sinktest.NewDelivery(2)}
	results := newSink(t, sinks.Instance{}, endpoint, "bus: orders").DeliverBatch(t.Context(), batch)
	require.Equal(t, sinks.ClassPermanent, sinktest.Class(results[0].Err))
	require.NoError(t, results[1].Err)
	require.Equal(t, notification.Receipt("eventbridge orders e1"), results[1].Receipt)
	require.Equal(t, sinks.ClassTransient, sinktest.Class(results[2].Err))

	for _, entries := range []string{"", "{}", `{"EventId":"e1"},{"EventId":"e2"}`} {
		_, err := newSink(t, sinks.Instance{}, answering(t, entries), "").Deliver(t.Context(), batch[0])
		require.ErrorContains(t, err, "the answer lacks the event")
		require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err))
	}
}

func TestNoEventIsLostInABusThatDoesNotExist(t *testing.T) {
	accepting := awstest.NewProxy(t, answering(t, `{"EventId":"lost"}`)) // as AWS does
	var put atomic.Int64
	refuse := func(code string) {
		describe := awstest.Refuse(http.StatusBadRequest, code)
		accepting.Break(func(w http.ResponseWriter, r *http.Request) bool {
			if isPut(r) {
				put.Add(1)
				return false
			}
			return describe(w, r)
		})
	}
	refuse("ResourceNotFoundException")
	const foreign = "bus: arn:aws:events:eu-central-1:210987654321:event-bus/orders"
	for _, settings := range []string{"bus: orders", foreign} {
		sink := newSink(t, sinks.Instance{}, accepting.URL, settings)
		_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
		require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
		require.ErrorContains(t, err, "ResourceNotFoundException")
		require.Error(t, sink.(sinks.HealthChecker).CheckHealth(t.Context()))
	}
	require.Zero(t, put.Load())

	refuse("AccessDeniedException")
	_, err := newSink(t, sinks.Instance{}, accepting.URL, "bus: orders").Deliver(t.Context(), sinktest.NewDelivery(1))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "a right is missing: %v", err)
	require.Zero(t, put.Load())
	sink := newSink(t, sinks.Instance{}, accepting.URL, foreign)
	_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.NoError(t, err, "the bus of another account cannot be asked for")
	require.NoError(t, sink.(sinks.HealthChecker).CheckHealth(t.Context()))

	accepting.Break(nil)
	sink = newSink(t, sinks.Instance{}, accepting.URL, "bus: orders")
	_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.NoError(t, err)
	put.Store(0)
	refuse("ResourceNotFoundException") // it is deleted
	sink.(*eventbridge.Sink).Outdate("orders")
	_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	require.Zero(t, put.Load())
}

func TestWhatAnEventHas(t *testing.T) {
	server := awstest.Moto(t)
	bus, queue := newBus(t, server)
	for settings, check := range map[string]func(e event, d *notification.Delivery){
		"format: payload\nresources: ['{{.ID}}', '{{.Metadata.Get \"none\"}}', 'arn:{{.Key}}']": func(e event, d *notification.Delivery) {
			require.JSONEq(t, string(d.Payload), string(e.Detail))
			require.Equal(t, []string{d.ID, "arn:key-1"}, e.Resources)
		},
		"format: cloudevents\ndetail_type: 'v{{.Version}}'": func(e event, d *notification.Delivery) {
			var its struct {
				ID, Source string
				Data       json.RawMessage
			}
			require.NoError(t, json.Unmarshal(e.Detail, &its))
			require.Equal(t, d.ID, its.ID)
			require.Equal(t, "com.example.test", its.Source)
			require.JSONEq(t, string(d.Payload), string(its.Data))
			require.Equal(t, "v2", e.DetailType)
		},
		"": func(e event, d *notification.Delivery) {
			require.Equal(t, d.ID, awstest.Whole(t, string(e.Detail)).ID)
			require.Equal(t, "sinktest.happened", e.DetailType)
			require.Equal(t, "2025-01-02T03:04:05Z", e.Time)
		},
	} {
		d := sinktest.NewDelivery(1)
		_, err := newSink(t, sinks.Instance{}, server, "bus: "+bus+"\n"+settings).Deliver(t.Context(), d)
		require.NoError(t, err)
		events := take(t, queue)
		require.Len(t, events, 1)
		check(events[0], d)
	}
}

func TestNothingIsSentThatIsNoEvent(t *testing.T) {
	nowhere := "http://" + servertest.Unused
	for settings, change := range map[string]func(d *notification.Delivery){
		"format: payload":                    func(d *notification.Delivery) { d.Payload = []byte("[]") },
		"format: payload\nbus: default":      func(d *notification.Delivery) { d.Payload = []byte(`{"a":"` + "\xff" + `"}`) },
		"bus: '{{.Key}}'":                    func(d *notification.Delivery) { d.Key = "no bus" },
		"detail_type: '{{.Metadata.none}}'":  func(*notification.Delivery) {},
		"{}":                                 func(d *notification.Delivery) { d.Type += strings.Repeat("t", 128) },
		"resources: ['{{.Metadata.odd}}']":   func(d *notification.Delivery) { d.Metadata["odd"] = "\xff" },
		"resources: ['{{.Metadata.large}}']": func(d *notification.Delivery) { d.Metadata["large"] = strings.Repeat("x", 600<<10) },
	} {
		d := sinktest.NewDelivery(1)
		change(d)
		if settings == "{}" {
			settings = ""
		}
		_, err := newSink(t, sinks.Instance{}, nowhere, settings).Deliver(t.Context(), d)
		require.Equal(t, sinks.ClassInvalid, sinktest.Class(err), "%s: %v", settings, err)
	}
}

func TestARequestKeepsItsLimit(t *testing.T) {
	server := awstest.Moto(t)
	bus, queue := newBus(t, server)
	proxy := awstest.NewProxy(t, server)
	var requests atomic.Int64
	proxy.Break(func(_ http.ResponseWriter, r *http.Request) bool {
		if isPut(r) {
			requests.Add(1)
		}
		return false
	})
	var batch []*notification.Delivery
	for n := range 10 {
		batch = append(batch, sinktest.NewDelivery(n))
		batch[n].Payload = []byte(`"` + strings.Repeat("x", 300<<10) + `"`)
	}
	for _, result := range newSink(t, sinks.Instance{}, proxy.URL, "bus: "+bus).DeliverBatch(t.Context(), batch) {
		require.NoError(t, result.Err)
	}
	require.EqualValues(t, 4, requests.Load(), "three events of 300 KiB fit into 1 MiB")
	require.Len(t, take(t, queue), 10)
}

func TestBusesFromDataAreDestinations(t *testing.T) {
	server := awstest.Moto(t)
	bus, queue := newBus(t, server)
	sink := newSink(t, sinks.Instance{}, server, "bus: '{{.Metadata.to}}'")
	batch := []*notification.Delivery{sinktest.NewDelivery(0), sinktest.NewDelivery(1)}
	batch[0].Metadata["to"], batch[1].Metadata["to"] = "none", bus
	results := sink.DeliverBatch(t.Context(), batch)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(results[0].Err), "%v", results[0].Err)
	require.NoError(t, results[1].Err)
	require.Equal(t, bus, sink.(sinks.Addresser).Destination(batch[1]))
	require.Len(t, take(t, queue), 1)
	require.NoError(t, sink.(sinks.HealthChecker).CheckHealth(t.Context()))
}

// shelf is an object store in memory.
type shelf map[string][]byte

func (s shelf) Put(_ context.Context, name string, body []byte) ([]byte, error) {
	s[name] = body
	return []byte(`["pointer",{"key":"` + name + `"}]`), nil
}
func (shelf) CheckHealth(context.Context) error { return nil }

func TestALargeDetailIsStored(t *testing.T) {
	server := awstest.Moto(t)
	bus, queue := newBus(t, server)
	store := shelf{}
	in := sinks.Instance{Name: "events", Stores: map[string]sinks.OpenStore{"mem": func(sinks.Instance, *url.URL) (sinks.ObjectStore, error) { return store, nil }}}
	d := tooLarge(1)
	_, err := newSink(t, in, server, "bus: "+bus+"\nlarge: {store: 'mem://b'}").Deliver(t.Context(), d)
	require.NoError(t, err)
	detail := store["events/"+d.ID]
	require.Equal(t, d.Payload, awstest.Whole(t, string(detail)).Payload)
	events := take(t, queue)
	require.Len(t, events, 1)
	require.JSONEq(t, fmt.Sprintf(`{"id":%q,"ExtendedPayloadSize":"%d","PayloadPointer":["pointer",{"key":"events/%[1]s"}]}`, d.ID, len(detail)), string(events[0].Detail))
	require.Equal(t, "sinktest.happened", events[0].DetailType, "rules find it")
}

func TestMistakesOfAConfiguration(t *testing.T) {
	for settings, want := range map[string]string{
		"{}":                                  "source: is missing",
		"{format: cloudevents}":               "source: is missing",
		"{source: aws.orders}":                "source: begins with aws.",
		"{source: a b, format: cloudevents}":  `source: "a b" is not a URI`,
		"{source: a, format: xml}":            `format: "xml" is not offered`,
		"{source: a, bus: a b}":               `bus: "a b" is not the name of a bus`,
		"{source: a, bus: 'arn:aws:sns:a'}":   "is not the ARN of a bus",
		"{source: a, detail_type: '{{'}":      "detail_type: template",
		"{source: a, resources: ['{{.No}}']}": "resources: template",
		"{source: a, max_bytes: 1048576}":     "max_bytes: 1048576 is outside 1024..1048575",
		"{source: a, timeout: 1ms}":           "timeout: 1ms is outside",
		"{source: a, large: {above: 1KiB}}":   "large.above: is for large.store",
	} {
		_, err := eventbridge.Kind().Build(sinks.Instance{}, func(config any) error { return yaml.Unmarshal([]byte(settings), config) })
		require.ErrorContains(t, err, want, settings)
	}
}

func TestAConfigurationDescribesItsChannel(t *testing.T) {
	its := (&eventbridge.Config{Bus: "arn:aws:events:eu-central-1:123456789012:event-bus/orders", Source: "a", Format: "envelope"}).Channel()
	require.Equal(t, "orders", its.Address)
	require.NotNil(t, its.Body)
}
