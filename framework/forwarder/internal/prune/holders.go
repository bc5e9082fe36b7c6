package prune

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// holders logs sinks that keep rows after their retention: once, and again when the reason
// changes. A sink that this forwarder does not know may have been removed from the
// configuration, and would keep its rows forever.
type holders struct {
	log       *slog.Logger
	sinks     func() []string // of this forwarder
	retention time.Duration
	latest    map[string]string // why a sink keeps rows, as of the latest pass
	warned    map[string]string // the same, as it was logged
}

func newHolders(c Config) holders {
	return holders{log: c.Logger, sinks: c.Sinks, retention: c.Retention, warned: make(map[string]string)}
}

// warn logs the sinks that keep rows, after a pass.
func (h *holders) warn(found []store.Holder) {
	holding := make(map[string]string)
	for _, f := range found {
		if time.Since(f.OccurredOn)-2*interval(h.retention) < h.retention {
			continue // only just old enough, or not yet
		}
		why := f.Reason
		if why == "" {
			why = "it has not settled them"
		}
		holding[f.Sink] = why
		if h.latest[f.Sink] != why || h.warned[f.Sink] == why {
			continue // a cursor may be about to be created: the next pass shows it
		}
		h.warned[f.Sink] = why
		log := h.log.With("sink", f.Sink, "offset", f.Offset, "occurred_on", f.OccurredOn, "why", why)
		if slices.Contains(h.sinks(), f.Sink) {
			log.Warn("a sink keeps rows that are older than the retention")
			continue
		}
		log.Warn("a sink that this forwarder does not have keeps rows that are older than the retention; " +
			"if no other forwarder has it, run `waybill forget " + f.Sink + "`")
	}
	h.latest = holding
	maps.DeleteFunc(h.warned, func(sink, _ string) bool { return holding[sink] == "" })
}
