package awstest

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks/internal/envelope"
)

// Queue is a queue that a test has made.
type Queue struct {
	Name, URL string
	client    *sqs.Client
}

// NewQueue makes a queue at a server. A name that ends with .fifo makes a FIFO queue.
func NewQueue(t testing.TB, server, name string, attributes map[string]string) *Queue {
	t.Helper()
	q := &Queue{Name: name, client: sqs.NewFromConfig(Config(server))}
	out, err := q.client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		t.Fatal(err)
	}
	q.URL = aws.ToString(out.QueueUrl)
	return q
}

// Delete deletes the queue.
func (q *Queue) Delete(t testing.TB) {
	t.Helper()
	if _, err := q.client.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: &q.URL}); err != nil {
		t.Fatal(err)
	}
}

// Take receives and deletes all messages of the queue, in the order in which they come.
func (q *Queue) Take(t testing.TB) (all []types.Message) {
	t.Helper()
	for {
		out, err := q.client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
			QueueUrl: &q.URL, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"},
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Messages) == 0 {
			return all
		}
		for _, m := range out.Messages {
			if _, err := q.client.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &q.URL, ReceiptHandle: m.ReceiptHandle}); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, out.Messages...)
	}
}

// Sort sorts the messages of a FIFO queue of ElasticMQ by their sequence numbers, since groups come in any order. Those of
// moto have random ones, and come in order.
func Sort(all []types.Message) []types.Message {
	slices.SortFunc(all, func(a, b types.Message) int {
		x, y := a.Attributes["SequenceNumber"], b.Attributes["SequenceNumber"]
		return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y))
	})
	return all
}

// Envelope returns the notification in a message of the format payload.
func Envelope(t testing.TB, m types.Message) notification.Envelope {
	t.Helper()
	attribute := func(name string) string { return aws.ToString(m.MessageAttributes[name].StringValue) }
	e := notification.Envelope{
		ID: attribute("id"), Type: attribute("type"), Key: attribute("key"), Payload: []byte(aws.ToString(m.Body)),
	}
	var err error
	if e.Version, err = strconv.Atoi(attribute("version")); err != nil {
		t.Fatal(err)
	}
	if e.OccurredOn, err = time.Parse(time.RFC3339Nano, attribute("occurred-on")); err != nil {
		t.Fatal(err)
	}
	return e
}

// Whole returns the notification in a body that has the JSON of a whole one.
func Whole(t testing.TB, body string) notification.Envelope {
	t.Helper()
	var m envelope.Message
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatal(err)
	}
	e, err := m.Envelope()
	if err != nil {
		t.Fatal(err)
	}
	return *e
}
