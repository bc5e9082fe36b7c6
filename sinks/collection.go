package sinks

import (
	"context"
	"fmt"

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

// Common returns what of returns for the members of a collection, for a setting that has one value
// for each delivery, such as a URL that comes from data. All members must have the same, because a
// collection goes to one place. Otherwise, or if of fails, nothing can be sent: the error is
// [Invalid], and with different values it wraps a [*DifferError].
func Common[T comparable](c *Collection, setting string, of func(*notification.Delivery) (T, error)) (common T, err error) {
	for i, d := range c.Members {
		value, err := of(d)
		switch {
		case err != nil:
			return common, Invalid(err)
		case i == 0:
			common = value
		case value != common:
			return common, Invalid(&DifferError{setting, c.Members[0].ID, d.ID})
		}
	}
	return common, nil
}

// DifferError means that two members of a collection have different values for a setting of which
// a delivery has one. It does not quote them, because they may be secret.
type DifferError struct {
	// Setting is the setting or the template.
	Setting string
	// One and Other are the ids of two members.
	One, Other string
}

func (e *DifferError) Error() string {
	return fmt.Sprintf("%s: differs between %s and %s of a collection, which is one delivery; what it depends on must be part of by, in collect",
		e.Setting, e.One, e.Other)
}
