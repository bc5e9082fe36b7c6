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
	// ErrOverdue is returned where the connections were cut, because a delivery's time was
	// over and the cluster had not answered: to that delivery, and those beside it.
	ErrOverdue = errors.New("kafka did not answer in the time of a delivery")
	// ErrNotConnected is returned while there is no connection; it wraps what
	// the last attempt to make one met.
	ErrNotConnected = errors.New("not connected to kafka")
	// ErrHungUp is returned when a broker closed the connection while it was
	// being made.
	ErrHungUp = errors.New("a broker hung up")
)

// ErrRecord is returned by [Envelope] for a record that is no notification.
var ErrRecord = errors.New("not a record of a notification")

// fault is whose an error is; the class follows from it.
type fault int

const (
	unclear     fault = iota // perhaps the record's: its attempts are spent
	ofCluster                // of the brokers, the way to them or the access: all records would meet it
	ofTopic                  // of the topic's state or access: it may be created, or granted
	ofTopicName              // of the topic's name
	ofRecord                 // of what the record is
)

// origin says who names the topics.
type origin bool

const (
	configured origin = false // the configuration, one for all records
	fromData   origin = true  // each notification
)

// class is what a fault means for the engine. The configured topic is a part of
// the sink: what is wrong with it is wrong for all records, and no notification may
// die of it. A topic from data concerns those notifications only that name it.
func (f fault) class(o origin) sinks.Class {
	switch {
	case f == unclear:
		return sinks.ClassTransient
	case f == ofTopic && o == fromData:
		return sinks.ClassTransient
	case f == ofRecord, f == ofTopicName && o == fromData:
		return sinks.ClassPermanent
	}
	return sinks.ClassUnavailable
}

// verdict says whose one of the client's errors is.
type verdict struct {
	err   error
	fault fault
	// hint is the way out where there is one, for the operator.
	hint string
}

