// Package kafka has a forwarder read topics of Apache Kafka in place of the outbox of a
// database: the second stage, behind one that writes an outbox to Kafka once. Slow sinks then
// cost the application's database nothing.
//
// A [Source] takes the place of the log in a store. Cursors, leases and what is parked stay in
// the tables of that store, PostgreSQL or SQLite, so that deliveries have all that they
// have behind an outbox: retries, dead letters, order by key.
//
// A lane is a partition, and its lease decides which forwarder works on it. There is no consumer group,
// since a group has no fence: a member that was evicted goes on delivering until it notices.
// The settled prefixes are copied into a group for each sink, so that Kafka's own tools show how
// far it is.
//
// Only what is committed is read (isolation read_committed). A position names the topic by its
// id, the partition, the next offset, and the leader epoch of the record before, by which an
// election that lost records is found. What retention, or such an election, took before a sink
// had it stops the lane, with an error that says what is gone: see Config.Lost.
//
// The files in the order in which to read them: config.go, source.go, cluster.go, position.go, reader.go,
// kept.go, record.go, waiting.go, group.go.
package kafka
