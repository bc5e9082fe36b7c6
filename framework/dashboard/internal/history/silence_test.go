package history_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard/internal/history"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/store"
)

// silent is a store that does not answer while hangs is set. It counts samples.
type silent struct {
	admin.Store
	hangs   atomic.Bool
	samples atomic.Int32
}

func (s *silent) Sample(ctx context.Context, q store.SampleQuery) (store.Sample, error) {
	s.samples.Add(1)
	if s.hangs.Load() {
		<-ctx.Done()
		return store.Sample{}, errors.New("canceled")
	}
	return s.Store.Sample(ctx, q)
}

// watchSilent returns a silent store and its history.
func watchSilent(t *testing.T, path string) (*silent, *history.History) {
	t.Helper()
	outbox, _ := openStore(t, path)
	s := &silent{Store: outbox}
	current := new(target.Current)
	h := history.New(current, slog.New(slog.DiscardHandler))
	t.Cleanup(current.Show(target.Target{Store: s}))
	t.Cleanup(h.Close)
	h.Begin()
	return s, h
}

func TestADatabaseThatHangsDelaysNoOneAndIsNamed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	synctest.Test(t, func(t *testing.T) {
		s, h := watchSilent(t, path)
		synctest.Wait()
		require.NoError(t, h.Snapshot(t.Context()).Err)

		s.hangs.Store(true)
		time.Sleep(3 * time.Second)
		began := time.Now()
		now := h.Snapshot(t.Context()) // requests another sample
		require.NoError(t, now.Err)
		require.Less(t, time.Since(began), time.Second)
		time.Sleep(11 * time.Second)
		now = h.Snapshot(t.Context())
		require.ErrorContains(t, now.Err, "has not answered for 11s")
		require.False(t, now.At.IsZero(), "the last figures stay")
		time.Sleep(time.Minute) // the sample times out
		require.Error(t, h.Snapshot(t.Context()).Err)

		s.hangs.Store(false)
		samples := s.samples.Load()
		time.Sleep(time.Minute) // a sample that still hangs times out
		h.Snapshot(t.Context())
		time.Sleep(3 * time.Second)
		require.NoError(t, h.Snapshot(t.Context()).Err, "the duration of a failed sample does not delay the next one")
		require.Greater(t, s.samples.Load(), samples)
	})
}

func TestOneSampleServesAllUntilItIsOldOrRenewed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	synctest.Test(t, func(t *testing.T) {
		s, h := watchSilent(t, path)
		samples := func() int {
			t.Helper()
			_, err := h.Wait(t.Context())
			require.NoError(t, err)
			h.Snapshot(t.Context())
			return int(s.samples.Load())
		}
		require.Equal(t, 1, samples())
		require.Equal(t, 1, samples())
		h.Renew()
		require.Equal(t, 2, samples())
		time.Sleep(3 * time.Second)
		require.Equal(t, 3, samples())

		s.hangs.Store(true)
		h.Renew()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := h.Wait(short)
		require.ErrorIs(t, err, context.DeadlineExceeded, "an outdated snapshot is not returned")
	})
}

func TestAForwarderThatIsStartingCounts(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, filepath.Join(t.TempDir(), "outbox.db"))
	current := new(target.Current)
	t.Cleanup(current.Show(target.Target{Store: s, Forwarder: newForwarder(t, s)}))
	h := history.New(current, slog.New(slog.DiscardHandler))
	t.Cleanup(h.Close)
	h.Refresh(t.Context())
	require.Equal(t, 1, h.Snapshot(t.Context()).Sample.Forwarders)
}
