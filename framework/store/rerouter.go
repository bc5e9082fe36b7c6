package store

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// Rerouter is a Store that can take up what had no route when it was read: what is
// dead or scheduled under SinkUnrouted goes to the sinks that routes name now.
type Rerouter interface {
	// CountReroute counts what a reroute is about, by type and state, in their order.
	CountReroute(ctx context.Context, q RerouteQuery) ([]RerouteCount, error)

	// Reroute moves the next deliveries behind b.After, at most b.Limit, in log order,
	// as part of an action: each is parked for every sink of its type and gone from
	// SinkUnrouted, in one transaction. The first one of a key is retrying and due, the
	// others are blocked behind it, and all of them behind what is parked of the key;
	// scheduled ones keep their time.
	//
	// One that a sink of its type has not settled yet, and whose row is still in the
	// log, stays where it is: a forwarder with the routes delivers it from the log, one
	// without passes over it, and nobody can tell which. A sink that has it parked
	// already, or has a receipt of it, gets it no second time.
	//
	// A sink of its type that has no cursors gives ErrUnknownSink; ErrOtherLog if they
	// are not of this log. Nothing of the batch is done then.
	Reroute(ctx context.Context, b RerouteBatch) (RerouteResult, error)
}

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
	// DueAt is when the deliveries are due.
	DueAt time.Time
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
