package store

// Lane is a range of slots of one sink: the unit that one forwarder leases.
type Lane struct {
	Sink string
	// Database is the name of the lane's database in a forwarder of several databases; "" with a
	// single one. Stores leave it empty.
	Database string
	// Number counts from 0; Of is the sink's number of lanes.
	Number, Of int
	// Slots are the lane's slots.
	Slots SlotRange
}

// Slots is the number of slots. It is part of the stored data and can never change.
const Slots = 1024

// SlotRange is a closed range of slots.
type SlotRange struct{ First, Last int }

// All reports whether the range includes all slots.
func (r SlotRange) All() bool { return r.First == 0 && r.Last == Slots-1 }

// Lanes cuts the slots into count ranges of nearly equal size for a sink. count must be between
// 1 and Slots.
func Lanes(sink string, count int) []Lane {
	lanes := make([]Lane, count)
	for i := range lanes {
		lanes[i] = NewLane(sink, i, count)
	}
	return lanes
}

// NewLane returns one of the lanes of Lanes: number from 0 to of-1.
func NewLane(sink string, number, of int) Lane {
	return Lane{
		Sink:   sink,
		Number: number,
		Of:     of,
		Slots:  SlotRange{First: number * Slots / of, Last: (number+1)*Slots/of - 1},
	}
}
