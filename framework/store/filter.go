package store

import (
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// ParkedFilter selects parked deliveries. Each field that is set leaves out some;
// the zero value matches all.
type ParkedFilter struct {
	Sink string
	// ID is the notification's.
	ID string
	// Types selects nothing in its zero value, which therefore counts as all.
	Types  notification.TypeFilter
	Key    string
	States []State
	// Heads selects dead deliveries that have a key, and none of it parked before
	// them: where dead ones hold back their key, those that do.
	Heads bool
	// OlderThan and NewerThan bound how long ago a delivery was parked for the
	// first time, by the database's clock.
	OlderThan, NewerThan time.Duration
	// Error is a part of the text of the last error, in any case.
	Error string
	// Places selects some by name; none: all.
	Places []ParkedPlace
	// Until leaves out what has changed since, by the database's clock; zero: nothing.
	Until time.Time
}

// ParkedDelivery is a parked delivery as people look at it.
type ParkedDelivery struct {
	Sink string
	Parked
	UpdatedAt time.Time
}

// ParkedPlace is where a list of parked deliveries goes on.
type ParkedPlace struct {
	Sink string
	Ref
}

// Place is the one behind the delivery.
func (d *ParkedDelivery) Place() ParkedPlace {
	return ParkedPlace{Sink: d.Sink, Ref: RefOf(&d.Envelope)}
}
