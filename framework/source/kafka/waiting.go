package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/framework/store"
)

// Waiting fetches the first record of each lane with a backlog, for its age.
func (s *Source) Waiting(ctx context.Context, lanes []store.LanePosition, to store.Target) ([]store.Waiting, error) {
	t, ok := to.(*target)
	if !ok {
		return nil, fmt.Errorf("target %T does not come from Kafka", to)
	}
	c, err := s.recent(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, store.CountTime)
	defer cancel()
	waiting := make([]store.Waiting, len(lanes))
	var looking errgroup.Group
	looking.SetLimit(8)
	for i, lane := range lanes {
		p, err := parsePosition(lane.Position)
		if err != nil {
			return nil, err
		}
		waiting[i].Rows = max(0, t.ends[p.partition]-p.next)
		if waiting[i].Rows > 0 {
			looking.Go(func() error {
				waiting[i].Oldest = s.oldest(ctx, c, p, t.ends[p.partition])
				return nil
			})
		}
	}
	return waiting, looking.Wait()
}

// ages caches when the first records after positions occurred, so that a stopped lane costs only one
// fetch.
type ages struct {
	mu sync.Mutex
	of map[place]time.Time
}

// place is the position of a record.
type place struct {
	partition
	offset int64
}

// maxAges limits the cache; it has room for all lanes of several sinks.
const maxAges = 8 * store.Slots

// oldest returns when the first remaining record after a position occurred; zero if there is none up to
// the end, or if it is not known.
func (s *Source) oldest(ctx context.Context, c *cluster, p position, end int64) time.Time {
	at := place{p.partition, p.next}
	s.ages.mu.Lock()
	age, known := s.ages.of[at]
	s.ages.mu.Unlock()
	if known {
		return age
	}
	if age = s.fetchOldest(ctx, c, p, end); age.IsZero() {
		return age
	}
	s.ages.mu.Lock()
	defer s.ages.mu.Unlock()
	if len(s.ages.of) >= maxAges {
		clear(s.ages.of)
	}
	s.ages.of[at] = age
	return age
}

func (s *Source) fetchOldest(ctx context.Context, c *cluster, p position, end int64) time.Time {
	for p.next < end {
		records, next, _, err := s.fetch(ctx, c, p, 1)
		switch {
		case errors.Is(err, kerr.OffsetOutOfRange): // earlier records are gone: the lane is at least as late as the first remaining one
			starts, err := s.listAll(ctx, c, []partition{p.partition}, earliest)
			if err != nil {
				return time.Time{}
			}
			next = starts[p.partition].offset
		case err != nil:
			return time.Time{}
		case len(records) > 0:
			at, _ := occurred(records[0])
			return at
		}
		if next <= p.next {
			return time.Time{}
		}
		p.next = next
	}
	return time.Time{}
}

// Extent returns the oldest record, and how long the topics keep records.
func (s *Source) Extent(ctx context.Context) (e store.Extent, err error) {
	c, err := s.recent(ctx)
	if err != nil {
		return e, err
	}
	starts, _, err := s.list(ctx, c, c.parts, earliest, false)
	if err != nil {
		return e, err
	}
	e.Whole = true
	for _, l := range starts {
		e.Whole = e.Whole && l.offset == 0
	}
	first, _, err := s.list(ctx, c, c.parts, 0, false)
	if err != nil {
		return e, err
	}
	for _, l := range first {
		if l.offset >= 0 && (e.Oldest.IsZero() || l.at.Before(e.Oldest)) {
			e.Oldest = l.at
		}
	}
	e.Keeps = s.keeps(ctx)
	return e, nil
}

// keeps returns the shortest retention of the topics; 0 means forever or not known.
func (s *Source) keeps(ctx context.Context) (keeps time.Duration) {
	for _, config := range s.configs(ctx) {
		var ms int64
		if _, err := fmt.Sscan(config["retention.ms"], &ms); err != nil || ms <= 0 {
			continue
		}
		if d := time.Duration(min(ms, int64(1<<62/time.Millisecond))) * time.Millisecond; keeps == 0 || d < keeps {
			keeps = d
		}
	}
	return keeps
}
