// Package policy applies the delivery settings of a sink (package settings) at run time:
//
//   - [Governor] applies an Adaptive: how many calls are in flight if no number is given.
//   - [Circuit] applies a Breaker: when a whole sink waits.
//   - [Limiter] applies a Rate: how many deliveries begin in a period.
//
// The types read no clock and use no locks: the caller passes the time, and guards them.
package policy
