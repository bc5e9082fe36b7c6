package kafka

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/IBM/sarama"
	"github.com/eapache/go-resiliency/breaker"

	"github.com/waybill-go/waybill/sinks"
)

// Errors before a record is sent.
var (
	// ErrTopic is returned for a notification whose topic cannot be made of it.
	ErrTopic = errors.New("topic cannot be used")
	// ErrClosed is returned by a sink whose Close was called.
	ErrClosed = errors.New("kafka sink is closed")
	// ErrNotConnected is returned while there is no connection; it wraps what
	// the last attempt to make one met.
	ErrNotConnected = errors.New("not connected to kafka")
	// ErrHungUp is returned when a broker closed the connection while it was
	// being made.
	ErrHungUp = errors.New("a broker hung up")
)

// verdict is what one of the client's errors means for the engine.
type verdict struct {
	err   error
	class sinks.Class
	// hint is the way out where there is one, for the operator.
	hint string
}

// verdicts are tried from the top, since one error may wrap several. Unavailable
// comes first: in doubt nothing dies. What is not listed is transient.
//
// An unknown topic is permanent although it concerns every delivery. How few
// find that out is the business of connector.await, and of the engine's
// breaker. A refused authorization is not: it is granted later, and then
// all go through.
var verdicts = []verdict{
	{err: ErrClosed, class: sinks.ClassUnavailable},
	{err: ErrHungUp, class: sinks.ClassUnavailable},
	{err: sarama.ErrSASLAuthenticationFailed, class: sinks.ClassUnavailable, hint: "the brokers refuse sasl.user and sasl.password"},
	{err: sarama.ErrUnsupportedSASLMechanism, class: sinks.ClassUnavailable, hint: "the brokers do not offer this sasl.mechanism"},
	{err: sarama.ErrOutOfBrokers, class: sinks.ClassUnavailable, hint: "is the cluster running, and are the brokers' addresses right?"},
	{err: sarama.ErrBrokerNotFound, class: sinks.ClassUnavailable},
	{err: sarama.ErrClosedClient, class: sinks.ClassUnavailable},
	{err: sarama.ErrNotConnected, class: sinks.ClassUnavailable},
	{err: sarama.ErrShuttingDown, class: sinks.ClassUnavailable},
	{err: sarama.ErrInsufficientData, class: sinks.ClassUnavailable},
	{err: breaker.ErrBreakerOpen, class: sinks.ClassUnavailable, hint: "the client asks again 10 seconds after its third failure"},
	{err: sarama.ErrLeaderNotAvailable, class: sinks.ClassUnavailable},
	{err: sarama.ErrNotLeaderForPartition, class: sinks.ClassUnavailable},
	{err: sarama.ErrBrokerNotAvailable, class: sinks.ClassUnavailable},
	{err: sarama.ErrReplicaNotAvailable, class: sinks.ClassUnavailable},
	{err: sarama.ErrNetworkException, class: sinks.ClassUnavailable},
	{err: sarama.ErrKafkaStorageError, class: sinks.ClassUnavailable},
	// A broker that has just started says these when it is asked for a producer id.
	{err: sarama.ErrOffsetsLoadInProgress, class: sinks.ClassUnavailable},
	{err: sarama.ErrConsumerCoordinatorNotAvailable, class: sinks.ClassUnavailable},
	{err: sarama.ErrNotCoordinatorForConsumer, class: sinks.ClassUnavailable},
	{err: sarama.ErrTopicAuthorizationFailed, class: sinks.ClassUnavailable, hint: "grant this client WRITE and DESCRIBE on the topic"},
	{err: sarama.ErrClusterAuthorizationFailed, class: sinks.ClassUnavailable, hint: "grant this client IDEMPOTENT_WRITE, or set idempotent: false"},
	{err: sarama.ErrUnsupportedVersion, class: sinks.ClassUnavailable, hint: "the brokers are too old or too new for this client"},
	{err: sarama.ErrUnsupportedCompressionType, class: sinks.ClassUnavailable, hint: "choose another compression"},
	{err: io.EOF, class: sinks.ClassUnavailable},
	{err: io.ErrUnexpectedEOF, class: sinks.ClassUnavailable},
	{err: net.ErrClosed, class: sinks.ClassUnavailable},

	{err: sarama.ErrUnknownTopicOrPartition, class: sinks.ClassPermanent, hint: "create the topic, or correct its name in the configuration"},
	{err: sarama.ErrInvalidTopic, class: sinks.ClassPermanent, hint: "correct the topic's name in the configuration"},
	{err: sarama.ErrMessageSizeTooLarge, class: sinks.ClassPermanent, hint: "raise the topic's max.message.bytes"},
	{err: sarama.ErrMessageSetSizeTooLarge, class: sinks.ClassPermanent, hint: "raise the topic's segment.bytes"},
	{err: sarama.ErrInvalidRecord, class: sinks.ClassPermanent, hint: "a compacted topic takes no record without a key"},
	{err: sarama.ErrInvalidTimestamp, class: sinks.ClassPermanent, hint: "occurred_on is outside the topic's message.timestamp limits"},
}

