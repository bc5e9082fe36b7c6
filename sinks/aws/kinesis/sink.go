// Package kinesis writes each notification as a record to a stream of Amazon Kinesis Data Streams. Give the sink to a
// forwarder, or to Outbox.Deliver of package waybill; in waybill.yaml it is of kind kinesis.
//
// # The record
//
// Records have no headers, so that the data is JSON of the whole notification, or what Format says. The partition key is
// the ordering key, or the id of a notification without one, and the SHA-256 in hexadecimal of a longer one than
// Kinesis accepts, which is 256 characters.
//
// # Order
//
// Kinesis may store some records of a request and refuse others, so that a batch has at most one record of a key. The
// next one is sent when the request has ended, and gets a higher sequence number. A record that is throttled is sent
// again, and holds back only its key. After a shard was split or merged, consumers keep the order if they read the parents
// first, as Amazon's client library does.
//
// # Errors
//
// docs/sinks-aws.md lists the error codes and their classes. If the stream comes from data, a stream that does not exist
// or refuses access makes only its own records wait: the sink is a [sinks.Addresser].
package kinesis

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/aws/access"
	"github.com/waybill-go/waybill/sinks/aws/internal/batches"
	"github.com/waybill-go/waybill/sinks/encoding"
	"github.com/waybill-go/waybill/sinks/internal/naming"
	"github.com/waybill-go/waybill/sinks/large"
)

// Kind is the sink kind kinesis.
func Kind() sinks.Kind {
	return sinks.NewKind("kinesis", "a record in a stream of Amazon Kinesis for each notification",
		func(in sinks.Instance, c Config) (sinks.Sink, error) { return New(in, c) }, answers...)
}

// Sink writes deliveries to one stream, or to those that its template names. Its methods are safe for concurrent use.
type Sink struct {
	config  Config
	stream  naming.Name
	encoder *encoding.Encoder // nil if payloads are written as they are
	large   *large.Bodies
	client  *access.Client[*kinesis.Client]
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
	if s.stream, err = naming.New(c.Stream, c.checkStream); err != nil {
		return nil, err
	}
	if s.large, err = c.Large.Open(in, c.MaxBytes); err != nil {
		return nil, err
	}
	if c.Encoding.Enabled() {
		if s.encoder, err = encoding.New(in, c.Encoding); err != nil {
			return nil, err
		}
	}
	s.client = access.NewClient(in, c.Access, func(conf aws.Config) *kinesis.Client { return kinesis.NewFromConfig(conf) })
	return s, nil
}

// Deliver writes one record, and returns its place as the receipt: "kinesis STREAM/SHARD@SEQUENCE-NUMBER".
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	result := s.DeliverBatch(ctx, []*notification.Delivery{d})[0]
	return result.Receipt, result.Err
}

// BatchLimits returns that a batch has up to 500 deliveries, and does not wait.
func (s *Sink) BatchLimits() sinks.BatchLimits { return sinks.BatchLimits{Size: maxEntries} }

// Destination returns the stream if it comes from data, and otherwise "".
func (s *Sink) Destination(d *notification.Delivery) string {
	return naming.Destination(s.config.Stream, s.stream, d.Envelope)
}

// DeliverBatch writes the records of a stream in as few requests as their sizes permit.
func (s *Sink) DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	return batches.Deliver(ctx, batch, batches.Limits{Entries: maxEntries, Bytes: maxRequestBytes}, s.entry, s.put)
}

// entry makes the entry of a request. Its errors have a class.
func (s *Sink) entry(ctx context.Context, _ int, e *notification.Envelope) (stream string, entry batches.Entry[types.PutRecordsRequestEntry], _ error) {
	stream, record, err := s.record(ctx, e)
	if err != nil {
		return "", entry, err
	}
	return stream, batches.Entry[types.PutRecordsRequestEntry]{Value: record, Bytes: size(record)}, nil
}

