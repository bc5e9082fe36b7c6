// Package kafka writes each notification as a record to a Kafka topic, with franz-go or
// with Watermill's Kafka publisher.
//
// # The record
//
// The record's key is the notification's key, null where that is empty; its
// value is the payload, byte for byte; its timestamp is occurred_on. Its headers
// are:
//
//	id                        the notification's id: what a consumer deduplicates by
//	type                      the registered name, such as order.placed
//	version                   the payload's version, in decimal
//	occurred-on               RFC 3339 in UTC with microseconds
//	_watermill_message_uuid   the id again: Watermill's subscribers look for it there
//
// and one for each metadata under its own name, so content-type and traceparent are
// where CloudEvents and OpenTelemetry expect them. The names differ from CloudEvents'
// ce_id, ce_type and so on, because the record is not a CloudEvent. Metadata with the
// name of one of the headers above is sent with the prefix "metadata-".
//
// Brokers delete records by their timestamps. If you replay notifications that are
// older than the topic's retention, their records are soon deleted. A broker may refuse
// a record whose timestamp is in the future.
//
// # Events
//
// With the format cloudevents-binary the record is an event of CloudEvents
// 1.0.2, Kafka Protocol Binding, in binary mode. Key, value and timestamp are the same.
// The headers are ce_id, ce_source, ce_specversion, ce_type, ce_time, ce_partitionkey
// (the key), ce_payloadversion and content-type, and ce_NAME for each metadata whose name
// CloudEvents allows: lower case letters and digits. traceparent, tracestate and
// Watermill's id keep their own names.
//
// # The topic
//
// A topic that contains {{ is a text/template over the [notification.Envelope]. If it
// refers to metadata by name and a notification lacks it, or if the result is not a legal
// name, the delivery is refused permanently; with Get, missing metadata is "". All
// notifications of a key should have the same topic, because Kafka has no order across
// topics. If a topic from data does not exist or access is denied, the error is transient:
// only notifications for that topic wait, and are delivered if it is created or access is
// granted before their attempts are used up.
//
// # Order
//
// A key is hashed to its partition with murmur2 as in the Java client, so other producers
// of the topic use the same partition for a key. Records without a key are spread over the
// partitions that can be written.
//
// The engine never has one key in two calls at once. A batch may have many deliveries of
// a key, in their order, and once one fails no later one is stored. franz-go writes
// the batches of a partition in order, also where it sends them again, and when one fails
// it fails all of the partition that it holds. But it stores what it gets after that, and nothing tells a
// caller in time. So the sink's partitioner, which the client asks before it begins a batch, lets
// a record go only into the batch that the one before it of its key is in, which is stored as a whole or
// not at all. Otherwise it waits until that one is stored. That is rare: the records of a call are in the client
// before it sends them, but for what goes with another call's.
//
// With up to five requests on the way to a broker, it is the producer id and its
// sequence numbers by which the broker drops copies and refuses what would leave a gap; that is why idempotent
// is on by default. Without, a broker has one request at a time.
//
// # Exactly once
//
// With exactly_once the sink is a [sinks.Transactor]: each lane has a client with a transactional id of its own, and a
// partition of the positions topic for its notes. A broker's refusal of a record costs the transaction; which record it
// is about is found out with another client, whose transactions are all aborted.
//
// # Watermill
//
// The client watermill is Watermill's publisher, used through Publish alone, with the
// marshalers and decorators of the program. It stands on sarama, which cannot call back a later record of a key when
// it gives an earlier one up. So it gets one record of a key at a time, and no batches.
//
// # Errors
//
// See the table in errors.go for each error, and fault.class for what follows. In
// short: what the broker has against the record is permanent; what it has against the
// configured topic is unavailable, as is a cluster that cannot be reached, lacks leaders
// or replicas, or does not let us in; only what may be either is transient.
//
// A broker rejects all records of a partition for one bad one among them. So what
// was rejected in company is sent again, in halves, while nothing else is under
// way, until a record that is called permanently undeliverable was alone; its
// innocent neighbours go through.
//
// # Who calls
//
// SASL and TLS are checked for each connection. If the credentials or a certificate are
// refused, the sink is unavailable, so no delivery becomes dead after a password was changed
// on one side only. The files of tls and of a token are read for each connection.
//
// # Consumers
//
// [Envelope] converts a record back to an envelope, for any client library. A sink of
// functions can handle it: see the example of Envelope.
//
// # Time
//
// A delivery takes the configured timeout at most. Then the client gives up its record,
// with all that it holds of the partition, and goes on with another epoch of its producer id: a broker
// refuses what comes late of the old one. Other partitions are left alone.
//
// A delivery whose context has ended waits for its outcome for half a second more, which is
// enough where the cluster answers. Then its record is given up in the same way. Where the client does not do
// so within half a second, as with a record that shares a batch with one whose time is not over, the sink ends
// the client and opens another. So Deliver returns within about a second, and nothing
// is left behind that could be sent after the engine has tried the delivery again, and later ones of its
// key. The deliveries beside it fail as well, unavailable. The client watermill cannot give up records,
// and is always ended.
//
// A request that was on its way may be stored all the same. That is no other than with
// any request whose answer is lost: its delivery is repeated.
package kafka
