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
	// ErrTopic is returned for a notification whose topic cannot be made of it.
	ErrTopic = errors.New("topic cannot be used")
	// ErrTooLarge is returned for a record that is larger than max_message_bytes.
	ErrTooLarge = errors.New("record is too large")
	// ErrClosed is returned by a sink whose Close was called.
	ErrClosed = errors.New("kafka sink is closed")
	// ErrOverdue is returned where the cluster did not answer in time: to the delivery
	// whose time is over, and to those that were given up with it.
	ErrOverdue = errors.New("kafka did not answer in the time of a delivery")
	// ErrNotConnected is returned while nothing can be sent; it wraps what
	// the attempt to connect met.
	ErrNotConnected = errors.New("not connected to kafka")
	// ErrHungUp is returned when a broker closed the connection while it was
	// being made.
	ErrHungUp = errors.New("a broker hung up")
)

// Errors of exactly_once, which a person has to mend. The sink is unavailable meanwhile.
var (
	// ErrTransactionVersion is returned where the cluster's transactions are too old, or off.
	ErrTransactionVersion = errors.New("the cluster's transaction.version is too low")
	// ErrPositions is returned where the positions topic is missing or not fit.
	ErrPositions = errors.New("positions cannot be kept")
	// ErrOtherCluster is returned where the brokers are of another cluster than before.
	ErrOtherCluster = errors.New("another Kafka cluster")
)

// errBehind is that of a record that is not written, since one before it of its key was not.
var errBehind = errors.New("waits behind one of its key")

// ErrRecord is returned by [Envelope] for a record that is no notification.
var ErrRecord = errors.New("not a record of a notification")

// ErrForeign is among what it wraps where the record is of neither format: another program
// wrote it.
var ErrForeign = errors.New("a record of neither format")

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
	// Who may come in, and in which language.
	{err: kerr.SaslAuthenticationFailed, fault: ofCluster, hint: "the brokers refuse sasl.user and sasl.password, or the token"},
	{err: kerr.UnsupportedSaslMechanism, fault: ofCluster, hint: "the brokers do not offer this sasl.mechanism"},
	{err: kerr.IllegalSaslState, fault: ofCluster},
	{err: kerr.ClusterAuthorizationFailed, fault: ofCluster, hint: "grant this client IDEMPOTENT_WRITE, or set idempotent: false"},
	{err: kerr.TransactionalIDAuthorizationFailed, fault: ofCluster, hint: "grant this client WRITE and DESCRIBE on transactional ids that begin with the name of the positions topic"},
	{err: kerr.InvalidTransactionTimeout, fault: ofCluster, hint: "raise the brokers' transaction.max.timeout.ms, or lower timeout: a transaction gets three times as long"},
	{err: kerr.UnsupportedVersion, fault: ofCluster, hint: "the brokers are too old or too new for this client"},
	{err: kerr.InvalidRequest, fault: ofCluster, hint: "the brokers are too old or too new for this client"},
	{err: kerr.UnsupportedCompressionType, fault: ofCluster, hint: "choose another compression"},
	{err: kerr.InvalidRequiredAcks, fault: ofCluster, hint: "choose other acks"},

	{err: kerr.NetworkException, fault: ofCluster},

	// Leaders that change, and replicas that are missing or slow.
	{err: kerr.LeaderNotAvailable, fault: ofCluster},
	{err: kerr.NotLeaderForPartition, fault: ofCluster},
	{err: kerr.FencedLeaderEpoch, fault: ofCluster},
	{err: kerr.UnknownLeaderEpoch, fault: ofCluster},
	{err: kerr.NotController, fault: ofCluster},
	{err: kerr.BrokerNotAvailable, fault: ofCluster},
	{err: kerr.ReplicaNotAvailable, fault: ofCluster},
	{err: kerr.NotEnoughReplicas, fault: ofCluster, hint: "fewer replicas are in sync than the topic's min.insync.replicas"},
	{err: kerr.NotEnoughReplicasAfterAppend, fault: ofCluster, hint: "fewer replicas are in sync than the topic's min.insync.replicas"},
	{err: kerr.RequestTimedOut, fault: ofCluster, hint: "the replicas in sync did not store the record in time"},
	{err: kerr.KafkaStorageError, fault: ofCluster, hint: "look at the broker's disks"},

	// A broker that has just started says these when it is asked for a producer id.
	{err: kerr.CoordinatorLoadInProgress, fault: ofCluster},
	{err: kerr.CoordinatorNotAvailable, fault: ofCluster},
	{err: kerr.NotCoordinator, fault: ofCluster},

	// What broker and client know of the producer differs. The client has begun anew
	// when it reports these.
	{err: kerr.OutOfOrderSequenceNumber, fault: ofCluster},
	{err: kerr.UnknownProducerID, fault: ofCluster},
	{err: kerr.InvalidProducerEpoch, fault: ofCluster},
	{err: kerr.InvalidProducerIDMapping, fault: ofCluster},
	{err: kerr.ProducerFenced, fault: ofCluster},

	{err: kerr.UnknownTopicOrPartition, fault: ofTopic, hint: "create the topic, or correct its name"},
	{err: kerr.UnknownTopicID, fault: ofTopic, hint: "the topic was deleted, and perhaps created again"},
	{err: kerr.TopicAuthorizationFailed, fault: ofTopic, hint: "grant this client WRITE and DESCRIBE on the topic"},
	{err: kerr.UnsupportedForMessageFormat, fault: ofTopic, hint: "raise the topic's message.format.version"},
	// These two of brokers that create topics which are asked for.
	{err: kerr.InvalidPartitions, fault: ofTopic, hint: "create the topic; the brokers could not"},
	{err: kerr.InvalidReplicationFactor, fault: ofTopic, hint: "create the topic; the brokers could not"},

	{err: kerr.InvalidTopicException, fault: ofTopicName, hint: "correct the topic's name; see the broker's log for what is wrong with it"},

	{err: ErrTooLarge, fault: ofRecord, hint: "raise max_message_bytes and the topic's max.message.bytes"},
	{err: kerr.MessageTooLarge, fault: ofRecord, hint: "raise the topic's max.message.bytes"},
	{err: kerr.RecordListTooLarge, fault: ofRecord, hint: "raise the topic's segment.bytes"},
	{err: kerr.InvalidRecord, fault: ofRecord, hint: "a compacted topic takes no record without a key"},
	{err: kerr.InvalidTimestamp, fault: ofRecord, hint: "occurred_on is outside the topic's message.timestamp limits"},
}

