package sns_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	api "github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/aws/awstest"
	"github.com/waybill-go/waybill/sinks/aws/internal/kindtest"
	"github.com/waybill-go/waybill/sinks/aws/sns"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestMain(m *testing.M) { os.Exit(awstest.Main(m)) }

func TestConformance(t *testing.T) {
	server := awstest.Moto(t)
	t.Run("standard", func(t *testing.T) { kindtest.Run(t, subject(server, "")) })
	t.Run("FIFO", func(t *testing.T) { kindtest.Run(t, subject(server, ".fifo")) })
}

func subject(server, ending string) kindtest.Subject {
	return kindtest.Subject{
		Kind:   sns.Kind(),
		Server: server,
		New: func(t *testing.T) (string, func(*testing.T) []notification.Envelope) {
			topic, queue := newTopic(t, server, ending)
			received := func(t *testing.T) (all []notification.Envelope) {
				for _, m := range queue.Take(t) {
					all = append(all, awstest.Envelope(t, m))
				}
				return all
			}
			return "topic: " + topic, received
		},
		Refused: tooLarge,
		Partly:  failSome(server),
		Ordered: ending != "",
	}
}

var (
	member = regexp.MustCompile(`^PublishBatchRequestEntries\.member\.(\d+)\.(.*)$`)
	none   = regexp.MustCompile(`<Failed ?/>|<Failed></Failed>`)
)

// failSome lets a server have every other message, and answers that it failed for the rest.
func failSome(server string) awstest.Fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		text, _ := io.ReadAll(r.Body) // a request that ends is answered in vain
		r.Body = io.NopCloser(bytes.NewReader(text))
		form, _ := url.ParseQuery(string(text)) // what cannot be read has no members
		kept, rest := url.Values{}, ""
		for name, values := range form {
			parts := member.FindStringSubmatch(name)
			if parts == nil {
				kept[name] = values
				continue
			}
			switch n, _ := strconv.Atoi(parts[1]); {
			case n%2 == 1:
				kept[fmt.Sprintf("PublishBatchRequestEntries.member.%d.%s", (n+1)/2, parts[2])] = values
			case parts[2] == "Id":
				rest += failed(values[0], "InternalError", "later", false)
			}
		}
		if rest == "" {
			return false
		}
		request, err := http.NewRequestWithContext(r.Context(), http.MethodPost, server, strings.NewReader(kept.Encode()))
		if err != nil {
			return false
		}
		request.Header = r.Header.Clone() // has the region
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer func() { _ = response.Body.Close() }()
		text, _ = io.ReadAll(response.Body) // without it there is no message
		answer := none.ReplaceAllString(string(text), "")
		w.WriteHeader(response.StatusCode)
		_, _ = io.WriteString(w, strings.Replace(answer, "</PublishBatchResult>", "<Failed>"+rest+"</Failed></PublishBatchResult>", 1))
		return true
	}
}

func tooLarge(n int) *notification.Delivery {
	d := sinktest.NewDelivery(n)
	d.Payload = []byte(`"` + strings.Repeat("x", 256<<10) + `"`)
	return d
}

var made atomic.Int64

// newTopic makes a topic and a queue that gets its messages as they are.
func newTopic(t *testing.T, server, ending string) (arn string, queue *awstest.Queue) {
	t.Helper()
	name := "topic-" + strconv.FormatInt(made.Add(1), 10) + ending
	attributes, its := map[string]string{}, map[string]string{}
	if ending != "" {
		attributes["FifoTopic"], its["FifoQueue"] = "true", "true"
	}
	client := api.NewFromConfig(awstest.Config(server))
	out, err := client.CreateTopic(t.Context(), &api.CreateTopicInput{Name: &name, Attributes: attributes})
	require.NoError(t, err)
	queue = awstest.NewQueue(t, server, name, its)
	_, err = client.Subscribe(t.Context(), &api.SubscribeInput{
		TopicArn: out.TopicArn, Protocol: aws.String("sqs"), Attributes: map[string]string{"RawMessageDelivery": "true"},
		Endpoint: aws.String(strings.Replace(*out.TopicArn, ":sns:", ":sqs:", 1)),
	})
	require.NoError(t, err)
	return *out.TopicArn, queue
}

