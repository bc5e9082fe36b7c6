// Package sns publishes each notification as a message to a topic of Amazon SNS. Give the sink to a forwarder, or to
// Outbox.Deliver of package waybill; in waybill.yaml it is of kind sns.
//
// # The message
//
// The body is the payload, or what Format says. Message attributes of the type String are id, type, version, occurred-on
// and, if the notification has one, key, and the listed metadata; filter policies of subscriptions can use them. In a
// FIFO topic the message group is the ordering key, or the id of a notification without one, and the deduplication id is
// the notification's id. SNS limits both to 128 characters of ASCII without spaces; of any other text the sink sends the
// SHA-256 in hexadecimal.
//
// # Order
//
// A batch has at most one message of a key, since SNS may publish some messages of a request and refuse others. The next
// one of the key is sent when the request has ended. So a message that fails holds back only its key.
//
// # Errors
//
// docs/sinks-aws.md says how error codes are handled. If the topic comes from data, a topic that does not exist or
// refuses access makes only its own messages wait: the sink is a [sinks.Addresser].
package sns

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/aws/access"
	"github.com/waybill-go/waybill/sinks/aws/internal/batches"
	"github.com/waybill-go/waybill/sinks/internal/naming"
)

// Kind is the sink kind sns.
func Kind() sinks.Kind {
	return sinks.NewKind("sns", "a message to a topic of Amazon SNS for each notification",
		func(in sinks.Instance, c Config) (sinks.Sink, error) { return New(in, c) }, answers...)
}

// Sink publishes deliveries to one topic, or to those that its template names. Its methods are safe for concurrent use.
type Sink struct {
	config                Config
	topic, subject, group naming.Name
	form                  batches.Form
	client                *access.Client[*clients]
}

// clients are those of a session, and what it knows of its account.
type clients struct {
	sns    *sns.Client
	sts    *sts.Client
	region string
	prefix atomic.Pointer[string] // of the ARNs of its topics; nil: not asked yet
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
	if s.topic, err = naming.New(c.Topic, c.checkTopic); err != nil {
		return nil, err
	}
	if s.subject, err = naming.New(c.Subject, checkSubject); err != nil {
		return nil, err
	}
	if s.group, err = naming.New(c.Group, anyGroup); err != nil {
		return nil, err
	}
	bodies, err := c.Large.Open(in, c.MaxBytes)
	if err != nil {
		return nil, err
	}
	s.form = batches.Form{Body: c.Body, Large: bodies, MaxBytes: c.MaxBytes}
	s.client = access.NewClient(in, c.Access, func(conf aws.Config) *clients {
		return &clients{sns: sns.NewFromConfig(conf), sts: sts.NewFromConfig(conf), region: conf.Region}
	})
	return s, nil
}

// Deliver publishes one message, and returns the receipt "sns TOPIC MESSAGE-ID", and in a FIFO topic @ and the sequence
// number after it.
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	result := s.DeliverBatch(ctx, []*notification.Delivery{d})[0]
	return result.Receipt, result.Err
}

// BatchLimits returns that a batch has up to 10 deliveries, and does not wait.
func (s *Sink) BatchLimits() sinks.BatchLimits { return sinks.BatchLimits{Size: maxEntries} }

// Destination returns the topic if it comes from data, and otherwise "".
func (s *Sink) Destination(d *notification.Delivery) string {
	return naming.Destination(s.config.Topic, s.topic, d.Envelope)
}

// DeliverBatch publishes the messages of a topic in as few requests as their sizes permit.
func (s *Sink) DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	return batches.Deliver(ctx, batch, batches.Limits{Entries: maxEntries, Bytes: s.config.MaxBytes}, s.entry, s.send)
}

