// Package policy holds the delivery settings of a sink, with their defaults and checks, and the
// types that apply them at run time.
//
//   - [Parallelism], [OnDead]: values that the dispatcher follows.
//   - [Adaptive], applied by [Governor]: how many calls are in flight if no number is given.
//   - [Retry]: when a failed delivery is tried again.
//   - [Breaker], applied by [Circuit]: when a whole sink waits.
//   - [Rate], applied by [Limiter]: how many deliveries begin in a period.
//
// Package forwarder exports the settings under the same names. The types read no clock and use
// no locks: the caller passes the time, and guards them.
package policy
