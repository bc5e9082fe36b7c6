package quota_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder/internal/quota"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// stuck is a store whose statements end with their context; it counts those that run.
type stuck struct {
	quota.Store
	running atomic.Int64
}

func (s *stuck) wait(ctx context.Context) error {
	s.running.Add(1)
	defer s.running.Add(-1)
	<-ctx.Done()
	return ctx.Err()
}

func (s *stuck) Checkpoint(ctx context.Context, _ store.Checkpoint) error { return s.wait(ctx) }
func (s *stuck) Heartbeat(ctx context.Context, _ store.Member, _ time.Duration) error {
	return s.wait(ctx)
}

func (s *stuck) Due(ctx context.Context, _ store.DueQuery) ([]store.Parked, time.Time, error) {
	return nil, time.Time{}, s.wait(ctx)
}

func (s *stuck) NewReader(json.RawMessage, store.Filter) (store.Reader, error) {
	return endless{s}, nil
}

func checkpointOf(sink string) store.Checkpoint {
	return store.Checkpoint{Lease: store.Lease{Lane: store.NewLane(sink, 0, 1)}}
}

// runs starts calls and returns the number of statements that run once all goroutines are blocked.
func (s *stuck) runs(call func(), times int) int64 {
	before := s.running.Load()
	for range times {
		go call()
	}
	synctest.Wait()
	return s.running.Load() - before
}

func TestNoKindOfStatementStarvesAnother(t *testing.T) {
	t.Parallel()
	for connections, want := range map[int]struct{ sink, writing, reading int64 }{
		4: {1, 0, 1}, // the one connection for writing is in use by the other sink
		5: {1, 0, 2},
		8: {2, 1, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			defer synctest.Wait()
			defer end()
			s := &stuck{}
			b := quota.New(s, connections)
			require.Equal(t, want.sink, s.runs(func() { _ = b.Checkpoint(ctx, checkpointOf("locked")) }, 100), "for one sink")
			require.Equal(t, want.writing, s.runs(func() { _ = b.Checkpoint(ctx, checkpointOf("other")) }, 100), "for another sink")
			require.Equal(t, want.reading, s.runs(func() { _, _, _ = b.Due(ctx, store.DueQuery{}) }, 100))
			require.EqualValues(t, 1, s.runs(func() { _ = b.Heartbeat(ctx, store.Member{}, time.Second) }, 100))
			require.EqualValues(t, connections-1, s.running.Load(), "one is for the feed")
		})
	}
}

// endless is a reader that never returns a page.
type endless struct{ *stuck }

func (e endless) Next(ctx context.Context, _ store.Target, _ int) (store.Page, error) {
	return store.Page{Envelopes: []notification.Envelope{}}, e.wait(ctx)
}

func TestReadingBacklogsLeavesAConnectionForParkedDeliveries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer end()
		s := &stuck{}
		b := quota.New(s, 8)
		require.EqualValues(t, 2, s.runs(func() {
			r, _ := b.NewReader(nil, store.Filter{})
			_, _ = r.Next(ctx, nil, 1)
		}, 100))
		require.EqualValues(t, 1, s.runs(func() { _, _, _ = b.Due(ctx, store.DueQuery{}) }, 100))
	})
}

func TestAWaitingStatementObservesItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer end()
		s := &stuck{}
		b := quota.New(s, 4)
		go func() { _ = b.Checkpoint(ctx, checkpointOf("a")) }()
		synctest.Wait()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err := b.Checkpoint(short, checkpointOf("b"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "forwarder's connections")
		require.EqualValues(t, 1, s.running.Load())
	})
}

// silent is a store whose log is elsewhere and never answers.
type silent struct{ quota.Store }

func (silent) Source() store.Source { return struct{ store.Source }{} }

func (silent) Probe(ctx context.Context) (store.Target, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (silent) Due(context.Context, store.DueQuery) ([]store.Parked, time.Time, error) {
	return nil, time.Time{}, nil
}

func TestALogElsewhereTakesNoConnection(t *testing.T) {
	t.Parallel()
	b := quota.New(silent{}, quota.Least)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 8)
	for range cap(ended) {
		go func() { _, err := b.Probe(ctx); ended <- err }()
	}
	soon, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	time.Sleep(10 * time.Millisecond)
	_, _, err := b.Due(soon, store.DueQuery{})
	require.NoError(t, err)
	end()
	for range cap(ended) {
		require.Error(t, <-ended)
	}
}