// entry makes the entry of a request. Its errors have a class.
func (s *Sink) entry(ctx context.Context, i int, e *notification.Envelope) (topic string, entry batches.Entry[types.PublishBatchRequestEntry], err error) {
	if topic, err = s.topic(e); err != nil {
		return "", entry, sinks.Invalid(fmt.Errorf("topic: %w", err))
	}
	subject, err := s.subject(e)
	if err != nil {
		return "", entry, sinks.Invalid(fmt.Errorf("subject: %w", err))
	}
	group, deduplication, err := batches.Group(e, batches.IsFIFO(topic), s.group)
	if err != nil {
		return "", entry, err
	}
	m, err := s.form.Message(ctx, e, len(subject))
	if err != nil {
		return "", entry, err
	}
	entry.Bytes = m.Bytes
	entry.Value = types.PublishBatchRequestEntry{
		Id: aws.String(strconv.Itoa(i)), Message: &m.Text, MessageGroupId: group, MessageDeduplicationId: deduplication,
		MessageAttributes: make(map[string]types.MessageAttributeValue, len(m.Attributes)),
	}
	if subject != "" {
		entry.Value.Subject = &subject
	}
	for _, a := range m.Attributes {
		entry.Value.MessageAttributes[a.Name] = types.MessageAttributeValue{DataType: &a.Kind, StringValue: &a.Value}
	}
	return topic, entry, nil
}

// send sends one request.
func (s *Sink) send(ctx context.Context, topic string, entries []types.PublishBatchRequestEntry) ([]sinks.Result, error) {
	var output *sns.PublishBatchOutput
	err := s.client.Call(ctx, codes, func(ctx context.Context, c *clients) error {
		arn, err := c.arn(ctx, topic)
		if err != nil {
			return err
		}
		output, err = c.sns.PublishBatch(ctx, &sns.PublishBatchInput{TopicArn: &arn, PublishBatchRequestEntries: entries})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sns %s: %w", nameOf(topic), err)
	}
	return outcomes(nameOf(topic), entries, output), nil
}

// arn returns the ARN of a topic that the configuration names.
func (c *clients) arn(ctx context.Context, topic string) (string, error) {
	if isARN(topic) {
		return topic, nil
	}
	prefix := c.prefix.Load()
	if prefix == nil {
		caller, err := c.sts.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{}) // needs no right
		if err != nil {
			return "", fmt.Errorf("the account of the credentials: %w", access.Lookup("sts:GetCallerIdentity", codes.Classify(err)))
		}
		_, partition, _ := strings.Cut(aws.ToString(caller.Arn), ":")
		partition, _, _ = strings.Cut(partition, ":")
		prefix = aws.String(fmt.Sprintf("arn:%s:sns:%s:%s:", partition, c.region, aws.ToString(caller.Account)))
		c.prefix.Store(prefix)
	}
	return *prefix + topic, nil
}

// outcomes returns the result of each entry.
func outcomes(topic string, entries []types.PublishBatchRequestEntry, output *sns.PublishBatchOutput) []sinks.Result {
	byID := make(map[string]sinks.Result, len(entries))
	for _, sent := range output.Successful {
		receipt := "sns " + topic + " " + aws.ToString(sent.MessageId)
		if sent.SequenceNumber != nil {
			receipt += "@" + *sent.SequenceNumber
		}
		byID[aws.ToString(sent.Id)] = sinks.Result{Receipt: notification.Receipt(receipt)}
	}
	for _, failed := range output.Failed {
		err := codes.Error(aws.ToString(failed.Code), aws.ToString(failed.Message), !failed.SenderFault)
		byID[aws.ToString(failed.Id)] = sinks.Result{Err: fmt.Errorf("sns %s: %w", topic, err)}
	}
	results := make([]sinks.Result, len(entries))
	for i, e := range entries {
		var known bool
		if results[i], known = byID[*e.Id]; !known {
			results[i].Err = sinks.Unavailable(fmt.Errorf("sns %s: the answer lacks the message", topic))
		}
	}
	return results
}

// CheckHealth asks SNS for the topic's attributes, and checks the store of large bodies. If the topic comes from data, it
// only checks the credentials.
func (s *Sink) CheckHealth(ctx context.Context) error {
	if err := s.form.Large.CheckHealth(ctx); err != nil {
		return err
	}
	if naming.IsTemplate(s.config.Topic) {
		return s.client.Call(ctx, codes, func(context.Context, *clients) error { return nil })
	}
	return access.Lookup("sns:GetTopicAttributes", s.client.Call(ctx, codes, func(ctx context.Context, c *clients) error {
		arn, err := c.arn(ctx, s.config.Topic)
		if err != nil {
			return err
		}
		_, err = c.sns.GetTopicAttributes(ctx, &sns.GetTopicAttributesInput{TopicArn: &arn})
		return err
	}))
}

// Close ends the calls in flight, and closes the connections.
func (s *Sink) Close(context.Context) error {
	s.client.Close()
	return nil
}
