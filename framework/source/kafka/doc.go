// Package kafka makes a forwarder read topics of Apache Kafka instead of the outbox of a database:
// the second stage, behind a forwarder that writes an outbox to Kafka once. Then slow sinks cost the
// application's database nothing.
//
// A [Source] replaces the log of a store. Cursors, leases and parked deliveries stay in the tables
// of the store, in PostgreSQL, MySQL or SQLite. So deliveries have the same retries, dead letters and
// order by key as those from an outbox.
//
// A lane is a partition, and its lease decides which forwarder works on it. There is no consumer
// group, since a group has no fencing: an evicted member continues to deliver until it notices. The
// settled prefixes are committed to a group for each sink, so that Kafka's tools show its lag.
//
// The source reads only committed records (isolation level read_committed). A position names the
// topic by its id, the partition, the next offset, and the leader epoch of the previous record. The
// epoch reveals an election that lost records. If retention or such an election removes records
// that a sink has not settled, the lane stops with an error that names them: see Config.Lost.
//
// The files in the order in which to read them: config.go, source.go, cluster.go, position.go,
// reader.go, fetched.go, kept.go, record.go, waiting.go, group.go.
package kafka
