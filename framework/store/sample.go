package store

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// Sampler reads figures for monitoring, again and again.
type Sampler interface {
	// Sample reads the outbox once. Its counts use indexes and stop at PendingLimit or
	// ParkedLimit for each sink, and counting pending rows stops after about CountTime, so that a
	// sample costs about the same however much is parked or pending, and in however many lanes.
	// It changes nothing. It uses several statements without a transaction: figures may
	// differ by what happens meanwhile.
	Sample(ctx context.Context, q SampleQuery) (Sample, error)
}

// SampleQuery is what the caller knows about the outbox.
type SampleQuery struct {
	// Types are the types of each sink, by its name, as in a StatusQuery. The sample includes
	// these sinks even if they have no cursors.
	Types map[string]notification.TypeFilter
}

// Sample is one look at an outbox, for machines.
type Sample struct {
	Sinks []SinkSample // by name
	// Forwarders is the number of running forwarders.
	Forwarders int
	// LastOffset is the highest assigned offset; for a source, the number of records so far.
	LastOffset int64
	// LogBytes is the size of the log with its indexes; in SQLite the size of the file.
	LogBytes int64
	// Oldest is the first row that is still in the log, or nil. For a source its offset is 1 if
	// nothing was removed before it, and otherwise 0.
	Oldest *Row
	// Source is the name of the source that is the log; "" for the database's own log. Keeps is
	// how long the source keeps rows, delivered or not; 0 means forever.
	Source string
	Keeps  time.Duration
	// Held is the age of the oldest open transaction that has written to the log, as far as the
	// database shows it to this role; 0 if there is none, and always in SQLite.
	Held time.Duration
}

// SinkSample is one sink in a sample.
type SinkSample struct {
	Sink string
	// Pending is the number of committed rows of the sink's types that are not settled, in all
	// of its lanes, up to PendingLimit.
	Pending int
	// Uncounted reports that there may be more, because counting stopped at the limit or ran
	// out of time. If Pending is 0 then, nothing is known.
	Uncounted bool
	// Lag is how long ago the oldest of these rows occurred, by the database's clock.
	Lag    time.Duration
	Paused bool
	// Owned and Free are the numbers of its lanes with and without an unexpired lease.
	Owned, Free int
	// Parked counts its parked deliveries.
	Parked ParkedFigures
	// Lanes are its lanes with cursors, by number.
	Lanes []LaneSample
}

// LaneSample is one lane of a sink: which of the counted rows, the oldest of the sink, are in
// this lane. If counting stopped at the limit, there may be more.
type LaneSample struct {
	CursorStatus
	Lag time.Duration // as for the sink
}

// Status returns the sample as a Status. holders are the sinks that keep rows in the log.
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