// classify gives err its class and says what was tried.
func classify(o origin, topic string, err error) error {
	f, _ := faultOf(err)
	return &sinks.Error{Class: f.class(o), Err: describe(topic, err)}
}

// connectError is what a client met before it could send anything.
type connectError struct{ error }

func (e *connectError) Unwrap() error { return e.error }

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

// faultOf judges by the first verdict that fits. What the brokers say and is not listed is
// unclear; what they did not say, the client met on the way to them.
func faultOf(err error) (f fault, hint string) {
	if hint := aboutTLS(err); hint != "" {
		return ofCluster, hint
	}
	for _, v := range verdicts {
		if errors.Is(err, v.err) {
			return v.fault, v.hint
		}
	}
	var network *net.OpError
	switch {
	case isProtocol(err):
		return unclear, ""
	case errors.As(err, &network) && network.Op == "dial":
		return ofCluster, "is the cluster running, and are the brokers' addresses right?"
	}
	return ofCluster, ""
}

// isProtocol reports whether a broker said it.
func isProtocol(err error) bool {
	var said *kerr.Error
	return errors.As(err, &said)
}

// isUnknownTopic reports whether the client looks for a topic that is not there, or not
// there any more under its id.
func isUnknownTopic(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID)
}

// hungUp reports whether a broker ended the connection as soon as it was made.
func hungUp(err error) bool {
	var (
		first      *kgo.ErrFirstReadEOF
		connecting *connectError
	)
	return errors.As(err, &first) || errors.As(err, &connecting) && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF))
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

// blamesBatch reports whether a broker says to all records of a batch what
// only one of them, or only their sum, is at fault for.
func (p *publication) blamesBatch() bool {
	return errors.Is(p.err, kerr.MessageTooLarge) ||
		errors.Is(p.err, kerr.RecordListTooLarge) ||
		errors.Is(p.err, kerr.InvalidRecord) ||
		errors.Is(p.err, kerr.InvalidTimestamp)
}
