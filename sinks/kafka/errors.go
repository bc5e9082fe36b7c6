package kafka

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/sinks"
)

// Errors before a record is sent.
var (
	// ErrTopic means that a notification's topic is missing or illegal.
	ErrTopic = errors.New("topic cannot be used")
	// ErrTooLarge means that a record is larger than max_message_bytes.
	ErrTooLarge = errors.New("record is too large")
	// ErrTombstone means that a notification whose type is in tombstones has no key.
	ErrTombstone = errors.New("a tombstone needs a key, because a null value without one deletes nothing")
	// ErrTimestamp means that the client cannot write the time at which a notification occurred, because it
	// counts nanoseconds: from 1677-09-21 to 2262-04-11.
	ErrTimestamp = errors.New("occurred_on cannot be a record's timestamp")
	// ErrClosed means that the sink is closed.
	ErrClosed = errors.New("kafka sink is closed")
	// ErrOverdue means that the cluster did not answer in time, for this delivery or for
	// another one that was given up together with it.
	ErrOverdue = errors.New("kafka did not answer within the timeout of a delivery")
	// ErrNotConnected means that the client could not connect, and so sent nothing. It comes
	// with the cause.
	ErrNotConnected = errors.New("not connected to kafka")
	// ErrHungUp means that a broker closed a connection while it was being made.
	ErrHungUp = errors.New("a broker hung up")
)

// Errors of exactly_once. The sink is unavailable until a person has solved the problem.
var (
	// ErrTransactionVersion means that the cluster's transactions are too old or off.
	ErrTransactionVersion = errors.New("the cluster's transaction.version is too low")
	// ErrPositions means that the positions topic is missing or unsuitable.
	ErrPositions = errors.New("positions cannot be kept")
	// ErrOtherCluster means that the brokers belong to another cluster than before.
	ErrOtherCluster = errors.New("another Kafka cluster")
)

// errPreviousFailed is the error of a record that is not written because the previous record
// of its key was not.
var errPreviousFailed = errors.New("not written, because the previous record of its key was not")

// ErrRecord is the error of [Envelope] for a record that is not a notification.
var ErrRecord = errors.New("not a record of a notification")

// ErrForeign is part of the error of [Envelope] if a record has neither format, because
// another program wrote it.
var ErrForeign = errors.New("a record of neither format")

// fault is what an error is about. Its class follows from it.
type fault int

const (
	unknownFault   fault = iota // perhaps the record: a retry uses up an attempt
	clusterFault                // the brokers, the network or access: affects all records
	topicFault                  // the topic's state or access to it, which may change
	topicNameFault              // the topic's name
	recordFault                 // the record itself
	unsentFault                 // the record itself, which was not sent
)

// origin is where the topics' names come from.
type origin bool

const (
	configured origin = false // from the configuration, one for all records
	fromData   origin = true  // from each notification
)

// class returns the class of an error with this fault. A configured topic is part of the
// sink: its faults affect all records, so no notification may become dead because of them. A
// topic from data affects only the notifications that name it.
func (f fault) class(o origin) sinks.Class {
	switch {
	case f == unknownFault:
		return sinks.ClassTransient
	case f == topicFault && o == fromData:
		return sinks.ClassTransient
	case f == unsentFault:
		return sinks.ClassInvalid
	case f == recordFault, f == topicNameFault && o == fromData:
		return sinks.ClassPermanent
	}
	return sinks.ClassUnavailable
}

// diagnosis explains an error of a client.
type diagnosis struct {
	err   error
	fault fault
	// hint is advice for the operator; "" if there is none.
	hint string
}

