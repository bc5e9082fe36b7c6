// Package kafka writes each notification as a record to a Kafka topic, with franz-go or
// with Watermill's Kafka publisher.
//
// # The record
//
// The record's key is the notification's key, or null if that is empty. Its value is the
// payload, byte for byte, and its timestamp is occurred_on. Its headers are:
//
//	id                        the notification's id, by which consumers recognize duplicates
//	type                      the registered name, such as order.placed
//	version                   the payload's version, in decimal
//	occurred-on               RFC 3339 in UTC with microseconds
//	_watermill_message_uuid   the id again, for Watermill's subscribers
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
// The engine never delivers a key in two calls at once. A batch may have many deliveries of
// a key, in their order, and after one fails, no later one is stored.
//
// franz-go writes the batches of a partition in order, also when it retries. When one
// fails, it fails all records of the partition that it holds. But it still writes records
// that it receives after that, and the caller learns too late of the failure. So the sink's
// partitioner, which the client calls before it begins a batch, adds a record only to the
// batch that has the previous record of its key, since a batch is stored as a whole or not
// at all. Otherwise the record waits until the previous one is stored. That is rare,
// because the client has all records of a call before it sends them, unless they join the
// batch of another call.
//
// Up to five requests may be in flight to a broker. The broker uses the producer id and its
// sequence numbers to drop duplicates and to refuse records that would leave a gap. So
// idempotent is on by default. Without it, a broker gets one request at a time.
//
// # Exactly once
//
// With exactly_once the sink is a [sinks.Transactor]. Each lane has a client with its own
// transactional id, and a partition of the positions topic for its notes. If a broker
// refuses a record, the transaction is lost. The sink then finds the record with another
// client, whose transactions are all aborted.
//
// # Watermill
//
// The client watermill uses only Publish of Watermill's publisher, with the marshalers and
// decorators of the program. The publisher is based on sarama, which may store a later
// record of a key after it has given up an earlier one. So it gets one record of a key at a
// time, and no batches.
//
// # Errors
//
// The table in errors.go lists the errors, and fault.class gives their classes. In short:
// if the broker refuses the record, the error is permanent. If it refuses the configured
// topic, or if the cluster cannot be reached, lacks leaders or replicas, or denies access,
// the error is unavailable. If the cause may be either, the error is transient.
//
// A broker rejects all records of a partition in a request for one bad record. So the sink
// sends rejected records again, in halves and while nothing else is in flight. A record is
// refused permanently only after it was rejected alone.
//
// # Access
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
// A delivery takes at most the configured timeout. Then the client gives up its record, and
// all records of the partition that it holds. It continues with a new epoch of its producer
// id, so that a broker refuses late requests of the old epoch. Other partitions are not
// affected.
//
// After its context has ended, a delivery waits another half second for its outcome, which
// is enough if the cluster answers. Then its record is given up in the same way. If the
// client does not do so within another half second, for example because the record shares a
// batch with one whose time is not over, the sink closes the client and opens another. So
// Deliver returns within about a second, and no record is left in a client that could send
// it after the engine has retried the delivery or made later ones of its key. The other
// deliveries of the closed client fail as unavailable. The client watermill cannot give up
// records, so it is always closed.
//
// A request that was in flight may still be stored. As with every request whose answer is
// lost, its delivery is repeated.
package kafka
