package notification

import (
	"log/slog"
	"regexp"
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
	// Revealed reports that private values of the envelope were decrypted for this call: what is kept of the call
	// must not have its payload.
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

// proved matches the part of a receipt that is not the destination's own text.
var proved = regexp.MustCompile(`^(?:(?:http|smtp) [1-5]\d\d\b|kafka \S+@\d+$|endpoint deleted$|superseded by [0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$)`)

// Proof returns the part of a receipt that is not the destination's own text, such as "smtp 250"; "" if there is none
// or it is not known. The rest may repeat private data.
func (r Receipt) Proof() Receipt { return Receipt(proved.FindString(string(r))) }

// Cut returns the receipt with at most limit bytes of the destination's own text, as the setting answer_bytes has it.
func (r Receipt) Cut(limit int) Receipt {
	if len(r) <= limit {
		return r
	}
	if end := len(r.Proof()) + limit; end < len(r) {
		r = Receipt(strings.TrimSpace(strings.ToValidUTF8(string(r[:end]), "")))
	}
	return r
}
