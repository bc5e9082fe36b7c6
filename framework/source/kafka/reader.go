package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

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
	fetched
	share *share
	// checkedIn is the leader epoch in which the position was checked, if checked is true.
	checkedIn int32
	checked   bool
	// silent is since when the leader sends nothing, although the partition goes on; zero if it does not.
	silent time.Time
}

var _ store.Reader = (*reader)(nil)

// Next reads the next page; see store.Reader.
func (r *reader) Next(ctx context.Context, to store.Target, limit int) (store.Page, error) {
	t, ok := to.(*target)
	if !ok {
		return store.Page{}, fmt.Errorf("target %T does not come from Kafka", to)
	}
	end, known := t.ends[r.at.partition]
	p := r.begin()
	var err error
	if !known || end < r.at.next {
		end, err = r.askEnd(ctx)
	}
	if err == nil {
		err = r.fill(p, end, limit, func() error { return r.fetch(ctx) })
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

// fill moves records before end to a page. It fetches if none is known, but only once: an answer whose records
// the filter excludes makes an empty page, so that a checkpoint moves past them.
func (r *reader) fill(p *page, end int64, limit int, fetch func() error) error {
	full := r.take(p, end, limit)
	if full || len(p.Envelopes) > 0 || r.at.next >= end {
		return nil
	}
	if err := fetch(); err != nil {
		return err
	}
	r.take(p, end, limit)
	return nil
}

// take moves fetched records before end to a page until it is full.
func (r *reader) take(p *page, end int64, limit int) (full bool) {
	for {
		if r.has(end) && (len(p.Envelopes) == limit || p.bytes >= pageBytes) {
			return true
		}
		record := r.next(end)
		if record == nil {
			return false
		}
		e := r.source.envelope(record)
		if !r.wants(&e) {
			continue
		}
		e.Offset, e.Slot = engineOffset(r.lane, record.Offset), r.lane
		p.Envelopes = append(p.Envelopes, e)
		p.after = append(p.after, r.at)
		p.bytes += len(e.Payload)
	}
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
		if _, err := r.bounds(ctx, c); err != nil || r.read != from.next {
			return err
		}
		return r.silence(ctx)
	case err != nil:
		return err
	case next <= r.read && start > r.read:
		return r.lost(start, "retention removed them")
	case next <= r.read:
		return r.silence(ctx)
	}
	r.share.giveBack()
	r.add(records, next, c.leaders[r.at.partition].epoch)
	r.silent = time.Time{}
	return nil
}

// silence waits after an answer without anything, and returns an error once that has gone on for as long as
// a request may take: a lane that waits must say so.
func (r *reader) silence(ctx context.Context) error {
	if r.silent.IsZero() {
		r.silent = time.Now()
	}
	if patience := r.source.config.timeout; time.Since(r.silent) >= patience {
		return fmt.Errorf("the leader has sent nothing for %s, although the partition goes on", patience)
	}
	pace.Sleep(ctx, emptyPause)
	return ctx.Err()
}

// askEnd asks the partition's leader where it ends, because the target does not have the partition, is old, or
// an election has removed records that were read. Such a target is not the end: the engine would take what was settled
// before the lease for read.
func (r *reader) askEnd(ctx context.Context) (end int64, err error) {
	c, err := r.placed(ctx)
	if err != nil {
		return 0, err
	}
	if _, configured := c.topics[r.at.name]; !configured {
		return 0, fmt.Errorf("the lane has stopped at %s, because source.kafka.topics no longer names the topic: name it again, or forget the sink and start it again", r.at)
	}
	return r.bounds(ctx, c)
}

// checkEpoch checks, once for each leader, whether an election has removed records that were read.
func (r *reader) checkEpoch(ctx context.Context, c *cluster) error {
	epoch := c.leaders[r.at.partition].epoch
	if r.checked && r.checkedIn == epoch || r.at.epoch < 0 || r.at.epoch == epoch {
		return nil
	}
	end, lost, err := r.source.diverges(ctx, r.at)
	if err != nil {
		return err
	}
	if lost {
		return r.truncated(end)
	}
	r.checked, r.checkedIn = true, epoch
	return nil
}

// bounds returns the end of the partition. It reports, or moves, a position before its beginning or after its end.
func (r *reader) bounds(ctx context.Context, c *cluster) (end int64, err error) {
	parts := []partition{r.at.partition}
	oldest, err := r.source.listAll(ctx, c, parts, earliest)
	if err != nil {
		return 0, err
	}
	ends, err := r.source.listAll(ctx, c, parts, latest)
	if err != nil {
		return 0, err
	}
	end = ends[r.at.partition].offset
	if start := oldest[r.at.partition].offset; start > r.read {
		return end, r.lost(start, "retention removed them")
	}
	if end < r.at.next {
		return end, r.truncated(end)
	}
	return end, nil
}

// lost reports the loss of the records from the position up to start, or skips them.
func (r *reader) lost(start int64, why string) error {
	from := r.at
	from.next = r.read
	if r.source.config.Lost != LostSkip {
		return fmt.Errorf("%w: %d records, from %s up to offset %d: %s; to continue after them, set source.kafka.lost: skip, or forget the sink and start it again with start: oldest", ErrLost, start-r.read, from, start-1, why)
	}
	r.source.config.Logger.Error("records were removed before they were read, and are skipped", "from", from.String(), "up_to", start-1, "records", start-r.read, "reason", why)
	r.move(start)
	return nil
}

// truncated reports that the partition ends before the position, or moves the position back to its end.
func (r *reader) truncated(end int64) error {
	if r.source.config.Lost != LostSkip {
		return fmt.Errorf("%w: the partition was read up to %s, but now ends at offset %d: an unclean election removed %d records, some of which may have been delivered; "+
			"to continue with later records, set source.kafka.lost: skip, or forget the sink and start it again with start: oldest", ErrLost, r.at, end, r.at.next-end)
	}
	r.source.config.Logger.Error("an unclean election removed records that were read: reading continues at the new end", "at", r.at.String(), "end", end)
	r.move(end)
	return nil
}
