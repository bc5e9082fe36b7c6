package sqs_test

import (
	"context"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/aws/access"
	"github.com/waybill-go/waybill/sinks/aws/awstest"
	"github.com/waybill-go/waybill/sinks/aws/internal/kindtest"
	"github.com/waybill-go/waybill/sinks/aws/sqs"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestMain(m *testing.M) { os.Exit(awstest.Main(m)) }

func TestConformance(t *testing.T) {
	t.Run("moto", func(t *testing.T) {
		url := awstest.Moto(t)
		t.Run("standard, whole notifications", func(t *testing.T) { kindtest.Run(t, subject(url, "", "format: envelope")) })
		t.Run("FIFO", func(t *testing.T) { kindtest.Run(t, subject(url, ".fifo", "")) })
	})
	t.Run("ElasticMQ", func(t *testing.T) {
		kindtest.Run(t, subject(awstest.ElasticMQ(t), ".fifo", ""))
	})
}

func subject(server, ending, settings string) kindtest.Subject {
	return kindtest.Subject{
		Kind:   sqs.Kind(),
		Server: server,
		New: func(t *testing.T) (string, func(*testing.T) []notification.Envelope) {
			queue := newQueue(t, server, ending)
			received := func(t *testing.T) (all []notification.Envelope) {
				messages := queue.Take(t)
				if server != awstest.Moto(t) && ending != "" {
					messages = awstest.Sort(messages)
				}
				for _, m := range messages {
					if settings == "" {
						all = append(all, awstest.Envelope(t, m))
					} else {
						all = append(all, awstest.Whole(t, *m.Body))
					}
				}
				return all
			}
			return "queue: " + queue.Name + "\n" + settings, received
		},
		Refused: func(n int) *notification.Delivery {
			d := sinktest.NewDelivery(n)
			d.Payload = []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
			return d
		},
		Partly:  awstest.Edit(server, failSome),
		Ordered: ending != "",
	}
}

var made atomic.Int64

func newQueue(t *testing.T, server, ending string) *awstest.Queue {
	t.Helper()
	attributes := map[string]string{}
	if ending != "" {
		attributes["FifoQueue"] = "true"
	}
	return awstest.NewQueue(t, server, "queue-"+strconv.FormatInt(made.Add(1), 10)+ending, attributes)
}

// failSome makes every other entry of SendMessageBatch fail. A request without entries would be refused, so that the first
// one is kept.
func failSome(request map[string]any) func(map[string]any) {
	entries, _ := request["Entries"].([]any)
	if len(entries) < 2 {
		return nil
	}
	var kept, failed []any
	for i, e := range entries {
		if i%2 == 0 {
			kept = append(kept, e)
		} else {
			failed = append(failed, map[string]any{"Id": e.(map[string]any)["Id"], "Code": "InternalError", "SenderFault": false})
		}
	}
	request["Entries"] = kept
	return func(answer map[string]any) { answer["Failed"] = failed }
}

func TestCodesHaveTheirClasses(t *testing.T) {
	queue := newQueue(t, awstest.Moto(t), "")
	for code, want := range map[string]sinks.Class{
		"InvalidMessageContents": sinks.ClassPermanent, "InvalidAttributeName": sinks.ClassPermanent, "InvalidAttributeValue": sinks.ClassPermanent,
		"BatchRequestTooLong": sinks.ClassPermanent, "AWS.SimpleQueueService.BatchRequestTooLong": sinks.ClassPermanent,
		"QueueDoesNotExist": sinks.ClassUnavailable, "AWS.SimpleQueueService.NonExistentQueue": sinks.ClassUnavailable,
		"QueueDeletedRecently": sinks.ClassUnavailable, "InvalidAddress": sinks.ClassUnavailable, "InvalidSecurity": sinks.ClassUnavailable,
		"UnsupportedOperation": sinks.ClassUnavailable, "AWS.SimpleQueueService.UnsupportedOperation": sinks.ClassUnavailable,
		"MissingParameter": sinks.ClassUnavailable, "AccessDenied": sinks.ClassUnavailable, "InternalError": sinks.ClassUnavailable,
		"KmsAccessDenied": sinks.ClassUnavailable, "KmsDisabled": sinks.ClassUnavailable, "KmsNotFound": sinks.ClassUnavailable,
		"KmsInvalidState": sinks.ClassUnavailable, "KmsOptInRequired": sinks.ClassUnavailable, "KMS.AccessDeniedException": sinks.ClassUnavailable,
		"KmsThrottled": sinks.ClassThrottled, "RequestThrottled": sinks.ClassThrottled, "ThrottlingException": sinks.ClassThrottled,
		"InvalidParameterValue": sinks.ClassTransient, "SomethingNew": sinks.ClassTransient,
	} {
		for where, fault := range map[string]awstest.Fault{
			"request": awstest.Refuse(http.StatusBadRequest, code),
			"entry": awstest.Edit(awstest.Moto(t), func(map[string]any) func(map[string]any) {
				return func(answer map[string]any) {
					delete(answer, "Successful")
					answer["Failed"] = []any{map[string]any{"Id": "0", "Code": code, "Message": "because of a test", "SenderFault": true}}
				}
			}),
		} {
			sink, proxy := newSink(t, queue, nil)
			_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(0)) // it knows the queue's URL then
			require.NoError(t, err)
			proxy.Break(fault)
			_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(1))
			require.Equal(t, want, sinktest.Class(err), "%s of a %s: %v", code, where, err)
			require.ErrorContains(t, err, queue.Name)
			require.Equal(t, "because of a test", sinks.AnswerOf(err))
		}
	}
}