const anARN = "arn:aws:sns:" + awstest.Region + ":123456789012:orders"

// newSink makes a sink with settings, for a topic at a server.
func newSink(t *testing.T, in sinks.Instance, endpoint, settings string) sinks.Batcher {
	t.Helper()
	sink := kindtest.Build(t, sns.Kind(), in, endpoint, "10s", settings).(sinks.Batcher)
	t.Cleanup(func() { require.NoError(t, sink.(sinks.Closer).Close(context.WithoutCancel(t.Context()))) })
	return sink
}

// answering starts a server that answers PublishBatch with a list of entries.
func answering(t *testing.T, entries string) string {
	proxy := awstest.NewProxy(t, "http://"+servertest.Unused)
	proxy.Break(func(w http.ResponseWriter, _ *http.Request) bool {
		_, _ = fmt.Fprintf(w, "<PublishBatchResponse><PublishBatchResult>%s</PublishBatchResult></PublishBatchResponse>", entries)
		return true
	})
	return proxy.URL
}

func failed(id, code, message string, sender bool) string {
	return fmt.Sprintf("<member><Id>%s</Id><Code>%s</Code><Message>%s</Message><SenderFault>%t</SenderFault></member>", id, code, message, sender)
}

func TestEachCodeHasItsClass(t *testing.T) {
	for code, class := range map[string]sinks.Class{
		"BatchRequestTooLong": sinks.ClassPermanent, "InvalidParameter": sinks.ClassTransient, "ParameterValueInvalid": sinks.ClassTransient,
		"ValidationException": sinks.ClassTransient, "NotFound": sinks.ClassUnavailable, "ResourceNotFound": sinks.ClassUnavailable,
		"InvalidState": sinks.ClassUnavailable, "InvalidBatchEntryId": sinks.ClassUnavailable, "EmptyBatchRequest": sinks.ClassUnavailable,
		"TooManyEntriesInBatchRequest": sinks.ClassUnavailable, "BatchEntryIdsNotDistinct": sinks.ClassUnavailable,
		"AuthorizationError": sinks.ClassUnavailable, "InvalidSecurity": sinks.ClassUnavailable, "InternalError": sinks.ClassUnavailable,
		"KMSAccessDenied": sinks.ClassUnavailable, "KMSDisabled": sinks.ClassUnavailable, "KMSInvalidState": sinks.ClassUnavailable,
		"KMSNotFound": sinks.ClassUnavailable, "KMSOptInRequired": sinks.ClassUnavailable, "KMSThrottling": sinks.ClassThrottled,
		"Throttled": sinks.ClassThrottled, "SomethingNew": sinks.ClassTransient, "": sinks.ClassUnavailable,
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			proxy := awstest.NewProxy(t, "http://"+servertest.Unused)
			proxy.Break(awstest.Refuse(http.StatusBadRequest, code))
			_, err := newSink(t, sinks.Instance{}, proxy.URL, "topic: "+anARN).Deliver(t.Context(), sinktest.NewDelivery(1))
			require.Equal(t, class, sinktest.Class(err), "of a request: %v", err)
			if code == "" {
				return
			}
			_, err = newSink(t, sinks.Instance{}, answering(t, "<Failed>"+failed("0", code, "m", true)+"</Failed>"), "topic: "+anARN).Deliver(t.Context(), sinktest.NewDelivery(1))
			require.Equal(t, class, sinktest.Class(err), "of an entry: %v", err)
			require.Equal(t, "m", sinks.AnswerOf(err))
		})
	}
}

