package store

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// Sampler takes figures for monitoring, over and over.
type Sampler interface {
	// Sample looks at the outbox once. Each of its counts stops at PendingLimit or ParkedLimit of a
	// sink, and goes along an index, and counting what is pending ends after about CountTime, so that a
	// sample costs about the same whatever is parked or pending, and in however many lanes. It
	// changes nothing, and is several statements without a transaction: figures may differ by
	// what happens meanwhile.
	Sample(ctx context.Context, q SampleQuery) (Sample, error)
}

// SampleQuery is what the caller knows of the outbox.
type SampleQuery struct {
	// Types are those that go to each sink, by its name, as in a StatusQuery. These sinks are
	// in the sample also where they have no cursors.
	Types map[string]notification.TypeFilter
}

// Sample is one look at an outbox, for machines.
type Sample struct {
	Sinks []SinkSample // by name
	// Forwarders are those that live.
	Forwarders int
	// LastOffset is the highest offset handed out; of a source how many records there were.
	LastOffset int64
	// LogBytes is the size of the log with its indexes; in SQLite that of the file.
	LogBytes int64
	// Oldest is the first row that is still in the log; nil if there is none. That of a source
	// has the offset 1 if nothing was removed before it, and else none.
	Oldest *Row
	// Source is the name of the source that is the log; "" where that is in the database. Keeps is
	// for how long it keeps rows, whether they were delivered or not; 0: for ever.
	Source string
	Keeps  time.Duration
	// Held is for how long the oldest open transaction that has written to the log has been
	// open, as far as the database shows it to this role; 0 if there is none, and always
	// in SQLite.
	Held time.Duration
}

// SinkSample is one sink in a sample.
type SinkSample struct {
	Sink string
	// Pending counts committed rows of the sink's types that are not settled, over all of its lanes
	// and up to PendingLimit.
	Pending int
	// Uncounted says that there may be more: counting stopped at the limit, or there was no
	// time for it. With nothing pending that was found, nothing is known.
	Uncounted bool
	// Lag is how long ago the oldest of these occurred, by the database's clock.
	Lag    time.Duration
	Paused bool
	// Owned and Free count its lanes: with an unexpired lease, and without.
	Owned, Free int
	// Parked is what is parked for it.
	Parked ParkedFigures
	// Lanes are its lanes that have cursors, by number.
	Lanes []LaneSample
}

// LaneSample is how a sink stands with one lane: of its rows that were counted, the oldest first, these
// are some. Where that stopped at the limit there may be more.
type LaneSample struct {
	CursorStatus
	Lag time.Duration // as for the sink
}

// Status is the sample for people. holders are the sinks that keep rows in the log.
func (s *Sample) Status(holders []Holder) Status {
	status := Status{Source: s.Source, LastOffset: s.LastOffset, Oldest: s.Oldest, Holders: holders}
	figures := make([]ParkedFigures, len(s.Sinks))
	for i := range s.Sinks {
		figures[i] = s.Sinks[i].Parked
		for _, lane := range s.Sinks[i].Lanes {
			status.Cursors = append(status.Cursors, lane.CursorStatus)
		}
	}
	status.Parked = ParkedCounts(figures)
	return status
}
