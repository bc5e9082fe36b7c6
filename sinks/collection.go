package sinks

import (
	"context"

	"github.com/waybill-go/waybill/framework/notification"
)

// Collection is several notifications of a group that are delivered as one: all or none of them.
type Collection struct {
	// Sink is the name of the sink.
	Sink string
	// ID identifies the collection, and with it the delivery: a repeat has the same ID and the same
	// members, whatever attempt or process makes it. It is a UUID.
	ID string
	// Group is the name of the group, such as a key or a recipient. It is not empty.
	Group string
	// Attempt is the number of this attempt, from 1.
	Attempt int
	// Members are the notifications, in log order; there is at least one. Their attempts are that of
	// the collection.
	Members []*notification.Delivery
}

// Collector is a sink that can deliver a collection as one, for the setting collect. The engine
// calls DeliverCollection instead of Deliver for collections, also for those with a single member.
//
// The rules of [Sink] apply: calls may overlap, though never for one group, the context limits the
// call, and the collection must not be kept or changed afterwards. An error is about the collection
// as a whole; its class decides what happens to all members.
type Collector interface {
	Sink

	// CollectionSize returns the largest number of members that a collection may have; 0: any.
	CollectionSize() int

	// DeliverCollection makes one delivery of all members.
	DeliverCollection(ctx context.Context, c *Collection) (notification.Receipt, error)
}
