// Package kafka is the sink of kind "kafka": one Kafka record for each
// delivery, written with Watermill's Kafka publisher and marshaler.
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
// and one for each metadata under its own name: content-type and traceparent
// are then where CloudEvents and OpenTelemetry put them. The names differ from
// CloudEvents' ce_id, ce_type and so on, since the record does not claim to be
// a CloudEvent. Metadata that is
// named like one of the headers above is sent as "metadata-" and its name, so
// that it neither hides a header nor gets lost.
//
// Brokers delete by the record's timestamp. Replaying notifications that are
// older than the topic's retention writes records that soon disappear, and one
// that occurred later than the broker's clock allows is refused.
//
// # Events
//
// With the format cloudevents-binary the record is an event of CloudEvents
// 1.0.2, Kafka Protocol Binding, in binary mode: key, value and timestamp are the
// same, and the headers are ce_id, ce_source, ce_specversion, ce_type, ce_time,
// ce_partitionkey (the key), ce_payloadversion, content-type, and ce_ and the
// name for each metadata, as far as CloudEvents lets it be a name: lower case
// letters and digits. traceparent, tracestate and Watermill's id stand beside
// them under their own names.
//
// # The topic
//
// A topic with {{ in it is a text/template over the [notification.Envelope]. With
// a field's name, metadata that a notification lacks makes its delivery
// permanently undeliverable, as an illegal name does; Get makes it "". What the
// template is made of should be the same for all notifications of a key: Kafka
// knows no order between topics. Each topic is looked for ahead of its first
// record, with one client for all. One that is unknown, or refused, is transient and
// not what it is where the configuration names it: only the notifications that name it
// wait, and go through if it is created or granted before their attempts are spent.
//
// # Order
//
// A key is hashed to its partition with murmur2 exactly as the Java client does
// it, so other producers of the topic agree on where a key lives. Records
// without a key are spread over the partitions that can be written.
//
// The engine never has one key in flight twice, and Deliver returns only when
// the outcome is known, so the next record of a key is not even made before
// the one ahead of it is stored: no retry inside the client, and no restart of
// a broker, can swap them. One hole remains without idempotence: a request
// whose answer was lost is sent again, and the first one, still waiting in the
// broker, may be stored after newer records of its key. An idempotent
// producer's broker recognizes such a copy and drops it; that is why idempotent
// is on by default.
//
// # Batches
//
// The engine hands over what may go, up to batch.size deliveries, and the sink
// gives them to the client at once. Watermill's Publish would wait for each
// record before it sends the next; so a batch goes to the sarama producer that
// the publisher stands on, with the same marshaler, configuration and producer
// id. The client makes requests of all that waits, from several batches as well.
// A batch ends with its last record, and each record has its own result.
//
// A batch has one record of each key. More would need a client that stops a
// partition at its first failure, and sarama does not: it may have given a later
// record of the key to the broker by then. Of 1,600 records in batches with five of
// each key, with a third of the requests refused, 24 to 56 were written behind
// one of their key that had failed. What that costs stands in docs/sinks-kafka.md.
//
// # What idempotent costs
//
// An idempotent producer has one request in flight to each broker instead of
// five. Against a broker in the same machine that costs nothing measurable.
// Over a network with a round trip of 2 ms and 256 single deliveries in flight
// over 6 partitions it took 19,000 records/s instead of 36,000 (36,000 and 41,000
// on one partition): records of all partitions wait for the same round trip.
// Batches bring that back, more partitions do not.
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
// SASL and TLS are checked with each connection. Brokers that refuse the
// credentials, or a certificate on either side that does, make the sink
// unavailable: nothing dies of a password that was changed on one side only. The
// files of tls, and that of a token, are read for each connection.
//
// # Consumers
//
// [Envelope] reads a record back, with whatever client it was consumed. What it returns
// can be handed to a sink of functions: see its example.
//
// # Time
//
// Watermill's Publish and sarama's producer take no context, and what they were given
// cannot be called back: sarama would go on to send it, after the engine has tried the
// delivery again, and later ones of its key. So a delivery whose context has ended
// waits for its outcome for half a second more, which is enough where the cluster
// answers. Then the sink cuts the connections of the producer, which fails all that the
// producer holds, and replaces it. So Deliver returns within about a second, and nothing
// is left behind in the client. The deliveries beside it fail as well, unavailable: also
// those to other brokers than the silent one. So the sink's timeout is to be longer than
// this kind's, with which the client gives up a record by itself and leaves the others
// alone: 30 s and 10 s by default.
//
// A request that was on its way may be stored all the same. That is no other than with
// any request whose answer is lost: its delivery is repeated.
//
// Without a context's end, the client's own limits end a delivery within the configured
// timeout; deliveries that wait behind others for a broker that fell silent may take as
// long again.
//
// After three failures to find a partition's leader, sarama waits 10 seconds
// before it asks again. So the first delivery after an outage can be that late.
package kafka
