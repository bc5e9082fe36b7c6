// Package framework is a map of the packages below it; it contains no code. Programs usually need
// only the package above, waybill, or the program waybill. These packages are their parts, for
// programs that need more control.
//
// Publishing:
//
//   - notification: the values that all packages share, such as Envelope, Delivery and Receipt
//   - outbox: Publisher appends notifications to the log, in the application's transaction
//   - schedule: publishes notifications by the clock
//   - contract: the schemas of types, and which changes of them break consumers
//
// Delivering:
//
//   - route: decides by type which sinks get a notification
//   - settings: what a sink and a forwarder can be set to, with defaults and checks
//   - event: what an observer of a forwarder gets
//   - forwarder: delivers from the log to the sinks, in order for each key; see its Config
//   - forwarder/fleet: one forwarder for databases that come and go
//   - inbox: remembers ids, so that the effects of a repeated delivery happen once
//
// Databases:
//
//   - store: the interfaces between the packages here and a database
//   - store/postgres, store/mysql, store/sqlite: the implementations
//   - source/kafka: a Kafka topic in place of a database's log
//   - store/storetest: tests for implementations of store
//
// Operating:
//
//   - program: the command line, also for programs with their own sinks and types
//   - config: reads waybill.yaml
//   - admin: operations on an outbox, such as requeue, replay and pause
//   - dashboard: web pages and the admin API
//   - observe: metrics and health
//   - tracing: spans, and trace context in metadata
//   - doctor: checks of a database and a configuration
//
// Testing:
//
//   - waybilltest: helpers for the tests of an application that publishes
//   - crashtest: kills forwarders and databases, and checks every delivery
//   - store/postgres/postgrestest, store/mysql/mysqltest: database servers for tests
//
// The packages ../sinks, ../serializer and ../registry complete the list: destinations, payload
// formats, and the types that an application publishes.
package framework
