package store

import "github.com/waybill-go/waybill/framework/notification"

// RerouteQuery selects deliveries that had no route.
type RerouteQuery struct {
	// Filter narrows the selection. Its Sink is ignored; without States, all states that can be
	// moved are selected.
	Filter ParkedFilter
	// Sinks are the types of each sink. Types without a sink are left out.
	Sinks map[string]notification.TypeFilter
}

// Unrouted returns the filter of the parked deliveries.
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

// RerouteResult is the result of a batch.
type RerouteResult struct {
	// Changed is how many were moved; Left is how many stay, since a sink has not settled them.
	Changed, Left int
	// Last is the delivery after which the next batch begins.
	Last Ref
	// Done reports that there is no next batch.
	Done bool
}