// newSink makes a sink behind a proxy.
func newSink(t *testing.T, queue *awstest.Queue, set func(*sqs.Config)) (*sqs.Sink, *awstest.Proxy) {
	t.Helper()
	proxy := awstest.NewProxy(t, awstest.Moto(t))
	c := sqs.Config{Queue: queue.Name, Access: access.Config{Region: awstest.Region, Endpoint: proxy.URL}}
	if set != nil {
		set(&c)
	}
	sink, err := sqs.New(sinks.Instance{Name: "orders"}, c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sink.Close(context.WithoutCancel(t.Context()))) })
	return sink, proxy
}

// A queue may accept less than max_bytes.
func TestOnlyTheGuiltyMessageOfARequestIsRefused(t *testing.T) {
	queue := awstest.NewQueue(t, awstest.Moto(t), "small-queue", map[string]string{"MaximumMessageSize": "2048"})
	sink, _ := newSink(t, queue, nil)
	var batch []*notification.Delivery
	for n := range 7 {
		batch = append(batch, sinktest.NewDelivery(n))
	}
	batch[4].Payload = []byte(strings.Repeat("x", 4000))
	for i, result := range sink.DeliverBatch(t.Context(), batch) {
		if i == 4 {
			require.Equal(t, sinks.ClassPermanent, sinktest.Class(result.Err), "%v", result.Err)
		} else {
			require.NoError(t, result.Err)
		}
	}
	require.Len(t, queue.Take(t), 6)
}

func TestMessagesThatSQSWouldChangeAreInvalid(t *testing.T) {
	queue := newQueue(t, awstest.Moto(t), "")
	for name, c := range map[string]struct {
		change func(*notification.Delivery)
		says   string
	}{
		"empty":    {func(d *notification.Delivery) { d.Payload = nil }, "format: envelope"},
		"binary":   {func(d *notification.Delivery) { d.Payload = []byte{0xff, 0} }, "format: envelope"},
		"control":  {func(d *notification.Delivery) { d.Payload = []byte("\x01") }, "format: envelope"},
		"key":      {func(d *notification.Delivery) { d.Key = "a\x01" }, "attribute key"},
		"metadata": {func(d *notification.Delivery) { d.Metadata = notification.Metadata{"tenant": "\ufffe"} }, "attribute tenant"},
		"large":    {func(d *notification.Delivery) { d.Payload = []byte(strings.Repeat("x", 1<<20)) }, "max_bytes is 1048576"},
		"queue":    {func(d *notification.Delivery) { d.Type = "a b" }, "not the name of a queue"},
	} {
		sink, _ := newSink(t, queue, func(c *sqs.Config) {
			c.Body.Attributes = []string{"tenant"}
			if name == "queue" {
				c.Queue = "{{.Type}}"
			}
		})
		d := sinktest.NewDelivery(1)
		c.change(d)
		_, err := sink.Deliver(t.Context(), d)
		require.Equal(t, sinks.ClassInvalid, sinktest.Class(err), "%s: %v", name, err)
		require.ErrorContains(t, err, c.says)
	}
}

