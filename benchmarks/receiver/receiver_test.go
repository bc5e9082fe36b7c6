package receiver_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/smtp"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/benchmarks/receiver"
	"github.com/waybill-go/waybill/benchmarks/workload"
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
	receiver.Mail: func(t *testing.T, to receiver.Destination, payloads [][]byte) {
		client, err := smtp.Dial(to.SMTP)
		require.NoError(t, err)
		for _, p := range payloads {
			var order struct{ ID string }
			require.NoError(t, json.Unmarshal(p, &order))
			require.NoError(t, client.Mail("shop@example.com"))
			require.NoError(t, client.Rcpt(receiver.MailAddress(order.ID)))
			content, err := client.Data()
			require.NoError(t, err)
			_, err = content.Write([]byte("Subject: an order\r\n\r\nThank you.\r\n"))
			require.NoError(t, errors.Join(err, content.Close()))
		}
		require.NoError(t, client.Quit())
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
		want     receiver.Verdict
	}{
		"all arrive": {whole, receiver.Verdict{Distinct: orders}},
		"one dropped": {
			with(func(p [][]byte) [][]byte { return append(p[:1234], p[1235:]...) }),
			receiver.Verdict{Distinct: orders - 1},
		},
		"one twice": {
			with(func(p [][]byte) [][]byte { return append(p, p[7]) }),
			receiver.Verdict{Distinct: orders, Repeats: 1},
		},
		"two of a key in the wrong order": {
			with(func(p [][]byte) [][]byte { p[5], p[1005] = p[1005], p[5]; return p }),
			receiver.Verdict{Distinct: orders, Swapped: 1},
		},
		"something else": {
			with(func(p [][]byte) [][]byte { return append(p, []byte(`{"id":"none"}`), workload.New(orders+100).JSON()) }),
			receiver.Verdict{Distinct: orders, Foreign: 2},
		},
	}
	for kind, deliver := range ways {
		for name, test := range cases {
			t.Run(string(kind)+"/"+name, func(t *testing.T) {
				t.Parallel()
				r, err := receiver.New(receiver.Config{Kind: kind, Capacity: orders})
				require.NoError(t, err)
				defer r.Close()
				deliver(t, r.Destination(), test.payloads)
				got, err := r.Verdict(t.Context())
				require.NoError(t, err)
				require.Equal(t, test.want, got)
			})
		}
	}
}

func TestOrdersMadeAtTheSameTimeHaveNoOrder(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		make    func(m *receiver.Made)
		swapped int
	}{
		"one after the other": {func(m *receiver.Made) { m.Begin(5); m.End(5); time.Sleep(time.Millisecond); m.Begin(1005); m.End(1005) }, 1},
		"at the same time":    {func(m *receiver.Made) { m.Begin(5); m.Begin(1005); time.Sleep(time.Millisecond); m.End(5); m.End(1005) }, 0},
		"one has not ended":   {func(m *receiver.Made) { m.Begin(5); m.Begin(1005); m.End(1005) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made := receiver.NewMade(orders)
			test.make(made)
			r, err := receiver.New(receiver.Config{Kind: receiver.Nowhere, Capacity: orders, Made: made})
			require.NoError(t, err)
			for _, number := range []int{1005, 5} {
				r.Destination().Take(workload.New(number).JSON())
			}
			got, err := r.Verdict(t.Context())
			require.NoError(t, err)
			require.Equal(t, receiver.Verdict{Distinct: 2, Swapped: test.swapped}, got)
		})
	}
}

func TestExpectIsClosedWhenThatManyHaveArrived(t *testing.T) {
	t.Parallel()
	for kind, deliver := range ways {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			r, err := receiver.New(receiver.Config{Kind: kind, Capacity: orders})
			require.NoError(t, err)
			defer r.Close()
			both := r.Expect(2)
			deliver(t, r.Destination(), [][]byte{workload.New(0).JSON()})
			require.Equal(t, 1, r.Arrived())
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
	for _, kind := range []receiver.Kind{receiver.HTTP, receiver.Kafka, receiver.Mail} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			r, err := receiver.New(receiver.Config{Kind: kind, Capacity: orders, Delay: delay})
			require.NoError(t, err)
			defer r.Close()
			began := time.Now()
			ways[kind](t, r.Destination(), [][]byte{workload.New(0).JSON()})
			require.GreaterOrEqual(t, time.Since(began), delay)
		})
	}
}

func TestArrivedReturnsTheTimeOfAnArrival(t *testing.T) {
	t.Parallel()
	r, tally := receiver.NewTimed(receiver.Config{Capacity: 2})
	before := time.Now()
	r.Destination().Take(workload.New(1).JSON())
	at, ok := tally.Arrived(1)
	require.True(t, ok)
	require.WithinRange(t, at, before, time.Now())
	_, ok = tally.Arrived(0)
	require.False(t, ok)
}

func TestEachCopyIsCountedSeparately(t *testing.T) {
	t.Parallel()
	r, err := receiver.New(receiver.Config{Kind: receiver.Nowhere, Capacity: orders, Copies: 3})
	require.NoError(t, err)
	takes := r.Destination().Takes
	require.Len(t, takes, 3)
	all := r.Expect(4)
	for _, take := range []int{0, 1, 2, 2, 0} {
		takes[take](workload.New(take / 2).JSON())
	}
	takes[0](workload.New(1).JSON())
	<-all
	got, err := r.Verdict(t.Context())
	require.NoError(t, err)
	require.Equal(t, receiver.Verdict{Distinct: 4, Repeats: 2}, got)
}