func TestAnInvalidParameterIsAboutTheMessageOrTheTopic(t *testing.T) {
	for message, class := range map[string]sinks.Class{
		"Invalid parameter: Message too long":   sinks.ClassPermanent,
		"Invalid parameter: TopicArn Reason: x": sinks.ClassUnavailable,
		"Invalid parameter: Subject":            sinks.ClassTransient,
	} {
		proxy := awstest.NewProxy(t, "http://"+servertest.Unused)
		proxy.Break(func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, "<ErrorResponse><Error><Code>InvalidParameter</Code><Message>%s</Message></Error></ErrorResponse>", message)
			return true
		})
		_, err := newSink(t, sinks.Instance{}, proxy.URL, "topic: "+anARN).Deliver(t.Context(), sinktest.NewDelivery(1))
		require.Equal(t, class, sinktest.Class(err), "of a request: %v", err)
		_, err = newSink(t, sinks.Instance{}, answering(t, "<Failed>"+failed("0", "InvalidParameter", message, true)+"</Failed>"), "topic: "+anARN).Deliver(t.Context(), sinktest.NewDelivery(1))
		require.Equal(t, class, sinktest.Class(err), "of an entry: %v", err)
	}
}

func TestEntriesAreSettledOneByOne(t *testing.T) {
	endpoint := answering(t, `<Successful><member><Id>1</Id><MessageId>m1</MessageId><SequenceNumber>17</SequenceNumber></member></Successful>`+
		"<Failed>"+failed("0", "BatchRequestTooLong", "", true)+failed("2", "SomethingNew", "", false)+"</Failed>")
	batch := []*notification.Delivery{sinktest.NewDelivery(0), sinktest.NewDelivery(1), sinktest.NewDelivery(2), sinktest.NewDelivery(3)}
	results := newSink(t, sinks.Instance{}, endpoint, "topic: "+anARN+".fifo").DeliverBatch(t.Context(), batch)
	require.Equal(t, sinks.ClassPermanent, sinktest.Class(results[0].Err))
	require.NoError(t, results[1].Err)
	require.Equal(t, notification.Receipt("sns orders.fifo m1@17"), results[1].Receipt)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(results[2].Err), "the service blames itself")
	require.ErrorContains(t, results[3].Err, "the answer lacks the message")
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(results[3].Err))
}

func TestARequestKeepsTheLimitOfTheTopic(t *testing.T) {
	server := awstest.Moto(t)
	topic, queue := newTopic(t, server, "")
	proxy := awstest.NewProxy(t, server)
	var requests atomic.Int64
	proxy.Break(func(http.ResponseWriter, *http.Request) bool { requests.Add(1); return false })
	var batch []*notification.Delivery
	for n := range 10 {
		batch = append(batch, sinktest.NewDelivery(n))
		batch[n].Payload = []byte(`"` + strings.Repeat("x", 100<<10) + `"`)
	}
	for _, result := range newSink(t, sinks.Instance{}, proxy.URL, "topic: "+topic).DeliverBatch(t.Context(), batch) {
		require.NoError(t, result.Err)
	}
	require.EqualValues(t, 5, requests.Load(), "two messages of 100 KiB fit into 256 KiB")
	require.Len(t, queue.Take(t), 10)
}

func TestANameIsThatOfATopicInTheAccount(t *testing.T) {
	server := awstest.Moto(t)
	topic, queue := newTopic(t, server, "")
	proxy := awstest.NewProxy(t, server)
	t.Setenv("AWS_ENDPOINT_URL", proxy.URL)
	var requests atomic.Int64
	proxy.Break(func(http.ResponseWriter, *http.Request) bool { requests.Add(1); return false })
	sink := build(t, "region: "+awstest.Region+"\ntopic: "+topic[strings.LastIndexByte(topic, ':')+1:])
	for n := range 2 {
		_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(n))
		require.NoError(t, err)
	}
	require.EqualValues(t, 3, requests.Load(), "the account is asked for once")
	require.NoError(t, sink.(sinks.HealthChecker).CheckHealth(t.Context()))
	require.Len(t, queue.Take(t), 2)

	proxy.Break(awstest.Refuse(http.StatusForbidden, "InvalidClientTokenId"))
	_, err := build(t, "region: "+awstest.Region+"\ntopic: orders").Deliver(t.Context(), sinktest.NewDelivery(1))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
}

