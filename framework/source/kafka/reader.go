package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

const (
	// fetchBytes is the approximate size of a broker's answer, unless its first batch is larger. A reader
	// keeps what does not fit in a page; see maxKept.
	fetchBytes = 256 << 10
	// pageBytes is the approximate limit of all payloads of a page.
	pageBytes = 8 << 20
	// emptyPause is how long a reader waits if the last stable offset of a partition is ahead but there
	// are no records.
	emptyPause = 20 * time.Millisecond
)

// ErrLost means that records were removed before a lane had read them.
var ErrLost = errors.New("records were removed before they were read")

// reader reads a partition. It sends its own fetch requests to the leader: a consumer for each lane
// of each sink would need separate connections and buffers.
type reader struct {
	source *Source
	lane   int
	filter store.Filter
	at     position
	// fetched has the records after at that no page has returned yet. read is the offset after them,
	// and readEpoch the epoch of the leader that sent them.
	fetched   []*kgo.Record
	read      int64
	readEpoch int32
	size      int64 // of the answer to which fetched belongs
	share     *share
	// epoch is the leader epoch in which the position was checked; 0 if it was not checked yet.
	epoch   int32
	checked bool
}

var _ store.Reader = (*reader)(nil)

// Next reads the next page; see store.Reader.
func (r *reader) Next(ctx context.Context, to store.Target, limit int) (store.Page, error) {
	t, ok := to.(*target)
	if !ok {
		return store.Page{}, fmt.Errorf("target %T does not come from Kafka", to)
	}
	end, known := t.ends[r.at.partition]
	if !known {
		return store.Page{Start: r.at, End: r.at, CaughtUp: true}, r.gone(ctx)
	}
	p := r.begin()
	full := r.take(p, end, limit)
	var err error
	switch {
	case full || len(p.Envelopes) > 0:
	case end < r.at.next:
		err = r.beyond(ctx)
	case end > r.at.next:
		// A fetch of records that the filter excludes makes an empty page, so that a checkpoint moves past
		// them.
		if err = r.fetch(ctx); err == nil {
			r.take(p, end, limit)
		}
	}
	r.keep()
	if err != nil {
		return store.Page{}, fmt.Errorf("read %s: %w", r.at, err)
	}
	p.End, p.CaughtUp = r.at, r.at.next >= end
	return p.Page, nil
}

// page is a page under construction.
type page struct {
	store.Page
	after []position // the position after each envelope
	bytes int
}

func (r *reader) begin() *page {
	p := &page{Page: store.Page{Start: r.at}}
	p.After = func(i int) store.Position { return p.after[i] }
	return p
}

// take moves fetched records before end to a page until it is full.
func (r *reader) take(p *page, end int64, limit int) (full bool) {
	for len(r.fetched) > 0 && r.fetched[0].Offset < end {
		if len(p.Envelopes) == limit || p.bytes >= pageBytes {
			return true
		}
		record := r.fetched[0]
		r.fetched[0], r.fetched = nil, r.fetched[1:]
		e := r.source.envelope(record)
		r.at.next, r.at.epoch = record.Offset+1, record.LeaderEpoch
		if !r.wants(&e) {
			continue
		}
		e.Offset, e.Slot = engineOffset(r.lane, record.Offset), r.lane
		p.Envelopes = append(p.Envelopes, e)
		p.after = append(p.after, r.at)
		p.bytes += len(e.Payload)
	}
	if len(r.fetched) == 0 {
		if next := min(r.read, end); next > r.at.next { // after control records and records of aborted transactions
			r.at.next, r.at.epoch = next, r.readEpoch
		}
	}
	return false
}

func (r *reader) wants(e *notification.Envelope) bool {
	f := &r.filter
	return f.Types.Matches(e.Type) && !e.OccurredOn.Before(f.Since) && (f.Until.IsZero() || e.OccurredOn.Before(f.Until))
}

// placed returns the metadata of the cluster if the position belongs to it.
func (r *reader) placed(ctx context.Context) (*cluster, error) {
	c, err := r.source.recent(ctx)
	if err == nil {
		err = c.check(r.at)
	}
	return c, err
}

