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
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/sinks"
)

func TestEachErrorHasItsClass(t *testing.T) {
	t.Parallel()
	const (
		permanent, invalid, transient, unavailable = sinks.ClassPermanent, sinks.ClassInvalid, sinks.ClassTransient, sinks.ClassUnavailable
	)
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		err error
		// configured is the class for a topic from the configuration, fromData for a topic from
		// data.
		configured, fromData sinks.Class
	}{
		{sarama.ErrMessageSizeTooLarge, permanent, permanent},
		{sarama.ErrMessageSetSizeTooLarge, permanent, permanent},
		{sarama.ErrInvalidRecord, permanent, permanent},
		{sarama.ErrInvalidTimestamp, permanent, permanent},
		{sarama.ConfigurationError("larger than Producer.MaxMessageBytes"), invalid, invalid},
		{sarama.PacketEncodingError{Info: "a string of more than 2^15 bytes"}, invalid, invalid},

		{sarama.ErrInvalidTopic, unavailable, permanent},

		{sarama.ErrUnknownTopicOrPartition, unavailable, transient},
		{sarama.ErrTopicAuthorizationFailed, unavailable, transient},
		{sarama.ErrInvalidPartitions, unavailable, transient},
		{sarama.ErrInvalidReplicationFactor, unavailable, transient},
		{sarama.ErrUnsupportedForMessageFormat, unavailable, transient},

		{sarama.ErrOutOfBrokers, unavailable, unavailable},
		{sarama.Wrap(sarama.ErrOutOfBrokers, refused), unavailable, unavailable},
		{sarama.ErrClosedClient, unavailable, unavailable},
		{sarama.ErrNotConnected, unavailable, unavailable},
		{sarama.ErrShuttingDown, unavailable, unavailable},
		{sarama.ErrBrokerNotFound, unavailable, unavailable},
		{sarama.ErrInsufficientData, unavailable, unavailable},
		{sarama.PacketDecodingError{Info: "not Kafka's protocol"}, unavailable, unavailable},
		{sarama.ErrLeaderNotAvailable, unavailable, unavailable},
		{sarama.ErrNotLeaderForPartition, unavailable, unavailable},
		{sarama.ErrFencedLeaderEpoch, unavailable, unavailable},
		{sarama.ErrUnknownLeaderEpoch, unavailable, unavailable},
		{sarama.ErrNotController, unavailable, unavailable},
		{sarama.ErrBrokerNotAvailable, unavailable, unavailable},
		{sarama.ErrReplicaNotAvailable, unavailable, unavailable},
		{sarama.ErrNotEnoughReplicas, unavailable, unavailable},
		{sarama.ErrNotEnoughReplicasAfterAppend, unavailable, unavailable},
		{sarama.ErrRequestTimedOut, unavailable, unavailable},
		{sarama.ErrNetworkException, unavailable, unavailable},
		{sarama.ErrKafkaStorageError, unavailable, unavailable},
		{sarama.ErrOffsetsLoadInProgress, unavailable, unavailable},
		{sarama.ErrConsumerCoordinatorNotAvailable, unavailable, unavailable},
		{sarama.ErrNotCoordinatorForConsumer, unavailable, unavailable},
		{sarama.ErrClusterAuthorizationFailed, unavailable, unavailable},
		{sarama.ErrTransactionalIDAuthorizationFailed, unavailable, unavailable},
		{sarama.ErrSASLAuthenticationFailed, unavailable, unavailable},
		{sarama.ErrUnsupportedSASLMechanism, unavailable, unavailable},
		{sarama.ErrIllegalSASLState, unavailable, unavailable},
		{sarama.ErrUnsupportedVersion, unavailable, unavailable},
		{sarama.ErrInvalidRequest, unavailable, unavailable},
		{sarama.ErrInvalidRequiredAcks, unavailable, unavailable},
		{sarama.ErrUnsupportedCompressionType, unavailable, unavailable},
		{sarama.ErrOutOfOrderSequenceNumber, unavailable, unavailable},
		{sarama.ErrUnknownProducerID, unavailable, unavailable},
		{sarama.ErrInvalidProducerEpoch, unavailable, unavailable},
		{sarama.ErrInvalidProducerIDMapping, unavailable, unavailable},
		{sarama.ErrProducerFenced, unavailable, unavailable},
		{breaker.ErrBreakerOpen, unavailable, unavailable},
		{refused, unavailable, unavailable},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, unavailable, unavailable},
		{io.EOF, unavailable, unavailable},
		{io.ErrUnexpectedEOF, unavailable, unavailable},
		{net.ErrClosed, unavailable, unavailable},
		{ErrClosed, unavailable, unavailable},

		{sarama.ErrInvalidMessage, transient, transient},
		{sarama.ErrPolicyViolation, transient, transient},
		{sarama.ErrUnknown, transient, transient},
		{kerr.UnknownServerError, transient, transient},

		{errors.New("something else"), unavailable, unavailable},
		{sarama.ErrIncompleteResponse, unavailable, unavailable},
		{breaker.ErrBreakerOpen, unavailable, unavailable},
		{kgo.ErrRecordRetries, unavailable, unavailable},
		{ErrTooLarge, invalid, invalid},
		{ErrTimestamp, invalid, invalid},
		{kerr.MessageTooLarge, permanent, permanent},
		{kerr.UnknownTopicID, unavailable, transient},
	} {
		t.Run(fmt.Sprintf("%T %v", c.err, c.err), func(t *testing.T) {
			// Watermill's publisher returns the error like this.
			err := pkgerrors.Wrapf(c.err, "cannot produce message %s", "id")
			for origin, want := range map[origin]sinks.Class{configured: c.configured, fromData: c.fromData} {
				err := classify(origin, "orders", kafkaError(err))
				class, _ := sinks.Classify(err)
				assert.Equal(t, want, class, "%v", origin)
				assert.ErrorIs(t, err, c.err)
				assert.ErrorContains(t, err, "topic orders")
			}
		})
	}
}

