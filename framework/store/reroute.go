package store

import "github.com/waybill-go/waybill/framework/notification"

// RerouteQuery selects deliveries that had no route.
type RerouteQuery struct {
	// Filter selects some of them; its Sink is not heeded, and without States it is
	// about all that can be moved.
	Filter ParkedFilter
	// Sinks are the types that go to each sink. What goes to none is left out.
	Sinks map[string]notification.TypeFilter
}

// Unrouted is the filter on what is parked.
func (q RerouteQuery) Unrouted() ParkedFilter {
	f := q.Filter
	f.Sink = SinkUnrouted
	if len(f.States) == 0 {
		f.States = []State{StateDead, StateScheduled}
	}
	return f
}

// RerouteCount is how many deliveries of a type have a route now.
type RerouteCount struct {
	Type  string `json:"type"`
	State State  `json:"state"`
	Count int64  `json:"count"`
}

// RerouteBatch is the next part of a reroute.
type RerouteBatch struct {
	RerouteQuery
	// Action is the id of the action that it belongs to.
	Action string
	After  Ref
	Limit  int
}

// RerouteResult is what came of a batch.
type RerouteResult struct {
	// Changed were moved; Left stay, since a sink has not settled them yet.
	Changed, Left int
	// Last is the delivery behind which the next batch begins.
	Last Ref
	// Done says that there is no next one.
	Done bool
}
