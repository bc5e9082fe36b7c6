// Package people has facts about what operators and publishers ask for and look at.
package people

import "github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

// Groups are the facts by subject.
var Groups = []kit.Group{
	{"Operator", operatorFacts},
	{"Replay", replayFacts},
	{"Reroute", rerouteFacts},
	{"Route", routeFacts},
	{"Trace", traceFacts},
	{"Related", relatedFacts},
	{"Browse", browseFacts},
	{"Collections", collectionFacts},
	{"Cancel", cancelFacts},
	{"Values", valuesFacts},
	{"Personal", personalFacts},
}
