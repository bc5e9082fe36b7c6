package watermill

import (
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/eapache/go-resiliency/breaker"
	pkgerrors "github.com/pkg/errors"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waybill-go/waybill/sinks/kafka"
)

// The tests of sinks/kafka run with this client, too.

func TestErrorsAreThoseOfTheSink(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]error{
		sarama.ConfigurationError("larger than Producer.MaxMessageBytes"):    kafka.ErrTooLarge,
		sarama.PacketEncodingError{Info: "a string of more than 2^15 bytes"}: kafka.ErrTooLarge,
		breaker.ErrBreakerOpen:                    breaker.ErrBreakerOpen,
		sarama.ErrOutOfBrokers:                    sarama.ErrOutOfBrokers,
		sarama.PacketDecodingError{Info: "other"}: sarama.PacketDecodingError{Info: "other"},
	} {
		got := kafkaError(pkgerrors.Wrapf(err, "cannot produce message %s", "id")) // as the publisher does
		require.ErrorIs(t, got, want)
		require.ErrorIs(t, got, err)
	}
	for code := int16(-1); code < 120; code++ {
		if code != 0 {
			require.ErrorIs(t, kafkaError(pkgerrors.Wrap(sarama.KError(code), "cannot produce")), kerr.ErrorForCode(code))
		}
	}
}

func TestAMessageThatTheSinkDidNotMakeIsRefused(t *testing.T) {
	t.Parallel()
	_, err := marshaler{}.Marshal("orders", message.NewMessage("id", nil))
	require.Error(t, err)
}
