// Package deliveries has the facts about leases, checkpoints, what is parked, and what is removed.
package deliveries

import (
	"testing"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"
)

// outbox adds what only these facts use.
type outbox struct{ *kit.Outbox }

// fact is one sentence of the contract, and its test.
type fact struct {
	Name  string
	Check func(t *testing.T, o *outbox)
}

// Groups returns the facts.
func Groups() []kit.Group {
	group := func(name string, facts []fact) kit.Group {
		return kit.GroupOf(name, func(o *kit.Outbox) *outbox { return &outbox{o} }, facts)
	}
	return []kit.Group{
		group("Lease", leaseFacts),
		group("Membership", membershipFacts),
		group("Checkpoint", checkpointFacts),
		group("Parked", parkedFacts),
		group("Status", statusFacts),
		group("Sample", sampleFacts),
		group("Pruning", pruningFacts),
		group("Forget", forgetFacts),
		group("Types", typesFacts),
	}
}
