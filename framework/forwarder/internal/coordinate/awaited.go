package coordinate

import (
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// awaited describes the lanes that another forwarder has leased, of sinks for which this one has none.
type awaited struct {
	sinks []string
	lanes int
	left  time.Duration // until the last of its leases expires, unless they are renewed
	few   bool          // a sink has fewer lanes than there are forwarders
}

// awaitedOf returns the forwarders whose lanes this one needs to be able to deliver to some of
// its sinks. There are some for a moment while work spreads, and until a lease expires if a forwarder
// has died.
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
		a.few = a.few || l.Lane.Of < len(membership.Members)
		a.left = max(a.left, l.Left)
		owners[l.Owner] = a
	}
	return owners
}

// logAwaited logs each owner whose leases are awaited once, to explain the silence after a crash.
// It logs an owner again only if nothing of it was awaited in between.
func (k *Coordinator) logAwaited(membership store.Membership) {
	owners := k.awaitedOf(membership)
	for _, owner := range slices.Sorted(maps.Keys(owners)) {
		if a := owners[owner]; !k.awaited[owner] {
			log := k.Logger.With("owner", owner, "sinks", a.sinks, "lanes", a.lanes, "leased_until", time.Now().Add(a.left).UTC().Format(time.RFC3339))
			if a.few {
				log = log.With("hint", "there are fewer lanes than forwarders, so some only stand by: raise outbox.lanes to use all of them")
			}
			log.Info("waiting for lanes leased by another forwarder, until it releases some or its leases expire")
		}
	}
	k.awaited = make(map[string]bool, len(owners))
	for owner := range owners {
		k.awaited[owner] = true
	}
}
