package kafka

import "github.com/waybill-go/waybill/sinks"

// answers list the errors of Kafka's protocol with their classes, for the reference.
var answers = []sinks.Answer{
	{Says: "the record is stored by all replicas that `acks` asks for", Means: "delivered"},
	{Says: "MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP", Means: "permanent; in a batch, only for records that are also refused alone"},
	{Says: "nothing is sent: larger than `max_message_bytes`, without `large`; a type in `tombstones` and no key; the topic's template gives no topic or an illegal name; it occurred before 1677-09-22 or after 2262-04-11, which a client cannot write as a timestamp", Means: "invalid"},
	{Says: "INVALID_TOPIC_EXCEPTION", Means: "unavailable; permanent if data names the topic"},
	{Says: "UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED, UNSUPPORTED_FOR_MESSAGE_FORMAT, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR", Means: "unavailable; transient if data names the topic"},
	{Says: "the connection cannot be made or is lost; TLS fails; NETWORK_EXCEPTION; no answer in time", Means: "unavailable"},
	{Says: "the store of `large` cannot be reached, denies access or has no such bucket", Means: "unavailable or throttled"},
	{Says: "SASL_AUTHENTICATION_FAILED, UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE, CLUSTER_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_TRANSACTION_TIMEOUT", Means: "unavailable"},
	{Says: "UNSUPPORTED_VERSION, INVALID_REQUEST, UNSUPPORTED_COMPRESSION_TYPE, INVALID_REQUIRED_ACKS", Means: "unavailable"},
	{Says: "LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_CONTROLLER, BROKER_NOT_AVAILABLE, REPLICA_NOT_AVAILABLE", Means: "unavailable"},
	{Says: "NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR", Means: "unavailable"},
	{Says: "COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR", Means: "unavailable"},
	{Says: "OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID, INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED", Means: "unavailable"},
	{Says: "UNKNOWN_SERVER_ERROR, CORRUPT_MESSAGE, any other error", Means: "transient"},
}
