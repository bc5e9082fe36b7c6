package kafka

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/eapache/go-resiliency/breaker"
	pkgerrors "github.com/pkg/errors"
	"github.com/stretchr/testify/assert"

	"github.com/waybill-go/waybill/sinks"
)

func TestEachErrorHasItsClass(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		err  error
		want sinks.Class
	}{
		{sarama.ErrMessageSizeTooLarge, sinks.ClassPermanent},
		{sarama.ErrMessageSetSizeTooLarge, sinks.ClassPermanent},
		{sarama.ErrUnknownTopicOrPartition, sinks.ClassPermanent},
		{sarama.ErrInvalidTopic, sinks.ClassPermanent},
		{sarama.ErrInvalidRecord, sinks.ClassPermanent},
		{sarama.ErrInvalidTimestamp, sinks.ClassPermanent},
		{sarama.ConfigurationError("larger than Producer.MaxMessageBytes"), sinks.ClassPermanent},
		{sarama.PacketEncodingError{Info: "a string of more than 2^15 bytes"}, sinks.ClassPermanent},

		{sarama.ErrOutOfBrokers, sinks.ClassUnavailable},
		{sarama.Wrap(sarama.ErrOutOfBrokers, refused), sinks.ClassUnavailable},
		{sarama.ErrClosedClient, sinks.ClassUnavailable},
		{sarama.ErrNotConnected, sinks.ClassUnavailable},
		{sarama.ErrShuttingDown, sinks.ClassUnavailable},
		{sarama.ErrBrokerNotFound, sinks.ClassUnavailable},
		{sarama.ErrInsufficientData, sinks.ClassUnavailable},
		{sarama.PacketDecodingError{Info: "not Kafka's protocol"}, sinks.ClassUnavailable},
		{sarama.ErrLeaderNotAvailable, sinks.ClassUnavailable},
		{sarama.ErrNotLeaderForPartition, sinks.ClassUnavailable},
		{sarama.ErrBrokerNotAvailable, sinks.ClassUnavailable},
		{sarama.ErrReplicaNotAvailable, sinks.ClassUnavailable},
		{sarama.ErrNetworkException, sinks.ClassUnavailable},
		{sarama.ErrKafkaStorageError, sinks.ClassUnavailable},
		{sarama.ErrOffsetsLoadInProgress, sinks.ClassUnavailable},
		{sarama.ErrConsumerCoordinatorNotAvailable, sinks.ClassUnavailable},
		{sarama.ErrNotCoordinatorForConsumer, sinks.ClassUnavailable},
		{sarama.ErrTopicAuthorizationFailed, sinks.ClassUnavailable},
		{sarama.ErrClusterAuthorizationFailed, sinks.ClassUnavailable},
		{sarama.ErrSASLAuthenticationFailed, sinks.ClassUnavailable},
		{sarama.ErrUnsupportedSASLMechanism, sinks.ClassUnavailable},
		{sarama.ErrUnsupportedVersion, sinks.ClassUnavailable},
		{sarama.ErrUnsupportedCompressionType, sinks.ClassUnavailable},
		{breaker.ErrBreakerOpen, sinks.ClassUnavailable},
		{refused, sinks.ClassUnavailable},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, sinks.ClassUnavailable},
		{io.EOF, sinks.ClassUnavailable},
		{io.ErrUnexpectedEOF, sinks.ClassUnavailable},
		{net.ErrClosed, sinks.ClassUnavailable},
		{ErrClosed, sinks.ClassUnavailable},

		{sarama.ErrRequestTimedOut, sinks.ClassTransient},
		{sarama.ErrNotEnoughReplicas, sinks.ClassTransient},
		{sarama.ErrNotEnoughReplicasAfterAppend, sinks.ClassTransient},
		{sarama.ErrInvalidMessage, sinks.ClassTransient},
		{sarama.ErrOutOfOrderSequenceNumber, sinks.ClassTransient},
		{sarama.ErrUnknownProducerID, sinks.ClassTransient},
		{sarama.ErrIncompleteResponse, sinks.ClassTransient},
		{sarama.ErrUnknown, sinks.ClassTransient},
		{errors.New("something else"), sinks.ClassTransient},
	} {
		t.Run(fmt.Sprintf("%T %v", c.err, c.err), func(t *testing.T) {
			// As Watermill's publisher hands it on.
			err := classify("orders", pkgerrors.Wrapf(c.err, "cannot produce message %s", "id"))
			class, _ := sinks.Classify(err)
			assert.Equal(t, c.want, class)
			assert.ErrorIs(t, err, c.err)
			assert.ErrorContains(t, err, "topic orders")
		})
	}
}

func TestWhileConnectingNothingIsTransient(t *testing.T) {
	class, _ := sinks.Classify(classifyConnect("orders", errors.New("something else")))
	assert.Equal(t, sinks.ClassUnavailable, class)
	class, _ = sinks.Classify(classifyConnect("orders", sarama.ErrUnknownTopicOrPartition))
	assert.Equal(t, sinks.ClassPermanent, class)
}

func TestAMessageThatTheSinkDidNotMakeIsRefused(t *testing.T) {
	_, err := marshaler{}.Marshal("orders", message.NewMessage("id", nil))
	assert.Error(t, err)
}

func TestAReceiptHasNoOffsetWhereTheBrokerKnewACopy(t *testing.T) {
	p := &publication{record: sarama.ProducerMessage{Topic: "orders", Partition: 3, Offset: noOffset}}
	assert.EqualValues(t, "kafka orders/3", p.receipt())
	p.record.Offset = 1042
	assert.EqualValues(t, "kafka orders/3@1042", p.receipt())
}