// diagnoses are tried in order, because an error may wrap several. Those of the cluster come
// first, so that in doubt no delivery becomes dead. The fault of a protocol error that is not
// listed is unknown.
//
// A problem of one partition, such as a missing leader, counts as a clusterFault: it is
// temporary, and uses up no attempt unless other records succeed meanwhile.
var diagnoses = []diagnosis{
	// Access and protocol.
	{err: kerr.SaslAuthenticationFailed, fault: clusterFault, hint: "the brokers refuse sasl.user and sasl.password, or the token"},
	{err: kerr.UnsupportedSaslMechanism, fault: clusterFault, hint: "the brokers do not offer this sasl.mechanism"},
	{err: kerr.IllegalSaslState, fault: clusterFault},
	{err: kerr.ClusterAuthorizationFailed, fault: clusterFault, hint: "grant this client IDEMPOTENT_WRITE"},
	{err: kerr.TransactionalIDAuthorizationFailed, fault: clusterFault, hint: "grant this client WRITE and DESCRIBE on transactional ids that begin with the name of the positions topic"},
	{err: kerr.InvalidTransactionTimeout, fault: clusterFault, hint: "raise the brokers' transaction.max.timeout.ms, or lower timeout: a transaction gets three times as long"},
	{err: kerr.UnsupportedVersion, fault: clusterFault, hint: "the brokers are too old or too new for this client"},
	{err: kerr.InvalidRequest, fault: clusterFault, hint: "the brokers are too old or too new for this client"},
	{err: kerr.UnsupportedCompressionType, fault: clusterFault, hint: "choose another compression"},
	{err: kerr.InvalidRequiredAcks, fault: clusterFault, hint: "choose other acks"},

	{err: kerr.NetworkException, fault: clusterFault},

	// Leaders that change, and replicas that are missing or slow.
	{err: kerr.LeaderNotAvailable, fault: clusterFault},
	{err: kerr.NotLeaderForPartition, fault: clusterFault},
	{err: kerr.FencedLeaderEpoch, fault: clusterFault},
	{err: kerr.UnknownLeaderEpoch, fault: clusterFault},
	{err: kerr.NotController, fault: clusterFault},
	{err: kerr.BrokerNotAvailable, fault: clusterFault},
	{err: kerr.ReplicaNotAvailable, fault: clusterFault},
	{err: kerr.NotEnoughReplicas, fault: clusterFault, hint: "fewer replicas are in sync than the topic's min.insync.replicas"},
	{err: kerr.NotEnoughReplicasAfterAppend, fault: clusterFault, hint: "fewer replicas are in sync than the topic's min.insync.replicas"},
	{err: kerr.RequestTimedOut, fault: clusterFault, hint: "the replicas in sync did not store the record in time"},
	{err: kerr.KafkaStorageError, fault: clusterFault, hint: "look at the broker's disks"},

	// A broker that has just started returns these to a request for a producer id.
	{err: kerr.CoordinatorLoadInProgress, fault: clusterFault},
	{err: kerr.CoordinatorNotAvailable, fault: clusterFault},
	{err: kerr.NotCoordinator, fault: clusterFault},

	// The states of the producer differ in broker and client. The client has already
	// recovered when it returns these.
	{err: kerr.OutOfOrderSequenceNumber, fault: clusterFault},
	{err: kerr.UnknownProducerID, fault: clusterFault},
	{err: kerr.InvalidProducerEpoch, fault: clusterFault},
	{err: kerr.InvalidProducerIDMapping, fault: clusterFault},
	{err: kerr.ProducerFenced, fault: clusterFault},

	{err: kerr.UnknownTopicOrPartition, fault: topicFault, hint: "create the topic, or correct its name"},
	{err: kerr.UnknownTopicID, fault: topicFault, hint: "the topic was deleted, and perhaps created again"},
	{err: kerr.TopicAuthorizationFailed, fault: topicFault, hint: "grant this client WRITE and DESCRIBE on the topic"},
	{err: kerr.UnsupportedForMessageFormat, fault: topicFault, hint: "raise the topic's message.format.version"},
	// Brokers that create requested topics return these.
	{err: kerr.InvalidPartitions, fault: topicFault, hint: "create the topic; the brokers could not"},
	{err: kerr.InvalidReplicationFactor, fault: topicFault, hint: "create the topic; the brokers could not"},

	{err: kerr.InvalidTopicException, fault: topicNameFault, hint: "correct the topic's name; see the broker's log for what is wrong with it"},

	{err: ErrTooLarge, fault: unsentFault, hint: "raise max_message_bytes and the topic's max.message.bytes, or set large.store"},
	{err: ErrTimestamp, fault: unsentFault},
	{err: ErrTombstone, fault: unsentFault, hint: "publish it with a key, or remove its type from tombstones"},
	{err: kerr.MessageTooLarge, fault: recordFault, hint: "raise the topic's max.message.bytes"},
	{err: kerr.RecordListTooLarge, fault: recordFault, hint: "raise the topic's segment.bytes"},
	{err: kerr.InvalidRecord, fault: recordFault, hint: "a compacted topic accepts no record without a key"},
	{err: kerr.InvalidTimestamp, fault: recordFault, hint: "occurred_on is outside the topic's message.timestamp limits"},
}

