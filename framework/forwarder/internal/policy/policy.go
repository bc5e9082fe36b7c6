// Package policy holds the settings by which deliveries to a sink are made, with their
// defaults and checks, and the machines that apply them while deliveries run.
//
//   - [Parallelism], [OnDead]: values that the dispatcher follows.
//   - [Adaptive], and its machine [Governor]: how many calls are in flight where no number is given.
//   - [Retry]: when a delivery that failed is tried again.
//   - [Breaker], and its machine [Circuit]: when a sink waits as a whole.
//   - [Rate], and its machine [Limiter]: how many deliveries begin in a time.
//
// Package forwarder makes the settings public under the same names. The machines read
// no clock and lock nothing: the caller passes the time, and guards the machine.
package policy
