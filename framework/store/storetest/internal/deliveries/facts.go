// Package deliveries has facts about sinks: their lanes, checkpoints and parked deliveries, and what they leave.
package deliveries

import "github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

// Groups are the facts by subject.
var Groups = []kit.Group{
	{"Lease", leaseFacts},
	{"Membership", membershipFacts},
	{"Presence", presenceFacts},
	{"Checkpoint", checkpointFacts},
	{"Parked", parkedFacts},
	{"Collections", collectionFacts},
	{"Sample", sampleFacts},
	{"Pruning", pruningFacts},
	{"Forget", forgetFacts},
	{"Types", typesFacts},
}