func TestAMessageHasItsAttributesAndIds(t *testing.T) {
	fifo, standard := newQueue(t, awstest.Moto(t), ".fifo"), newQueue(t, awstest.Moto(t), "")
	attributes := func(c *sqs.Config) { c.Body.Attributes = []string{"tenant", "absent"} }
	d := sinktest.NewDelivery(1)
	d.Key, d.Metadata = strings.Repeat("ü", 65), notification.Metadata{"tenant": "acme", "other": "x"}
	sink, _ := newSink(t, fifo, attributes)
	receipt, err := sink.Deliver(t.Context(), d)
	require.NoError(t, err)
	m := fifo.Take(t)[0]
	require.Equal(t, "sqs "+fifo.Name+" "+*m.MessageId+"@"+m.Attributes["SequenceNumber"], string(receipt))
	require.Equal(t, d.ID, m.Attributes["MessageDeduplicationId"])
	require.Regexp(t, "^[0-9a-f]{64}$", m.Attributes["MessageGroupId"])
	got := make(map[string]string)
	for name, a := range m.MessageAttributes {
		require.Equal(t, "String", *a.DataType)
		got[name] = *a.StringValue
	}
	require.Equal(t, map[string]string{
		"id": d.ID, "type": d.Type, "version": "2", "occurred-on": "2025-01-02T03:04:05.000678Z", "key": d.Key, "tenant": "acme",
	}, got)

	sink, _ = newSink(t, standard, func(c *sqs.Config) { c.Group = `{{.Metadata.Get "tenant"}}` })
	_, err = sink.Deliver(t.Context(), d)
	require.NoError(t, err)
	require.Equal(t, "acme", standard.Take(t)[0].Attributes["MessageGroupId"])
}

func TestAQueueIsNamedByNameURLOrARN(t *testing.T) {
	queue := newQueue(t, awstest.Moto(t), ".fifo")
	for _, named := range []string{queue.Name, queue.URL, "arn:aws:sqs:eu-central-1:123456789012:" + queue.Name, `{{"` + queue.Name + `"}}`} {
		sink, _ := newSink(t, queue, func(c *sqs.Config) { c.Queue = named })
		_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
		require.NoError(t, err, named)
		require.NoError(t, sink.CheckHealth(t.Context()))
		require.Len(t, queue.Take(t), 1)
	}
}

func TestTheRegionIsThatOfTheQueue(t *testing.T) {
	for _, queue := range []string{"arn:aws:sqs:us-east-1:123456789012:orders", "https://sqs.us-east-1.amazonaws.com/123456789012/orders"} {
		c := sqs.Config{Queue: queue}
		c.SetDefaults()
		require.Equal(t, "us-east-1", c.Access.Region)
	}
	c := sqs.Config{Queue: "http://127.0.0.1:9324/queue/orders"}
	c.SetDefaults()
	require.Equal(t, "http://127.0.0.1:9324", c.Access.Endpoint)
}

