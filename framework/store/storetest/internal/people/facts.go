// Package people has the facts about what people find and change, and what publishers take back.
package people

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
		group("Operator", operatorFacts),
		group("Replay", replayFacts),
		group("Reroute", rerouteFacts),
		group("Route", routeFacts),
		group("Trace", traceFacts),
		group("Related", relatedFacts),
		group("Browse", browseFacts),
		group("Cancel", cancelFacts),
		group("Values", valuesFacts),
	}
}
