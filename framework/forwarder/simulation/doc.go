// Package simulation runs fleets of forwarders in simulated time, to find out what cannot be
// measured on one machine: many forwarders, thousands of tenants, a million notifications a second.
//
// The decisions are those of the engine, by its own code: which forwarder takes which lane, whose turn it is,
// when a breaker opens, when a delivery is tried again, how long a forwarder waits for its next look.
// What surrounds them is a model: a database answers, and a destination takes a delivery, after a
// time that is given. Nothing here uses a processor for as long as the real thing does, so a simulated
// rate says what the slots and rules allow, and not what a machine bears.
//
//   - [Handover]: how long lanes have no forwarder when one dies, leaves or joins.
//   - [Looks]: what forwarders that have nothing to do ask of their databases.
//   - [Tenants]: what dead tenants cost the others.
//
// Equal configurations, with equal seeds, have equal results. The values are for one goroutine each.
//
// The files in the order in which to read them: events.go, handover.go, looks.go, tenants.go, process.go,
// histogram.go.
package simulation
