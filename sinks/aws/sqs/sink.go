// Package sqs sends each notification as a message to a queue of Amazon SQS. Give the sink to a forwarder, or to
// Outbox.Deliver of package waybill; in waybill.yaml it is of kind sqs.
//
// # The message
//
// The body is the payload, or what Format says. Message attributes of the type String are id, type, version, occurred-on
// and, if the notification has one, key, and the listed metadata. In a FIFO queue the message group is the ordering key,
// or the id of a notification without one, and the deduplication id is the notification's id. SQS limits both to 128
// characters of ASCII without spaces; of any other text the sink sends the SHA-256 in hexadecimal.
//
// # Order
//
// A batch has at most one message of a key, since SQS may store some messages of a request and refuse others. The next
// one of the key is sent when the request has ended. So a message that fails holds back only its key.
//
// # Errors
//
// docs/sinks-aws.md lists the error codes and their classes. If the queue comes from data, a queue that does not exist or
// refuses access makes only its own messages wait: the sink is a [sinks.Addresser].
package sqs

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/aws/access"
	"github.com/waybill-go/waybill/sinks/aws/internal/batches"
	"github.com/waybill-go/waybill/sinks/internal/naming"
)

// Kind is the sink kind sqs.
func Kind() sinks.Kind {
	return sinks.NewKind("sqs", "a message in a queue of Amazon SQS for each notification",
		func(in sinks.Instance, c Config) (sinks.Sink, error) { return New(in, c) }, answers...)
}

// Sink sends deliveries to one queue, or to those that its template names. Its methods are safe for concurrent use.
type Sink struct {
	config Config
	queue  naming.Name
	group  naming.Name
	form   batches.Form
	client *access.Client[*sqs.Client]
	urls   sync.Map // the URLs of queues by what the configuration calls them
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
	s := &Sink{config: c}
	var err error
	if s.queue, err = naming.New(c.Queue, c.checkQueue); err != nil {
		return nil, err
	}
	if s.group, err = naming.New(c.Group, func(string) error { return nil }); err != nil {
		return nil, err
	}
	bodies, err := c.Large.Open(in, c.MaxBytes)
	if err != nil {
		return nil, err
	}
	s.form = batches.Form{Body: c.Body, Large: bodies, MaxBytes: c.MaxBytes}
	s.client = access.NewClient(in, c.Access, func(conf aws.Config) *sqs.Client { return sqs.NewFromConfig(conf) })
	return s, nil
}

// Deliver sends one message, and returns the receipt "sqs QUEUE MESSAGE-ID", and in a FIFO queue @ and the sequence
// number after it.
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	result := s.DeliverBatch(ctx, []*notification.Delivery{d})[0]
	return result.Receipt, result.Err
}

// BatchLimits returns that a batch has up to 10 deliveries, and does not wait.
func (s *Sink) BatchLimits() sinks.BatchLimits { return sinks.BatchLimits{Size: maxEntries} }

// Destination returns the queue if it comes from data, and otherwise "".
func (s *Sink) Destination(d *notification.Delivery) string {
	return naming.Destination(s.config.Queue, s.queue, d.Envelope)
}

// DeliverBatch sends the messages of a queue in as few requests as their sizes permit.
func (s *Sink) DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	return batches.Deliver(ctx, batch, batches.Limits{Entries: maxEntries, Bytes: maxBytes}, s.entry, s.send)
}

// entry makes the entry of a request. Its errors have a class.
func (s *Sink) entry(ctx context.Context, i int, e *notification.Envelope) (queue string, entry batches.Entry[types.SendMessageBatchRequestEntry], err error) {
	if queue, err = s.queue(e); err != nil {
		return "", entry, sinks.Invalid(fmt.Errorf("queue: %w", err))
	}
	group, deduplication, err := batches.Group(e, batches.IsFIFO(queue), s.group)
	if err != nil {
		return "", entry, err
	}
	m, err := s.form.Message(ctx, e, 0)
	if err != nil {
		return "", entry, err
	}
	entry.Bytes = m.Bytes
	entry.Value = types.SendMessageBatchRequestEntry{
		Id: aws.String(strconv.Itoa(i)), MessageBody: &m.Text, MessageGroupId: group, MessageDeduplicationId: deduplication,
		MessageAttributes: make(map[string]types.MessageAttributeValue, len(m.Attributes)),
	}
	for _, a := range m.Attributes {
		entry.Value.MessageAttributes[a.Name] = types.MessageAttributeValue{DataType: &a.Kind, StringValue: &a.Value}
	}
	return queue, entry, nil
}

