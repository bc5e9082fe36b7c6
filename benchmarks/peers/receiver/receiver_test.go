package receiver_test

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/benchmarks/peers/receiver"
	"github.com/waybill-go/waybill/benchmarks/peers/workload"
	"github.com/waybill-go/waybill/benchmarks/result"
)

const orders = 3000 // three of each key

// deliver delivers orders to a receiver, one after the other.
type deliver func(t *testing.T, to receiver.Destination, payloads [][]byte)

var ways = map[receiver.Kind]deliver{
	receiver.Nowhere: func(_ *testing.T, to receiver.Destination, payloads [][]byte) {
		for _, p := range payloads {
			to.Take(p)
		}
	},
	receiver.HTTP: func(t *testing.T, to receiver.Destination, payloads [][]byte) {
		for _, p := range payloads {
			response, err := http.Post(to.URL, "application/json", bytes.NewReader(p))
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, response.StatusCode)
			require.NoError(t, response.Body.Close())
		}
	},
	receiver.Kafka: func(t *testing.T, to receiver.Destination, payloads [][]byte) {
		config := sarama.NewConfig()
		config.Producer.Return.Successes = true
		config.Net.MaxOpenRequests = 1
		producer, err := sarama.NewSyncProducer(to.Brokers, config)
		require.NoError(t, err)
		var messages []*sarama.ProducerMessage
		for _, p := range payloads {
			messages = append(messages, &sarama.ProducerMessage{Topic: to.Topic, Partition: 0, Key: sarama.StringEncoder("one key"), Value: sarama.ByteEncoder(p)})
		}
		require.NoError(t, producer.SendMessages(messages))
		require.NoError(t, producer.Close())
	},
}

func TestReceiversFindLostRepeatedAndMisorderedOrders(t *testing.T) {
	t.Parallel()
	whole := make([][]byte, orders)
	for number := range whole {
		whole[number] = workload.New(number).JSON()
	}
	with := func(change func(payloads [][]byte) [][]byte) [][]byte {
		return change(append([][]byte(nil), whole...))
	}
	cases := map[string]struct {
		payloads [][]byte
		want     result.Check
	}{
		"all arrive": {whole, result.Check{Arrived: orders}},
		"something else": {
			with(func(p [][]byte) [][]byte { return append(p, []byte(`{"id":"none"}`), workload.New(orders+100).JSON()) }),
			result.Check{Arrived: orders, Unknown: 2},
		},
	}
	for kind, deliver := range ways {
		for name, test := range cases {
			t.Run(string(kind)+"/"+name, func(t *testing.T) {
				t.Parallel()
				r, err := receiver.New(t.Context(), receiver.Config{Kind: kind})
				require.NoError(t, err)
				defer r.Close()
				deliver(t, r.Destination(), test.payloads)
				got, err := r.Check(t.Context(), orders)
				require.NoError(t, err)
				test.want.Expected = orders
				require.Equal(t, test.want, got)
			})
		}
	}
}

func TestExpectIsClosedWhenThatManyHaveArrived(t *testing.T) {
	t.Parallel()
	for kind, deliver := range ways {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			r, err := receiver.New(t.Context(), receiver.Config{Kind: kind})
			require.NoError(t, err)
			defer r.Close()
			both := r.Expect(2)
			deliver(t, r.Destination(), [][]byte{workload.New(0).JSON()})
			require.Eventually(t, func() bool { return r.Arrived() == 1 }, time.Minute, time.Millisecond, "a topic is counted regularly")
			select {
			case <-both:
				t.Fatal("the channel is closed after one of two arrivals")
			default:
			}
			deliver(t, r.Destination(), [][]byte{workload.New(1).JSON()})
			<-both
		})
	}
}

func TestResponsesAreDelayed(t *testing.T) {
	t.Parallel()
	const delay = 20 * time.Millisecond
	for _, kind := range []receiver.Kind{receiver.HTTP, receiver.Kafka} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			r, err := receiver.New(t.Context(), receiver.Config{Kind: kind, Delay: delay})
			require.NoError(t, err)
			defer r.Close()
			began := time.Now()
			ways[kind](t, r.Destination(), [][]byte{workload.New(0).JSON()})
			require.GreaterOrEqual(t, time.Since(began), delay)
		})
	}
}
