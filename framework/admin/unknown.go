package admin

import (
	"context"
	"fmt"
	"slices"

	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
)

// isUnknown reports whether a delivery waits because the forwarder's program does not know its type or version: the
// class of its last error is sinks.ClassUnknown.
func isUnknown(p *store.ParkedDelivery) bool {
	class, _ := p.Failure()
	return class == "unknown"
}

// unknown says what a delivery of an unknown type or version waits for.
func (l *Look) unknown(p *store.ParkedDelivery) string {
	first := p.FirstParkedAt
	if p.Envelope.DeliverAt.After(first) {
		first = p.Envelope.DeliverAt
	}
	return fmt.Sprintf("waits, with no attempt spent: %s version %d is not known to %s; deploy a program that knows it, or it is dead at %s",
		p.Envelope.Type, p.Envelope.Version, forwarderText(l.ownerOf(p)), timeText(first.Add(settings.UnknownAge)))
}

// ownerOf returns the forwarder that works on the lane of a parked delivery; "" if none does.
func (l *Look) ownerOf(p *store.ParkedDelivery) string {
	i := slices.IndexFunc(l.Membership.Lanes, func(s store.LaneState) bool {
		return s.Lane.Sink == p.Sink && s.Lane.Slots.First <= p.Envelope.Slot && p.Envelope.Slot <= s.Lane.Slots.Last
	})
	if i < 0 {
		return ""
	}
	return l.Membership.Lanes[i].Owner
}

func forwarderText(owner string) string {
	if owner == "" {
		return "the forwarder that tried it"
	}
	return "forwarder " + owner
}

// unknownLook is how many retrying deliveries UnknownTypes looks at.
const unknownLook = 1000

// UnknownTypes returns a trouble for each type of a sink that waits because the program of its forwarder knows neither
// it nor its version. The sample of the look must have the sink. It looks at the first thousand retrying deliveries, as far
// as BrowseParked finds them.
func (a *Admin) UnknownTypes(ctx context.Context, look *Look, sink string) (all []Trouble, err error) {
	i := slices.IndexFunc(look.Sample.Sinks, func(s store.SinkSample) bool { return s.Sink == sink })
	if i < 0 || look.Sample.Sinks[i].Parked.Count(store.StateRetrying) == 0 {
		return nil, nil
	}
	page, err := a.BrowseParked(ctx, Filter{Sink: sink, States: []store.State{store.StateRetrying}}, store.ParkedPlace{}, unknownLook)
	if err != nil {
		return nil, err
	}
	counts := make(map[string]int)
	for i := range page.Deliveries {
		p := &page.Deliveries[i]
		if !isUnknown(p) {
			continue
		}
		name := fmt.Sprintf("%s version %d", p.Envelope.Type, p.Envelope.Version)
		if counts[name]++; counts[name] == 1 {
			all = append(all, Trouble{Sink: sink, What: UnknownType, Text: name, Cause: failureText(p), Forwarder: look.ownerOf(p)})
		}
	}
	for i := range all {
		t := &all[i]
		t.Count = counts[t.Text]
		t.Text = because(fmt.Sprintf("%s of %s, which %s does not know", deliveries(t.Count), t.Text, forwarderText(t.Forwarder)), t.Cause)
	}
	return all, nil
}