// classifyConnect is classify for what was met before anything was sent: no
// attempt of a delivery was made, so none may be spent.
func classifyConnect(topic string, err error) error {
	if class, _ := classOf(err); class == sinks.ClassPermanent {
		return classify(topic, err)
	}
	return sinks.Unavailable(fmt.Errorf("%w: %w", ErrNotConnected, describe(topic, err)))
}

// classify gives err its class and says what was tried.
func classify(topic string, err error) error {
	class, _ := classOf(err)
	return &sinks.Error{Class: class, Err: describe(topic, err)}
}

// describe says what was tried; topic is "" before one is known.
func describe(topic string, err error) error {
	if _, hint := classOf(err); hint != "" {
		err = fmt.Errorf("%w (%s)", err, hint)
	}
	if topic == "" {
		return err
	}
	return fmt.Errorf("topic %s: %w", topic, err)
}

// concernsTopicOnly tells whether err leaves all other topics alone. Where data
// names the topic such an error is transient: others go on, and this one may
// be created, or granted, before the attempts are spent.
func concernsTopicOnly(err error) bool {
	return errors.Is(err, sarama.ErrUnknownTopicOrPartition) || errors.Is(err, sarama.ErrTopicAuthorizationFailed)
}

func classOf(err error) (class sinks.Class, hint string) {
	if hint := aboutTLS(err); hint != "" {
		return sinks.ClassUnavailable, hint
	}
	for _, v := range verdicts {
		if errors.Is(err, v.err) {
			return v.class, v.hint
		}
	}
	var (
		network  net.Error
		garbage  sarama.PacketDecodingError
		refusal  sarama.ConfigurationError
		encoding sarama.PacketEncodingError
	)
	switch {
	case errors.As(err, &network):
		return sinks.ClassUnavailable, ""
	case errors.As(err, &garbage):
		return sinks.ClassUnavailable, "is it a Kafka broker that answers at this address?"
	case errors.As(err, &refusal):
		// Made by the client before it sends. The configuration itself was
		// accepted when the client was made, so it is about the record.
		return sinks.ClassPermanent, "raise max_message_bytes and the topic's max.message.bytes"
	case errors.As(err, &encoding):
		return sinks.ClassPermanent, ""
	}
	return sinks.ClassTransient, ""
}

// aboutTLS returns the way out if a TLS connection could not be made, and "" for
// all other errors. The client wraps these in ErrOutOfBrokers.
func aboutTLS(err error) (hint string) {
	var (
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		network     *net.OpError
	)
	switch {
	case errors.As(err, &certificate):
		return "check tls.ca_file and tls.server_name"
	case errors.As(err, &record):
		return "the broker does not speak TLS at this address; is it another listener's port?"
	case errors.As(err, &network) && network.Op == "remote error": // how crypto/tls names an alert
		return "the broker refused the TLS connection; check tls.cert_file"
	}
	return ""
}

// blamesBatch tells whether a broker says err to all records of a batch when
// only one of them, or only their sum, is at fault.
func blamesBatch(err error) bool {
	return errors.Is(err, sarama.ErrMessageSizeTooLarge) ||
		errors.Is(err, sarama.ErrMessageSetSizeTooLarge) ||
		errors.Is(err, sarama.ErrInvalidRecord) ||
		errors.Is(err, sarama.ErrInvalidTimestamp)
}
