package kinesis_test

import (
	"context"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/aws/access"
	"github.com/waybill-go/waybill/sinks/aws/awstest"
	"github.com/waybill-go/waybill/sinks/aws/internal/kindtest"
	"github.com/waybill-go/waybill/sinks/aws/kinesis"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestMain(m *testing.M) { os.Exit(awstest.Main(m)) }

func TestConformance(t *testing.T) {
	server := awstest.InTurn(t, awstest.Moto(t))
	kindtest.Run(t, kindtest.Subject{
		Kind:   kinesis.Kind(),
		Server: server,
		New: func(t *testing.T) (string, func(*testing.T) []notification.Envelope) {
			stream := newStream(t, server)
			return "stream: " + stream, func(t *testing.T) (all []notification.Envelope) {
				for _, r := range recordsOf(t, server, stream) {
					all = append(all, awstest.Whole(t, string(r.Data)))
				}
				return all
			}
		},
		Refused: func(n int) *notification.Delivery {
			d := sinktest.NewDelivery(n)
			d.Payload = []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
			return d
		},
		Partly:  awstest.Edit(server, failSome),
		Ordered: true,
	})
}

var made atomic.Int64

// newStream makes a stream with one shard.
func newStream(t testing.TB, server string) string {
	t.Helper()
	client := awskinesis.NewFromConfig(awstest.Config(server))
	stream := "stream-" + strconv.FormatInt(made.Add(1), 10)
	_, err := client.CreateStream(t.Context(), &awskinesis.CreateStreamInput{StreamName: &stream, ShardCount: aws.Int32(1)})
	require.NoError(t, err)
	require.NoError(t, awskinesis.NewStreamExistsWaiter(client).Wait(t.Context(), &awskinesis.DescribeStreamInput{StreamName: &stream}, time.Minute))
	return stream
}

// recordsOf returns all records of a stream.
func recordsOf(t testing.TB, server, stream string) (all []types.Record) {
	t.Helper()
	client := awskinesis.NewFromConfig(awstest.Config(server))
	shards, err := client.ListShards(t.Context(), &awskinesis.ListShardsInput{StreamName: &stream})
	require.NoError(t, err)
	at, err := client.GetShardIterator(t.Context(), &awskinesis.GetShardIteratorInput{
		StreamName: &stream, ShardId: shards.Shards[0].ShardId, ShardIteratorType: types.ShardIteratorTypeTrimHorizon,
	})
	require.NoError(t, err)
	for next := at.ShardIterator; ; {
		out, err := client.GetRecords(t.Context(), &awskinesis.GetRecordsInput{ShardIterator: next})
		require.NoError(t, err)
		if len(out.Records) == 0 {
			return all
		}
		all, next = append(all, out.Records...), out.NextShardIterator
	}
}

// failSome makes every other record of PutRecords fail.
func failSome(request map[string]any) func(map[string]any) {
	records, _ := request["Records"].([]any)
	if len(records) < 2 {
		return nil
	}
	var kept []any
	for i, r := range records {
		if i%2 == 0 {
			kept = append(kept, r)
		}
	}
	request["Records"] = kept
	return func(answer map[string]any) {
		its, _ := answer["Records"].([]any)
		var all []any
		for i := range records {
			if i%2 == 0 {
				all = append(all, its[i/2])
			} else {
				all = append(all, map[string]any{"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "slow down"})
			}
		}
		answer["Records"], answer["FailedRecordCount"] = all, len(records)-len(kept)
	}
}

func TestCodesHaveTheirClasses(t *testing.T) {
	stream := newStream(t, awstest.Moto(t))
	for code, want := range map[string]sinks.Class{
		"ProvisionedThroughputExceededException": sinks.ClassThrottled, "KMSThrottlingException": sinks.ClassThrottled, "LimitExceededException": sinks.ClassThrottled,
		"ResourceNotFoundException": sinks.ClassUnavailable, "ResourceInUseException": sinks.ClassUnavailable, "AccessDeniedException": sinks.ClassUnavailable,
		"KMSDisabledException": sinks.ClassUnavailable, "KMSInvalidStateException": sinks.ClassUnavailable, "KMSAccessDeniedException": sinks.ClassUnavailable,
		"KMSNotFoundException": sinks.ClassUnavailable, "KMSOptInRequired": sinks.ClassUnavailable, "InternalFailureException": sinks.ClassUnavailable,
		"InvalidArgumentException": sinks.ClassTransient, "ValidationException": sinks.ClassTransient, "SomethingNew": sinks.ClassTransient,
	} {
		status := http.StatusBadRequest
		if code == "InternalFailureException" {
			status = http.StatusInternalServerError
		}
		sink, proxy := newSink(t, stream, nil)
		proxy.Break(awstest.Refuse(status, code))
		_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
		require.Equal(t, want, sinktest.Class(err), "%s: %v", code, err)
		require.ErrorContains(t, err, stream)
	}
	for _, code := range []string{"ProvisionedThroughputExceededException", "InternalFailure"} {
		sink, proxy := newSink(t, stream, nil)
		proxy.Break(awstest.Edit(awstest.Moto(t), func(map[string]any) func(map[string]any) {
			return func(answer map[string]any) {
				answer["Records"] = []any{map[string]any{"ErrorCode": code, "ErrorMessage": "because of a test"}}
			}
		}))
		_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
		want := sinks.ClassUnavailable
		if code != "InternalFailure" {
			want = sinks.ClassThrottled
		}
		require.Equal(t, want, sinktest.Class(err), "%v", err)
	}
}

// newSink makes a sink behind a proxy.
func newSink(t *testing.T, stream string, set func(*kinesis.Config)) (*kinesis.Sink, *awstest.Proxy) {
	t.Helper()
	proxy := awstest.NewProxy(t, awstest.Moto(t))
	c := kinesis.Config{Stream: stream, Access: access.Config{Region: awstest.Region, Endpoint: proxy.URL}}
	if set != nil {
		set(&c)
	}
	sink, err := kinesis.New(sinks.Instance{Name: "orders"}, c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sink.Close(context.WithoutCancel(t.Context()))) })
	return sink, proxy
}

func TestARecordHasItsKey(t *testing.T) {
	stream := newStream(t, awstest.Moto(t))
	sink, _ := newSink(t, "arn:aws:kinesis:eu-central-1:123456789012:stream/"+stream, func(c *kinesis.Config) { c.Body.Format = "payload" })
	require.NoError(t, sink.CheckHealth(t.Context()))
	keyed, keyless, long := sinktest.NewDelivery(1), sinktest.NewDelivery(2), sinktest.NewDelivery(3)
	keyless.Key, long.Key, long.Payload = "", strings.Repeat("ü", 257), []byte{0, 0xff}
	for _, d := range []*notification.Delivery{keyed, keyless, long} {
		receipt, err := sink.Deliver(t.Context(), d)
		require.NoError(t, err)
		require.Regexp(t, "^kinesis "+stream+"/shardId-0+@[0-9]+$", string(receipt))
	}
	records := recordsOf(t, awstest.Moto(t), stream)
	require.Equal(t, keyed.Key, *records[0].PartitionKey)
	require.Equal(t, keyless.ID, *records[1].PartitionKey)
	require.Regexp(t, "^[0-9a-f]{64}$", *records[2].PartitionKey)
	require.Equal(t, long.Payload, records[2].Data)
}

func TestMistakesNameTheirKey(t *testing.T) {
	for text, change := range map[string]func(*kinesis.Config){
		"stream: is missing":       func(c *kinesis.Config) { c.Stream = "" },
		`stream: "a b" is neither`: func(c *kinesis.Config) { c.Stream = "a b" },
		"max_bytes: 1 is outside":  func(c *kinesis.Config) { c.MaxBytes = 1 },
		"is in the region us-east-1": func(c *kinesis.Config) {
			c.Stream, c.Access.Region = "arn:aws:kinesis:us-east-1:123456789012:stream/orders", "eu-central-1"
		},
		"encoding: is for format":       func(c *kinesis.Config) { c.Encoding.Format = "avro" },
		"secret_access_key: is missing": func(c *kinesis.Config) { c.Access.AccessKeyID = "a" },
	} {
		c := kinesis.Config{Stream: "orders"}
		change(&c)
		_, err := kinesis.New(sinks.Instance{}, c)
		require.ErrorContains(t, err, text)
	}
}

// BenchmarkDrain sends batches of 500 to moto from 8 goroutines.
func BenchmarkDrain(b *testing.B) {
	server := awstest.InTurn(b, awstest.Moto(b))
	sink, err := kinesis.New(sinks.Instance{}, kinesis.Config{Stream: newStream(b, server), Access: access.Config{Region: awstest.Region, Endpoint: server}})
	require.NoError(b, err)
	kindtest.Drain(b, sink, 500)
}