// send sends one request.
func (s *Sink) send(ctx context.Context, queue string, entries []types.SendMessageBatchRequestEntry) ([]sinks.Result, error) {
	url, err := s.url(ctx, queue)
	if err != nil {
		return nil, err
	}
	var output *sqs.SendMessageBatchOutput
	err = s.client.Call(ctx, codes, func(ctx context.Context, client *sqs.Client) (err error) {
		output, err = client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: entries})
		return err
	})
	if err != nil {
		if isMissing(err) {
			s.urls.Delete(queue) // it may have been made again elsewhere
		}
		return nil, fmt.Errorf("sqs %s: %w", nameOf(queue), err)
	}
	return outcomes(nameOf(queue), entries, output), nil
}

// outcomes returns the result of each entry.
func outcomes(queue string, entries []types.SendMessageBatchRequestEntry, output *sqs.SendMessageBatchOutput) []sinks.Result {
	byID := make(map[string]sinks.Result, len(entries))
	for _, sent := range output.Successful {
		receipt := "sqs " + queue + " " + aws.ToString(sent.MessageId)
		if sent.SequenceNumber != nil {
			receipt += "@" + *sent.SequenceNumber
		}
		byID[aws.ToString(sent.Id)] = sinks.Result{Receipt: notification.Receipt(receipt)}
	}
	for _, failed := range output.Failed {
		err := codes.Error(aws.ToString(failed.Code), aws.ToString(failed.Message), !failed.SenderFault)
		byID[aws.ToString(failed.Id)] = sinks.Result{Err: fmt.Errorf("sqs %s: %w", queue, err)}
	}
	results := make([]sinks.Result, len(entries))
	for i, e := range entries {
		var known bool
		if results[i], known = byID[*e.Id]; !known {
			results[i].Err = sinks.Unavailable(fmt.Errorf("sqs %s: the answer lacks the message", queue))
		}
	}
	return results
}

// url returns the URL of a queue that the configuration names. SQS knows those of names.
func (s *Sink) url(ctx context.Context, queue string) (string, error) {
	if isURL(queue) {
		return queue, nil
	}
	if url, known := s.urls.Load(queue); known {
		return url.(string), nil
	}
	in := &sqs.GetQueueUrlInput{QueueName: aws.String(nameOf(queue))}
	if parts := legalARN.FindStringSubmatch(queue); parts != nil {
		in.QueueOwnerAWSAccountId = &parts[1]
	}
	var url string
	err := s.client.Call(ctx, codes, func(ctx context.Context, client *sqs.Client) error {
		out, err := client.GetQueueUrl(ctx, in)
		if err == nil {
			url = aws.ToString(out.QueueUrl)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("sqs %s: its URL: %w", nameOf(queue), access.Lookup("sqs:GetQueueUrl", err))
	}
	s.urls.Store(queue, url)
	return url, nil
}

// CheckHealth asks SQS for the queue's attributes, and checks the store of large bodies. If the queue comes from data, it
// only checks the credentials.
func (s *Sink) CheckHealth(ctx context.Context) error {
	if err := s.form.Large.CheckHealth(ctx); err != nil {
		return err
	}
	if naming.IsTemplate(s.config.Queue) {
		return s.client.Call(ctx, codes, func(context.Context, *sqs.Client) error { return nil })
	}
	url, err := s.url(ctx, s.config.Queue)
	if err != nil {
		return err
	}
	return access.Lookup("sqs:GetQueueAttributes", s.client.Call(ctx, codes, func(ctx context.Context, client *sqs.Client) error {
		_, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn}})
		return err
	}))
}

// Close closes the connections.
func (s *Sink) Close(context.Context) error {
	s.client.Close()
	return nil
}
