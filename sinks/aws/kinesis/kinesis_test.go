package kinesis_test

import (
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
