package kafka_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	kafka "github.com/waybill-go/waybill/framework/source/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// A leader that cannot be reached from here, for example, while the others answer.
func TestALaneWhosePartitionDoesNotAnswerSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Fake(t), 1, nil)
	other := w.cluster.CreateTopic(t, 1, nil)
	w.write(t, orders(0, 3, 1)...)
	s := w.open(t, func(c *kafka.Config) { c.Topics = append(c.Topics, other) })
	_, err := s.Cut(t.Context(), "events", 1, "")
	require.NoError(t, err)
	reader := leased(t, s)
	w.cluster.Fake.ControlKey(int16(kmsg.ListOffsets), func(k kmsg.Request) (kmsg.Response, error, bool) {
		w.cluster.Fake.KeepControl()
		request := k.(*kmsg.ListOffsetsRequest)
		response := request.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, topic := range request.Topics {
			answer := kmsg.NewListOffsetsResponseTopic()
			answer.Topic = topic.Topic
			for _, p := range topic.Partitions {
				partition := kmsg.NewListOffsetsResponseTopicPartition()
				partition.Partition = p.Partition
				if topic.Topic == w.topic {
					partition.ErrorCode = kerr.KafkaStorageError.Code
				}
				answer.Partitions = append(answer.Partitions, partition)
			}
			response.Topics = append(response.Topics, answer)
		}
		return response, nil, true
	})
	_, _, err = readAll(t, s, reader, 10)
	require.ErrorIs(t, err, kerr.KafkaStorageError)
}

func TestALaneWhoseLeaderSendsNothingSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Fake(t), 1, nil)
	w.write(t, orders(0, 3, 1)...)
	w.begun(t)
	s := w.open(t, func(c *kafka.Config) { c.SetTimeout(time.Second) })
	reader := leased(t, s)
	w.cluster.Fake.ControlKey(int16(kmsg.Fetch), func(k kmsg.Request) (kmsg.Response, error, bool) {
		w.cluster.Fake.KeepControl()
		request := k.(*kmsg.FetchRequest)
		response := request.ResponseKind().(*kmsg.FetchResponse)
		answer := kmsg.NewFetchResponseTopic()
		answer.Topic, answer.TopicID = request.Topics[0].Topic, request.Topics[0].TopicID
		answer.Partitions = append(answer.Partitions, kmsg.NewFetchResponseTopicPartition())
		response.Topics = append(response.Topics, answer)
		return response, nil, true
	})
	_, _, err := readAll(t, s, reader, 10)
	require.ErrorContains(t, err, "the leader has sent nothing for 1s")
}