// classify returns err with its class, the topic and a hint.
func classify(o origin, topic string, err error) error {
	f, _ := faultOf(err)
	return &sinks.Error{Class: f.class(o), Err: describe(topic, err)}
}

// connectError is an error of a client that could not connect, and so has sent nothing.
type connectError struct{ error }

func (e *connectError) Unwrap() error { return e.error }

// notConnected returns the unavailable error of a delivery that was not tried, because the
// client could not connect.
func notConnected(topic string, err error) error {
	return sinks.Unavailable(fmt.Errorf("%w: %w", ErrNotConnected, describe(topic, err)))
}

// describe adds the topic, unless it is "", and a hint to err.
func describe(topic string, err error) error {
	if _, hint := faultOf(err); hint != "" {
		err = fmt.Errorf("%w (%s)", err, hint)
	}
	if topic == "" {
		return err
	}
	return fmt.Errorf("topic %s: %w", topic, err)
}

// faultOf returns the fault and the hint of the first diagnosis that matches err. The fault of
// other protocol errors is unknown. All other errors are of the connection, so of the cluster.
func faultOf(err error) (f fault, hint string) {
	if hint := tlsHint(err); hint != "" {
		return clusterFault, hint
	}
	for _, d := range diagnoses {
		if errors.Is(err, d.err) {
			return d.fault, d.hint
		}
	}
	var network *net.OpError
	switch {
	case isProtocol(err):
		return unknownFault, ""
	case errors.As(err, &network) && network.Op == "dial":
		return clusterFault, "is the cluster running, and are the brokers' addresses right?"
	}
	return clusterFault, ""
}

// isProtocol reports whether a broker returned the error.
func isProtocol(err error) bool {
	var protocol *kerr.Error
	return errors.As(err, &protocol)
}

// isUnknownTopic reports whether the topic does not exist, or no longer under its id.
func isUnknownTopic(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID)
}

// hungUp reports whether a broker closed the connection as soon as it was made.
func hungUp(err error) bool {
	var (
		first      *kgo.ErrFirstReadEOF
		connecting *connectError
	)
	return errors.As(err, &first) || errors.As(err, &connecting) && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF))
}

// tlsHint returns a hint if a TLS connection could not be made, and "" for all other errors.
// The client wraps TLS errors in ErrOutOfBrokers.
func tlsHint(err error) (hint string) {
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

// rejectedWithBatch reports whether a broker rejected the whole batch with an error that may
// be about only one of its records, or about their total size.
func (p *publication) rejectedWithBatch() bool {
	return errors.Is(p.err, kerr.MessageTooLarge) ||
		errors.Is(p.err, kerr.RecordListTooLarge) ||
		errors.Is(p.err, kerr.InvalidRecord) ||
		errors.Is(p.err, kerr.InvalidTimestamp)
}