// Any other error of a broker is not permanent.
func TestOnlyErrorsAboutTheRecordArePermanent(t *testing.T) {
	t.Parallel()
	permanent := map[origin][]error{}
	for code := int16(-1); code < 200; code++ {
		err := kerr.ErrorForCode(code)
		for _, origin := range []origin{configured, fromData} {
			if class, _ := sinks.Classify(classify(origin, "orders", err)); class == sinks.ClassPermanent {
				permanent[origin] = append(permanent[origin], err)
			}
		}
	}
	record := []error{kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidTimestamp, kerr.InvalidRecord}
	assert.ElementsMatch(t, record, permanent[configured])
	assert.ElementsMatch(t, append(record, kerr.InvalidTopicException), permanent[fromData])
}

func TestErrorsWhileConnectingAreUnavailable(t *testing.T) {
	t.Parallel()
	for _, met := range []error{errors.New("something else"), kerr.UnknownTopicOrPartition, kerr.InvalidTopicException} {
		err := notConnected("orders", met)
		class, _ := sinks.Classify(err)
		assert.Equal(t, sinks.ClassUnavailable, class)
		assert.ErrorIs(t, err, ErrNotConnected)
		assert.ErrorIs(t, err, met)
	}
}

func TestAMessageThatTheSinkDidNotMakeIsRefused(t *testing.T) {
	t.Parallel()
	_, err := marshaler{}.Marshal("orders", message.NewMessage("id", nil))
	assert.Error(t, err)
}

func TestTheReceiptOfADuplicateHasNoOffset(t *testing.T) {
	t.Parallel()
	p := &publication{topic: "orders", record: kgo.Record{Partition: 3, Offset: noOffset}}
	assert.EqualValues(t, "kafka orders/3", p.receipt())
	p.record.Offset = 1042
	assert.EqualValues(t, "kafka orders/3@1042", p.receipt())
}
