package store

import (
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// ParkedFilter selects parked deliveries. Each field that is set narrows the selection; the
// zero value selects all.
type ParkedFilter struct {
	Sink string
	// ID is the notification's id.
	ID string
	// Types selects by type; the zero value means all types.
	Types  notification.TypeFilter
	Key    string
	States []State
	// Heads selects dead deliveries whose key has nothing parked before them. If dead
	// deliveries hold back their key, these are the ones that do.
	Heads bool
	// OlderThan and NewerThan bound how long ago a delivery was first parked, by the
	// database's clock.
	OlderThan, NewerThan time.Duration
	// Error is a part of the last error's text; case does not matter.
	Error string
	// Places selects single deliveries; if empty, all.
	Places []ParkedPlace
	// Until excludes deliveries that changed later, by the database's clock; zero: no bound.
	Until time.Time
}

// ParkedDelivery is a parked delivery as people see it.
type ParkedDelivery struct {
	Sink string
	Parked
	UpdatedAt time.Time
}

// ParkedPlace is where a list of parked deliveries continues.
type ParkedPlace struct {
	Sink string
	Ref
}

// Place returns the place of the delivery, after which a list continues.
func (d *ParkedDelivery) Place() ParkedPlace {
	return ParkedPlace{Sink: d.Sink, Ref: RefOf(&d.Envelope)}
}
