// Package logs has facts about the log, and what is written in the transactions of publishers and consumers.
package logs

import "github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

// Groups are the facts by subject.
var Groups = []kit.Group{
	{"Reading", readingFacts},
	{"Filter", filterFacts},
	{"NewSink", newSinkFacts},
	{"Inbox", inboxFacts},
	{"Schedules", schedulesFacts},
	{"Claim", claimFacts},
	{"Endpoints", endpointFacts},
	{"Attempts", attemptFacts},
	{"Keys", keyFacts},
}