// fetch reads the next records from the partition's leader.
func (r *reader) fetch(ctx context.Context) error {
	s := r.source
	c, err := r.placed(ctx)
	if err != nil {
		return err
	}
	if err := r.checkEpoch(ctx, c); err != nil {
		return err
	}
	from := r.at
	from.next = r.read
	records, next, start, err := s.fetch(ctx, c, from, fetchBytes)
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange):
		return r.outOfRange(ctx, c)
	case err != nil:
		return err
	case next <= r.read && start > r.read:
		return r.lost(start, "retention removed them")
	case next <= r.read:
		pace.Sleep(ctx, emptyPause)
		return ctx.Err()
	}
	r.fetched, r.read, r.readEpoch, r.size = records, next, c.leaders[r.at.partition].epoch, sizeOf(records)
	return nil
}

// beyond finds out why a target is before the position: an election has removed records that were read,
// or the target is old.
func (r *reader) beyond(ctx context.Context) error {
	c, err := r.placed(ctx)
	if err != nil {
		return err
	}
	return r.outOfRange(ctx, c)
}

// checkEpoch checks, once for each leader, whether an election has removed records that were read.
func (r *reader) checkEpoch(ctx context.Context, c *cluster) error {
	epoch := c.leaders[r.at.partition].epoch
	if r.checked && r.epoch == epoch || r.at.epoch < 0 || r.at.epoch == epoch {
		return nil
	}
	end, lost, err := r.source.diverges(ctx, r.at)
	if err != nil {
		return err
	}
	if lost {
		return r.truncated(end)
	}
	r.checked, r.epoch = true, epoch
	return nil
}

// outOfRange finds out whether the position is before the beginning or after the end of the partition.
func (r *reader) outOfRange(ctx context.Context, c *cluster) error {
	parts := []partition{r.at.partition}
	oldest, err := r.source.listAll(ctx, c, parts, earliest)
	if err != nil {
		return err
	}
	if start := oldest[r.at.partition].offset; start > r.read {
		return r.lost(start, "retention removed them")
	}
	ends, err := r.source.listAll(ctx, c, parts, latest)
	if err != nil {
		return err
	}
	if end := ends[r.at.partition].offset; end < r.at.next {
		return r.truncated(end)
	}
	return nil // the partition has grown meanwhile
}

// lost reports the loss of the records from the position up to start, or skips them.
func (r *reader) lost(start int64, why string) error {
	from := r.at
	from.next = r.read
	if r.source.config.Lost != LostSkip {
		return fmt.Errorf("%w: %d records, from %s up to offset %d: %s; to continue after them, set source.kafka.lost: skip, or forget the sink and start it again with start: oldest", ErrLost, start-r.read, from, start-1, why)
	}
	r.source.config.Logger.Error("records were removed before they were read, and are skipped", "from", from.String(), "up_to", start-1, "records", start-r.read, "reason", why)
	r.fetched, r.read = nil, start
	r.at.next, r.at.epoch = start, -1
	return nil
}

// truncated reports that the partition ends before the position, or moves the position back to its end.
func (r *reader) truncated(end int64) error {
	if r.source.config.Lost != LostSkip {
		return fmt.Errorf("%w: the partition was read up to %s, but now ends at offset %d: an unclean election removed %d records, some of which may have been delivered; "+
			"to continue with later records, set source.kafka.lost: skip, or forget the sink and start it again with start: oldest", ErrLost, r.at, end, r.at.next-end)
	}
	r.source.config.Logger.Error("an unclean election removed records that were read: reading continues at the new end", "at", r.at.String(), "end", end)
	r.fetched, r.read = nil, end
	r.at.next, r.at.epoch = end, -1
	return nil
}

// gone returns an error if the target does not have the partition because its topic is no longer
// configured. It returns nil if the partition only has no leader now.
func (r *reader) gone(ctx context.Context) error {
	c, err := r.placed(ctx)
	if err != nil {
		return err
	}
	if _, configured := c.topics[r.at.name]; !configured {
		return fmt.Errorf("the lane has stopped at %s, because source.kafka.topics no longer names the topic: name it again, or forget the sink and start it again", r.at)
	}
	return nil
}
