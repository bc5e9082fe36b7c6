package notification

import (
	"log/slog"
	"strings"
)

// Delivery is one envelope on its way to one sink. The engine makes it; a sink
// only reads it.
type Delivery struct {
	*Envelope
	// Sink is the sink's name in the configuration.
	Sink string
	// Attempt counts from 1. Attempts that the engine cancelled, or that found the sink
	// unavailable or throttled, are not counted.
	Attempt int
	// Revealed reports that private values of the envelope were decrypted for this call: what is kept of the
	// call must not have its payload.
	Revealed bool
}

// LogValue identifies the delivery in a log line.
func (d *Delivery) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("sink", d.Sink),
		slog.Int("attempt", d.Attempt),
		slog.String("type", d.Type),
		slog.String("id", d.ID),
	)
}

// Receipt is the sink's proof of a delivery, for people and for `waybill why`:
// "kafka orders/3@1042", "http 202", "smtp 250 queued as 7F3". "" is allowed
// where the destination gives no proof.
type Receipt string

// SupersededBy is the receipt of a notification that was not delivered, since a newer one of its group
// was delivered instead.
func SupersededBy(id string) Receipt { return Receipt(superseded + id) }

const superseded = "superseded by "

// SupersededBy returns the id of the newer notification, if the receipt is one of SupersededBy.
func (r Receipt) SupersededBy() (id string, is bool) { return strings.CutPrefix(string(r), superseded) }