// record makes a record. Its errors have a class.
func (s *Sink) record(ctx context.Context, e *notification.Envelope) (stream string, r types.PutRecordsRequestEntry, _ error) {
	stream, err := s.stream(e)
	if err != nil {
		return "", r, sinks.Invalid(fmt.Errorf("stream: %w", err))
	}
	r.PartitionKey = aws.String(partitionKey(e))
	if s.encoder != nil {
		if r.Data, err = s.encoder.Encode(ctx, streamName(stream), e); err != nil {
			return "", r, err
		}
	} else {
		r.Data = s.config.Body.Of(e)
	}
	if s.large.IsLarge(r.Data) || s.large != nil && size(r) > s.config.MaxBytes {
		if r.Data, err = s.large.Put(ctx, e.ID, r.Data); err != nil {
			return "", r, err
		}
	}
	if r.Data == nil {
		r.Data = []byte{} // the SDK refuses a record without data
	}
	if n := size(r); n > s.config.MaxBytes {
		return "", r, sinks.Invalid(fmt.Errorf("the record takes %d bytes, max_bytes is %d; large stores larger bodies", n, s.config.MaxBytes))
	}
	return stream, r, nil
}

func partitionKey(e *notification.Envelope) string {
	key := e.Key
	if key == "" {
		key = e.ID
	}
	if !utf8.ValidString(key) || utf8.RuneCountInString(key) > maxPartitionKey {
		return batches.Digest(key)
	}
	return key
}

func size(r types.PutRecordsRequestEntry) int { return len(r.Data) + len(*r.PartitionKey) }

// put sends one request.
func (s *Sink) put(ctx context.Context, stream string, records []types.PutRecordsRequestEntry) ([]sinks.Result, error) {
	in := &kinesis.PutRecordsInput{Records: records, StreamName: &stream}
	if legalARN.MatchString(stream) {
		in.StreamName, in.StreamARN = nil, &stream
	}
	name := streamName(stream)
	results := make([]sinks.Result, len(records))
	err := s.client.Call(ctx, codes, func(ctx context.Context, client *kinesis.Client) error {
		out, err := client.PutRecords(ctx, in)
		if err == nil && len(out.Records) != len(records) {
			err = fmt.Errorf("the answer has %d records, not %d", len(out.Records), len(records))
		}
		if err != nil {
			return err
		}
		for i, r := range out.Records {
			if r.ErrorCode != nil {
				results[i].Err = fmt.Errorf("kinesis %s: %w", name, codes.Error(*r.ErrorCode, aws.ToString(r.ErrorMessage), true))
				continue
			}
			results[i].Receipt = notification.Receipt("kinesis " + name + "/" + aws.ToString(r.ShardId) + "@" + aws.ToString(r.SequenceNumber))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("kinesis %s: %w", name, err)
	}
	return results, nil
}

// CheckHealth asks Kinesis for the stream, and checks the store of large bodies and the schema registry. If the stream
// comes from data, it only checks the credentials.
func (s *Sink) CheckHealth(ctx context.Context) error {
	if err := s.large.CheckHealth(ctx); err != nil {
		return err
	}
	if s.encoder != nil {
		if err := s.encoder.CheckHealth(ctx); err != nil {
			return err
		}
	}
	if naming.IsTemplate(s.config.Stream) {
		return s.client.Call(ctx, codes, func(context.Context, *kinesis.Client) error { return nil })
	}
	in := &kinesis.DescribeStreamSummaryInput{StreamName: &s.config.Stream}
	if legalARN.MatchString(s.config.Stream) {
		in.StreamName, in.StreamARN = nil, &s.config.Stream
	}
	var status types.StreamStatus
	err := s.client.Call(ctx, codes, func(ctx context.Context, client *kinesis.Client) error {
		out, err := client.DescribeStreamSummary(ctx, in)
		if err == nil {
			status = out.StreamDescriptionSummary.StreamStatus
		}
		return err
	})
	if err == nil && status != types.StreamStatusActive && status != types.StreamStatusUpdating {
		err = sinks.Unavailable(fmt.Errorf("the stream is %s", status))
	}
	return access.Lookup("kinesis:DescribeStreamSummary", err)
}

// Close closes the connections.
func (s *Sink) Close(context.Context) error {
	s.client.Close()
	if s.encoder != nil {
		s.encoder.Close()
	}
	return nil
}
