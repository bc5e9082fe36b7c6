package observe

import (
	"slices"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/store"
)

// Join returns an observer that calls several observers in order. It leaves out nil ones, and
// returns nil if there are no others.
func Join(observers ...forwarder.Observer) forwarder.Observer {
	all := slices.DeleteFunc(slices.Clone(observers), func(o forwarder.Observer) bool { return o == nil })
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return joined(all)
}

// joined calls each of several observers.
type joined []forwarder.Observer

var _ forwarder.Observer = joined(nil)

func (j joined) Attempt(a forwarder.Attempt) {
	for _, o := range j {
		o.Attempt(a)
	}
}

func (j joined) Batch(b forwarder.Batch) {
	for _, o := range j {
		o.Batch(b)
	}
}

func (j joined) Parked(p forwarder.Parked) {
	for _, o := range j {
		o.Parked(p)
	}
}

func (j joined) Dead(p forwarder.Parked) {
	for _, o := range j {
		o.Dead(p)
	}
}

func (j joined) Checkpoint(c forwarder.Checkpoint) {
	for _, o := range j {
		o.Checkpoint(c)
	}
}

func (j joined) LeaseWon(lane store.Lane) {
	for _, o := range j {
		o.LeaseWon(lane)
	}
}

func (j joined) LeaseLost(lane store.Lane, err error) {
	for _, o := range j {
		o.LeaseLost(lane, err)
	}
}

func (j joined) Breaker(b forwarder.BreakerChange) {
	for _, o := range j {
		o.Breaker(b)
	}
}

func (j joined) Throttle(t forwarder.Throttling) {
	for _, o := range j {
		o.Throttle(t)
	}
}

func (j joined) Wake(w forwarder.Wake) {
	for _, o := range j {
		o.Wake(w)
	}
}

func (j joined) DatabaseError(op forwarder.DatabaseOp, err error) {
	for _, o := range j {
		o.DatabaseError(op, err)
	}
}

func (j joined) Rebased(lane store.Lane, reason string) {
	for _, o := range j {
		o.Rebased(lane, reason)
	}
}

func (j joined) Pruned(p forwarder.Pruned) {
	for _, o := range j {
		o.Pruned(p)
	}
}
