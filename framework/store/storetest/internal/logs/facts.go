// Package logs has the facts about the log and what is published to it.
package logs

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
		{Name: "Start", Run: runStart},
		group("Reading", readingFacts),
		group("Filter", filterFacts),
		group("NewSink", newSinkFacts),
		group("Inbox", inboxFacts),
		group("Schedules", schedulesFacts),
		group("Claim", claimFacts),
	}
}