// build makes a sink without the setting endpoint.
func build(t *testing.T, settings string) sinks.Batcher {
	t.Helper()
	sink, err := sns.Kind().Build(sinks.Instance{}, func(config any) error { return yaml.Unmarshal([]byte(settings), config) })
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sink.(sinks.Closer).Close(context.WithoutCancel(t.Context()))) })
	return sink.(sinks.Batcher)
}

func TestTheEndpointOfTheSinkCounts(t *testing.T) {
	server := awstest.Moto(t)
	t.Setenv("AWS_ENDPOINT_URL_SNS", "http://"+servertest.Unused)
	topic, _ := newTopic(t, server, "")
	_, err := newSink(t, sinks.Instance{}, server, "topic: "+topic).Deliver(t.Context(), sinktest.NewDelivery(1))
	require.NoError(t, err)
}

// form is what a request has.
func form(t *testing.T, settings string, d *notification.Delivery) url.Values {
	t.Helper()
	var got url.Values
	proxy := awstest.NewProxy(t, "http://"+servertest.Unused)
	proxy.Break(func(w http.ResponseWriter, r *http.Request) bool {
		_ = r.ParseForm()
		got = r.PostForm
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	_, err := newSink(t, sinks.Instance{}, proxy.URL, settings).Deliver(t.Context(), d)
	require.Error(t, err)
	return got
}

func TestSubjectGroupAndDeduplicationID(t *testing.T) {
	const entry = "PublishBatchRequestEntries.member.1."
	d := sinktest.NewDelivery(1)
	d.ID, d.Key, d.Metadata["tenant"] = "one", "a key", "blue"
	got := form(t, "topic: "+anARN+"\nsubject: 'About {{.Type}}'\ngroup: '{{.Metadata.tenant}}'", d)
	require.Equal(t, "About sinktest.happened", got.Get(entry+"Subject"))
	require.Equal(t, "blue", got.Get(entry+"MessageGroupId"))
	require.NotContains(t, got, entry+"MessageDeduplicationId")

	got = form(t, "topic: "+anARN+".fifo", d)
	require.Len(t, got.Get(entry+"MessageGroupId"), 64, "a space is not legal, so it is a hash")
	require.Equal(t, "one", got.Get(entry+"MessageDeduplicationId"))
	require.NotContains(t, got, entry+"Subject")
	d.Key = ""
	require.Equal(t, "one", form(t, "topic: "+anARN+".fifo", d).Get(entry+"MessageGroupId"))

	for _, settings := range []string{
		`subject: "{{.Metadata.none}}"`, `subject: "{{printf \"%101d\" 1}}"`, `subject: "ü{{.Type}}"`, `group: "{{.Metadata.none}}"`,
	} {
		_, err := newSink(t, sinks.Instance{}, "http://"+servertest.Unused, "topic: "+anARN+"\n"+settings).Deliver(t.Context(), d)
		require.Equal(t, sinks.ClassInvalid, sinktest.Class(err), "%s: %v", settings, err)
	}
}

func TestTopicsFromDataAreDestinations(t *testing.T) {
	server := awstest.Moto(t)
	topic, queue := newTopic(t, server, "")
	prefix := topic[:strings.LastIndexByte(topic, ':')+1]
	sink := newSink(t, sinks.Instance{}, server, "topic: '"+prefix+"{{.Metadata.to}}'")
	batch := []*notification.Delivery{sinktest.NewDelivery(0), sinktest.NewDelivery(1), sinktest.NewDelivery(2)}
	batch[0].Metadata["to"], batch[1].Metadata["to"] = "none", strings.TrimPrefix(topic, prefix)
	batch[2].Metadata["to"] = "no topic"
	results := sink.DeliverBatch(t.Context(), batch)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(results[0].Err), "%v", results[0].Err)
	require.NoError(t, results[1].Err)
	require.Equal(t, sinks.ClassInvalid, sinktest.Class(results[2].Err))
	require.Equal(t, topic, sink.(sinks.Addresser).Destination(batch[1]))
	require.Len(t, queue.Take(t), 1)
	require.NoError(t, sink.(sinks.HealthChecker).CheckHealth(t.Context()))
}

// shelf is an object store in memory.
type shelf map[string][]byte

func (s shelf) Put(_ context.Context, name string, body []byte) ([]byte, error) {
	s[name] = body
	return json.Marshal([]any{"software.amazon.payloadoffloading.PayloadS3Pointer", map[string]string{"s3BucketName": "b", "s3Key": name}})
}
func (shelf) CheckHealth(context.Context) error { return nil }

func TestALargeBodyIsStored(t *testing.T) {
	server := awstest.Moto(t)
	topic, queue := newTopic(t, server, "")
	store := shelf{}
	in := sinks.Instance{Name: "events", Stores: map[string]sinks.OpenStore{"mem": func(sinks.Instance, *url.URL) (sinks.ObjectStore, error) { return store, nil }}}
	sink := newSink(t, in, server, "topic: "+topic+"\nlarge: {store: 'mem://b'}")
	d := tooLarge(1)
	_, err := sink.Deliver(t.Context(), d)
	require.NoError(t, err)
	require.Equal(t, d.Payload, store["events/"+d.ID])
	messages := queue.Take(t)
	require.Len(t, messages, 1)
	require.Equal(t, `["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"b","s3Key":"events/`+d.ID+`"}]`, *messages[0].Body)
	size := messages[0].MessageAttributes["ExtendedPayloadSize"]
	require.Equal(t, strconv.Itoa(len(d.Payload)), *size.StringValue)
	require.Equal(t, "Number", *size.DataType)
}

func TestMistakesOfAConfiguration(t *testing.T) {
	for settings, want := range map[string]string{
		"{}":                                    "topic: is missing",
		"topic: a b":                            `topic: "a b" is not the name of a topic`,
		"topic: arn:aws:sqs:eu-central-1:1:a":   "is not the ARN of a topic",
		"{topic: orders, endpoint: 'http://e'}": "topic: with endpoint, give the ARN of the topic",
		"{topic: '" + anARN + "', region: eu-west-1}":     "is in the region eu-central-1, but region is eu-west-1",
		"{topic: orders.fifo, group: a}":                  "group: is for standard topics",
		"{topic: orders, group: '{{'}":                    "group: template",
		"{topic: orders, subject: ' a'}":                  "subject: ",
		"{topic: orders, max_bytes: 2000000}":             "max_bytes: 2000000 is outside 1024..1048576",
		"{topic: orders, attributes: [a, b, c, d, e, f]}": "attributes: has 6 names, the limit is 5",
		"{topic: orders, attributes: [aws.a]}":            "is not a legal name of an attribute",
		"{topic: orders, source: /shop}":                  "source: is for format cloudevents",
		"{topic: orders, large: {above: 1KiB}}":           "large.above: is for large.store",
		"{topic: orders, timeout: 1ms}":                   "timeout: 1ms is outside",
	} {
		_, err := sns.Kind().Build(sinks.Instance{}, func(config any) error { return yaml.Unmarshal([]byte(settings), config) })
		require.ErrorContains(t, err, want, settings)
	}
}

func TestAConfigurationDescribesItsChannel(t *testing.T) {
	its := (&sns.Config{Topic: "arn:aws:sns:eu-central-1:123456789012:{{.Type}}.fifo"}).Channel()
	require.Equal(t, "{Type}.fifo", its.Address)
	require.Contains(t, its.Text, "in order")
	require.Len(t, its.Headers, 5)
}
