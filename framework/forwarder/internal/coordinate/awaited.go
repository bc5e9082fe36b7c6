package coordinate

import (
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// awaited is what another forwarder has of the sinks of which this one has no lane.
type awaited struct {
	sinks []string
	lanes int
	left  time.Duration // until the last of its leases runs out, unless it renews them
}

// awaitedOf are the owners whose lanes this forwarder would need to deliver to some of
// its sinks at all. That is so for a moment where work spreads, and for a lease where a
// forwarder has died.
func (k *Coordinator) awaitedOf(membership store.Membership) map[string]awaited {
	works := make(map[string]bool)
	for id := range k.held {
		works[id.sink] = true
	}
	owners := make(map[string]awaited)
	for _, l := range membership.Lanes {
		_, ours := k.Sinks[l.Lane.Sink]
		if !ours || works[l.Lane.Sink] || l.Paused || l.Owner == "" || l.Owner == k.Owner {
			continue
		}
		a := owners[l.Owner]
		if !slices.Contains(a.sinks, l.Lane.Sink) {
			a.sinks = append(a.sinks, l.Lane.Sink)
		}
		a.lanes++
		a.left = max(a.left, l.Left)
		owners[l.Owner] = a
	}
	return owners
}

// logAwaited logs once each owner whose leases are awaited, so that a silence after a
// crash is explained. It logs the owner again only after there was nothing to await of it
// in between.
func (k *Coordinator) logAwaited(membership store.Membership) {
	owners := k.awaitedOf(membership)
	for _, owner := range slices.Sorted(maps.Keys(owners)) {
		if a := owners[owner]; !k.awaited[owner] {
			k.Logger.Info("waiting for lanes that another forwarder has leased, until it gives some back or its leases run out",
				"owner", owner, "sinks", a.sinks, "lanes", a.lanes, "leased_until", time.Now().Add(a.left).UTC().Format(time.RFC3339))
		}
	}
	k.awaited = make(map[string]bool, len(owners))
	for owner := range owners {
		k.awaited[owner] = true
	}
}
