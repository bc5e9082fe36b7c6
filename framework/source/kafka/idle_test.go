package kafka_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// An idle forwarder requests little more than the ends of the partitions.
func TestAnIdleForwarderSendsFewRequests(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	w := newWorld(t, cluster, 3, nil)
	w.write(t, orders(0, 10, 10)...)
	sink := newTaken()
	forward(t, w.open(t), sink)
	sink.await(t, 10)
	time.Sleep(5 * time.Second) // the consumer groups have caught up
	var looks, metadata, commits atomic.Int64
	cluster.Fake.Control(func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.Fake.KeepControl()
		switch request.(type) {
		case *kmsg.ListOffsetsRequest:
			looks.Add(1)
		case *kmsg.MetadataRequest:
			metadata.Add(1)
		case *kmsg.OffsetCommitRequest:
			commits.Add(1)
		}
		return nil, nil, false
	})
	const seconds = 5
	time.Sleep(seconds * time.Second)
	require.LessOrEqual(t, looks.Load(), int64(25*seconds))
	require.LessOrEqual(t, metadata.Load(), int64(2*seconds))
	require.Zero(t, commits.Load(), "positions that did not move are not written")
}
