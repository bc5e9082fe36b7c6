package store

// Lane is a range of slots of one sink: the unit that one forwarder leases.
type Lane struct {
	Sink string
	// Database is the name of the lane's database in a forwarder that works on several; "" where there is
	// one. A store leaves it empty.
	Database string
	// Number counts from 0; Of is how many lanes the sink is cut into.
	Number, Of int
	// Slots are the first and the last slot that belong to the lane.
	Slots SlotRange
}

// Slots is how many slots there are. The number is part of the stored data and
// fixed for ever.
const Slots = 1024

// SlotRange is a closed range of slots.
type SlotRange struct{ First, Last int }

// All reports whether the range leaves nothing out.
func (r SlotRange) All() bool { return r.First == 0 && r.Last == Slots-1 }

// Lanes cuts the slots into count ranges of nearly equal size for a sink.
// count must be between 1 and Slots.
func Lanes(sink string, count int) []Lane {
	lanes := make([]Lane, count)
	for i := range lanes {
		lanes[i] = NewLane(sink, i, count)
	}
	return lanes
}

// NewLane is one of the lanes that Lanes gives: number from 0 to of-1.
func NewLane(sink string, number, of int) Lane {
	return Lane{
		Sink:   sink,
		Number: number,
		Of:     of,
		Slots:  SlotRange{First: number * Slots / of, Last: (number+1)*Slots/of - 1},
	}
}