// verdicts are tried from the top, since one error may wrap several. The cluster's
// come first: in doubt nothing dies. What is not listed is unclear.
//
// What one partition has, such as no leader, counts as the cluster's: it passes, and
// spends no attempt. Where others get through meanwhile, the engine spends one.
var verdicts = []verdict{
	// Who may come in, and in which language. ErrOutOfBrokers, below, wraps these.
	{err: sarama.ErrSASLAuthenticationFailed, fault: ofCluster, hint: "the brokers refuse sasl.user and sasl.password, or the token"},
	{err: sarama.ErrUnsupportedSASLMechanism, fault: ofCluster, hint: "the brokers do not offer this sasl.mechanism"},
	{err: sarama.ErrIllegalSASLState, fault: ofCluster},
	{err: sarama.ErrClusterAuthorizationFailed, fault: ofCluster, hint: "grant this client IDEMPOTENT_WRITE, or set idempotent: false"},
	{err: sarama.ErrTransactionalIDAuthorizationFailed, fault: ofCluster},
	{err: sarama.ErrUnsupportedVersion, fault: ofCluster, hint: "the brokers are too old or too new for this client"},
	{err: sarama.ErrInvalidRequest, fault: ofCluster, hint: "the brokers are too old or too new for this client"},
	{err: sarama.ErrUnsupportedCompressionType, fault: ofCluster, hint: "choose another compression"},
	{err: sarama.ErrInvalidRequiredAcks, fault: ofCluster, hint: "choose other acks"},

	// The client, and the way to the brokers.
	{err: ErrClosed, fault: ofCluster},
	{err: ErrOverdue, fault: ofCluster},
	{err: ErrHungUp, fault: ofCluster},
	{err: sarama.ErrOutOfBrokers, fault: ofCluster, hint: "is the cluster running, and are the brokers' addresses right?"},
	{err: sarama.ErrBrokerNotFound, fault: ofCluster},
	{err: sarama.ErrClosedClient, fault: ofCluster},
	{err: sarama.ErrNotConnected, fault: ofCluster},
	{err: sarama.ErrShuttingDown, fault: ofCluster},
	{err: sarama.ErrInsufficientData, fault: ofCluster},
	{err: sarama.ErrNetworkException, fault: ofCluster},
	{err: breaker.ErrBreakerOpen, fault: ofCluster, hint: "the client asks again 10 seconds after its third failure"},
	{err: io.EOF, fault: ofCluster},
	{err: io.ErrUnexpectedEOF, fault: ofCluster},
	{err: net.ErrClosed, fault: ofCluster},

	// Leaders that change, and replicas that are missing or slow.
	{err: sarama.ErrLeaderNotAvailable, fault: ofCluster},
	{err: sarama.ErrNotLeaderForPartition, fault: ofCluster},
	{err: sarama.ErrFencedLeaderEpoch, fault: ofCluster},
	{err: sarama.ErrUnknownLeaderEpoch, fault: ofCluster},
	{err: sarama.ErrNotController, fault: ofCluster},
	{err: sarama.ErrBrokerNotAvailable, fault: ofCluster},
	{err: sarama.ErrReplicaNotAvailable, fault: ofCluster},
	{err: sarama.ErrNotEnoughReplicas, fault: ofCluster, hint: "fewer replicas are in sync than the topic's min.insync.replicas"},
	{err: sarama.ErrNotEnoughReplicasAfterAppend, fault: ofCluster, hint: "fewer replicas are in sync than the topic's min.insync.replicas"},
	{err: sarama.ErrRequestTimedOut, fault: ofCluster, hint: "the replicas in sync did not store the record in time"},
	{err: sarama.ErrKafkaStorageError, fault: ofCluster, hint: "look at the broker's disks"},

	// A broker that has just started says these when it is asked for a producer id.
	{err: sarama.ErrOffsetsLoadInProgress, fault: ofCluster},
	{err: sarama.ErrConsumerCoordinatorNotAvailable, fault: ofCluster},
	{err: sarama.ErrNotCoordinatorForConsumer, fault: ofCluster},

	// What broker and client know of the producer differs. The client has begun anew
	// when it reports these.
	{err: sarama.ErrOutOfOrderSequenceNumber, fault: ofCluster},
	{err: sarama.ErrUnknownProducerID, fault: ofCluster},
	{err: sarama.ErrInvalidProducerEpoch, fault: ofCluster},
	{err: sarama.ErrInvalidProducerIDMapping, fault: ofCluster},
	{err: sarama.ErrProducerFenced, fault: ofCluster},

	{err: sarama.ErrUnknownTopicOrPartition, fault: ofTopic, hint: "create the topic, or correct its name"},
	{err: sarama.ErrTopicAuthorizationFailed, fault: ofTopic, hint: "grant this client WRITE and DESCRIBE on the topic"},
	{err: sarama.ErrUnsupportedForMessageFormat, fault: ofTopic, hint: "raise the topic's message.format.version"},
	// These two of brokers that create topics which are asked for.
	{err: sarama.ErrInvalidPartitions, fault: ofTopic, hint: "create the topic; the brokers could not"},
	{err: sarama.ErrInvalidReplicationFactor, fault: ofTopic, hint: "create the topic; the brokers could not"},

	{err: sarama.ErrInvalidTopic, fault: ofTopicName, hint: "correct the topic's name; see the broker's log for what is wrong with it"},

	{err: sarama.ErrMessageSizeTooLarge, fault: ofRecord, hint: "raise the topic's max.message.bytes"},
	{err: sarama.ErrMessageSetSizeTooLarge, fault: ofRecord, hint: "raise the topic's segment.bytes"},
	{err: sarama.ErrInvalidRecord, fault: ofRecord, hint: "a compacted topic takes no record without a key"},
	{err: sarama.ErrInvalidTimestamp, fault: ofRecord, hint: "occurred_on is outside the topic's message.timestamp limits"},
}

// classify gives err its class and says what was tried.
func classify(o origin, topic string, err error) error {
	f, _ := faultOf(err)
	return &sinks.Error{Class: f.class(o), Err: describe(topic, err)}
}

// notConnected is for what was met before anything was sent: no attempt of a
// delivery was made, so none may be spent.
func notConnected(topic string, err error) error {
	return sinks.Unavailable(fmt.Errorf("%w: %w", ErrNotConnected, describe(topic, err)))
}

// describe says what was tried; topic is "" before one is known.
func describe(topic string, err error) error {
	if _, hint := faultOf(err); hint != "" {
		err = fmt.Errorf("%w (%s)", err, hint)
	}
	if topic == "" {
		return err
	}
	return fmt.Errorf("topic %s: %w", topic, err)
}

func faultOf(err error) (f fault, hint string) {
	if hint := aboutTLS(err); hint != "" {
		return ofCluster, hint
	}
	for _, v := range verdicts {
		if errors.Is(err, v.err) {
			return v.fault, v.hint
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
		return ofCluster, ""
	case errors.As(err, &garbage):
		return ofCluster, "is it a Kafka broker that answers at this address?"
	case errors.As(err, &refusal):
		// Made by the client before it sends. The configuration itself was
		// accepted when the client was made, so it is about the record.
		return ofRecord, "raise max_message_bytes and the topic's max.message.bytes"
	case errors.As(err, &encoding):
		return ofRecord, ""
	}
	return unclear, ""
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
