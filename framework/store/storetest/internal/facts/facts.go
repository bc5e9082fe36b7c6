// Package facts has the contract of a store, fact by fact.
package facts

import "testing"

// fact is one sentence of the contract, and its test.
type fact struct {
	name  string
	check func(t *testing.T, o *Outbox)
}

// groups are the facts by subject.
var groups = []struct {
	name  string
	facts []fact
}{
	{"Reading", readingFacts},
	{"Filter", filterFacts},
	{"NewSink", newSinkFacts},
	{"Inbox", inboxFacts},
	{"Schedules", schedulesFacts},
	{"Claim", claimFacts},
	{"Lease", leaseFacts},
	{"Membership", membershipFacts},
	{"Checkpoint", checkpointFacts},
	{"Parked", parkedFacts},
	{"Sample", sampleFacts},
	{"Pruning", pruningFacts},
	{"Forget", forgetFacts},
	{"Types", typesFacts},
	{"Operator", operatorFacts},
	{"Replay", replayFacts},
	{"Reroute", rerouteFacts},
	{"Route", routeFacts},
	{"Trace", traceFacts},
	{"Related", relatedFacts},
	{"Browse", browseFacts},
	{"Cancel", cancelFacts},
	{"Values", valuesFacts},
}

// Check tests all facts, each in a separate database.
func Check(t *testing.T, d Dialect) {
	t.Run("Start", func(t *testing.T) { checkStart(t, d) })
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			for _, f := range g.facts {
				t.Run(f.name, func(t *testing.T) {
					t.Parallel()
					f.check(t, Open(t, d))
				})
			}
		})
	}
}
