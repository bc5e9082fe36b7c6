// Package simulation runs fleets of forwarders in simulated time, to find out what cannot be
// measured on one machine: many forwarders, thousands of tenants, a million notifications a second.
//
// The code of the engine makes the decisions: which forwarder leases which lane, which delivery is next,
// when a breaker opens, when a delivery is tried again, how long a forwarder waits for its next
// look. Everything around them is a model: a database answers, and a destination takes a delivery,
// after a given time. Nothing here uses as much processor time as the real thing, so a simulated
// rate shows what the slots and rules allow, not what a machine can do.
//
//   - [Handover]: how long lanes have no forwarder when one dies, leaves or joins.
//   - [Looks]: how many statements idle forwarders make.
//   - [Tenants]: what dead tenants cost the others.
//
// Equal configurations with equal seeds have equal results. The types are not safe for concurrent
// use.
package simulation