func TestAQueueThatIsMadeLaterIsFound(t *testing.T) {
	queue := newQueue(t, awstest.Moto(t), "")
	sink, _ := newSink(t, queue, nil)
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.NoError(t, err)
	queue.Delete(t)
	d := sinktest.NewDelivery(2)
	_, err = sink.Deliver(t.Context(), d)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	require.Error(t, sink.CheckHealth(t.Context()))
	awstest.NewQueue(t, awstest.Moto(t), queue.Name, nil)
	_, err = sink.Deliver(t.Context(), d)
	require.NoError(t, err)
}

func TestMistakesNameTheirKey(t *testing.T) {
	for text, change := range map[string]func(*sqs.Config){
		"queue: is missing":                func(c *sqs.Config) { c.Queue = "" },
		`queue: "a b" is not the name`:     func(c *sqs.Config) { c.Queue = "a b" },
		"is not the ARN":                   func(c *sqs.Config) { c.Queue = "arn:aws:sqs:orders" },
		"queue: template":                  func(c *sqs.Config) { c.Queue = "{{.Nothing}}" },
		"group: is for standard queues":    func(c *sqs.Config) { c.Queue, c.Group = "a.fifo", "{{.Type}}" },
		"max_bytes: 10 is outside":         func(c *sqs.Config) { c.MaxBytes = 10 },
		"attributes: has 6 names":          func(c *sqs.Config) { c.Body.Attributes = strings.Split("a b c d e f", " ") },
		"attributes: every message":        func(c *sqs.Config) { c.Body.Attributes = []string{"id"} },
		`attributes: "AWS.x" is not`:       func(c *sqs.Config) { c.Body.Attributes = []string{"AWS.x"} },
		"format: \"xml\" is not offered":   func(c *sqs.Config) { c.Body.Format = "xml" },
		"source: is missing":               func(c *sqs.Config) { c.Body.Format = "cloudevents" },
		"endpoint: is not a URL":           func(c *sqs.Config) { c.Access.Endpoint = "127.0.0.1:5000" },
		"endpoint: has a user":             func(c *sqs.Config) { c.Access.Endpoint = "http://a:b@127.0.0.1:5000" },
		"secret_access_key: is missing":    func(c *sqs.Config) { c.Access.AccessKeyID = "a" },
		"access_key_id: is missing":        func(c *sqs.Config) { c.Access.SecretAccessKey = "a" },
		"role_arn: is missing":             func(c *sqs.Config) { c.Access.ExternalID = "a" },
		"role_arn: is not an ARN":          func(c *sqs.Config) { c.Access.RoleARN = "outbox" },
		"timeout: 1ms is outside":          func(c *sqs.Config) { c.Access.Timeout = time.Millisecond },
		"large.store: this program has no": func(c *sqs.Config) { c.Large.Store = "s3://bucket" },
		"is in the region us-east-1, but": func(c *sqs.Config) {
			c.Queue, c.Access.Region = "arn:aws:sqs:us-east-1:123456789012:orders", "eu-central-1"
		},
		"orders is in the region eu-west-1": func(c *sqs.Config) {
			c.Queue, c.Access.Region = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders", "eu-central-1"
		},
		"queue: is not the URL":         func(c *sqs.Config) { c.Queue = "http://me:secret@127.0.0.1/123456789012/orders" },
		"region: \"eu central\" is not": func(c *sqs.Config) { c.Access.Region = "eu central" },
	} {
		c := sqs.Config{Queue: "orders"}
		change(&c)
		_, err := sqs.New(sinks.Instance{Name: "queue"}, c)
		require.ErrorContains(t, err, text)
		require.NotContains(t, err.Error(), "secret@")
	}
}

// BenchmarkDrain sends batches of 10 to ElasticMQ from 8 goroutines.
func BenchmarkDrain(b *testing.B) {
	server := awstest.ElasticMQ(b)
	queue := awstest.NewQueue(b, server, "drain", nil)
	sink, err := sqs.New(sinks.Instance{}, sqs.Config{Queue: queue.URL, Access: access.Config{Region: awstest.Region, Endpoint: server}})
	require.NoError(b, err)
	kindtest.Drain(b, sink, 10)
}
