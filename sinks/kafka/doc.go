// Package kafka writes each notification as a record to a Kafka topic, with franz-go or
// with Watermill's Kafka publisher. Give the sink to a forwarder, or to Outbox.Deliver of
// package waybill; in waybill.yaml it is of kind kafka:
//
//	events, err := kafka.New(sinks.Instance{Name: "events"}, kafka.Config{Brokers: brokers, Topic: "orders"})
//	…
//	o.Deliver("events", events, "order.*")
//
// A consumer in Go converts records back to envelopes with [Envelope].
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
// # Null and large values
//
// The value is null if Config.Tombstones has the type: then a compacted topic deletes the key. With Config.Large, a
// value that is too large for a record is stored in an object store before the record is written. The record has
// a pointer as its value, and its size in the header ExtendedPayloadSize: see Fetch of package sinks/large.
//
// # Collections
//
// The notifications that the setting collect puts together are written as records like these, in one
// call. With collection: array they are one record. Its key is the group, its timestamp that of the last
// notification, and its value a JSON array of whole notifications, with the members of an http sink's
// envelope: id, type, version, key, occurred_on, metadata, and payload or payload_base64. Its headers are
// id (the collection's), occurred-on, content-type and _watermill_message_uuid.
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
// The brokers drop duplicates of requests that the client had to send again (idempotent),
// so up to five requests may be in flight to a broker. Without it, a broker gets one request
// at a time.
//
// # Exactly once
//
// With exactly_once each notification is in the topic once, for consumers that read only
// committed records. docs/sinks-kafka.md has what it needs and its limits.
//
// # Watermill
//
// The client watermill uses only Publish of Watermill's publisher, with the marshalers and
// decorators of the program. It gets one record of a key at a time, and no batches, so it is
// many times slower.
//
// # Errors
//
// If the broker refuses the record, the error is permanent. If it refuses the configured
// topic, or if the cluster cannot be reached, lacks leaders or replicas, or denies access,
// the error is unavailable. If the cause may be either, the error is transient.
// docs/sinks-kafka.md lists all errors.
//
// A broker rejects all records of a partition in a request for one bad record. So the sink
// sends rejected records again, in halves. A record is refused permanently only after it was
// rejected alone.
//
// # Access
//
// SASL and TLS are checked for each connection. If the credentials or a certificate are
// refused, the sink is unavailable, so no delivery becomes dead after a password was changed
// on one side only. The files of tls and of a token are read for each connection.
//
// # Time
//
// A delivery takes at most the configured timeout. Then the client gives up its record, and
// all records of the partition that it holds. Other partitions are not affected.
//
// After its context has ended, a delivery waits another half second for its outcome, which
// is enough if the cluster answers. Then its record is given up in the same way, if need be
// by closing the client: the other deliveries of that client then fail as unavailable. So
// Deliver returns within about a second, and no record is left in a client that could send
// it later.
//
// A request that was in flight may still be stored. As with every request whose answer is
// lost, its delivery is repeated.
package kafka
