package looks

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/store/internal/tables"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Sample looks at the outbox once; see store.Sampler.
func (t *Looks) Sample(ctx context.Context, q store.SampleQuery) (sample store.Sample, err error) {
	if sample, err = t.sample(ctx, q); err != nil {
		return store.Sample{}, t.run.Failed(err, "take a sample")
	}
	return sample, nil
}

func (t *Looks) sample(ctx context.Context, q store.SampleQuery) (sample store.Sample, err error) {
	target, err := t.run.Probe(ctx)
	if err != nil {
		return sample, err
	}
	var now time.Time
	if err := t.run.Row(ctx, t.run.DB, `SELECT {now}`).Scan(t.run.Into(&now)); err != nil {
		return sample, err
	}
	sample.LastOffset = target.Last()
	cursors, err := t.run.Cursors(ctx, t.run.DB, "")
	if err != nil {
		return sample, err
	}
	sinks := make(map[string]*store.SinkSample)
	for sink := range q.Types {
		sinks[sink] = &store.SinkSample{Sink: sink}
	}
	waiting, estimated, err := t.waiting(ctx, cursors, q, target)
	if err != nil {
		return sample, err
	}
	for i := range cursors {
		c := &cursors[i]
		if sinks[c.Sink] == nil {
			sinks[c.Sink] = &store.SinkSample{Sink: c.Sink}
		}
		_, known := typesOf(c, q)
		c.Estimated, c.AllTypes = estimated[c.Sink], !known || t.run.Source != nil
		sampleCursor(c, waiting[i], now, sinks[c.Sink])
	}
	for _, sink := range slices.Sorted(maps.Keys(sinks)) {
		if sinks[sink].Parked, err = t.parkedFigures(ctx, sink); err != nil {
			return sample, err
		}
		sample.Sinks = append(sample.Sinks, *sinks[sink])
	}
	if err := t.run.Row(ctx, t.run.DB, `SELECT count(*) FROM {forwarders} WHERE live_until > {now} {whole forwarders}`).Scan(&sample.Forwarders); err != nil {
		return sample, err
	}
	return sample, t.run.Extent(ctx, &sample)
}

// typesOf returns the types that count for a sink: what the outbox says that it takes, or else what the caller says.
func typesOf(c *tables.Cursor, q store.SampleQuery) (types notification.TypeFilter, known bool) {
	if c.Types != nil {
		return *c.Types, true
	}
	if types, known = q.Types[c.Sink]; !known {
		types = notification.AllTypes
	}
	return types, known
}

// sampleCursor adds one lane to its sink.
func sampleCursor(c *tables.Cursor, before waited, now time.Time, s *store.SinkSample) {
	s.Paused, s.Estimated = s.Paused || c.Paused, c.Estimated
	if c.Owner == "" {
		s.Free++
	} else {
		s.Owned++
	}
	lane := store.LaneSample{CursorStatus: c.CursorStatus}
	if before.rows > 0 {
		lane.Pending, lane.Lag = before.rows, max(now.Sub(before.oldest), 0)
		s.Mark = markOf(s.Mark, c)
	}
	s.Lanes = append(s.Lanes, lane)
	s.Pending += lane.Pending
	s.Lag = max(s.Lag, lane.Lag)
}

// markOf adds the place of a cursor to the mark of its sink.
func markOf(before uint64, c *tables.Cursor) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, before, c.Lane, string(c.Position), store.EncodeOffsets(c.Ahead)) // a hash does not fail
	return h.Sum64()
}
