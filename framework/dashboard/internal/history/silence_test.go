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

	"github.com/waybill-go/waybill/framework/dashboard/internal/history"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/store"
)

// silent is a store that does not answer, while it is so.
type silent struct {
	target.Store
	hangs atomic.Bool
	looks atomic.Int32
}

func (s *silent) Sample(ctx context.Context, q store.SampleQuery) (store.Sample, error) {
	s.looks.Add(1)
	if s.hangs.Load() {
		<-ctx.Done()
		return store.Sample{}, errors.New("canceled")
	}
	return s.Store.Sample(ctx, q)
}

// watchSilent has a history look at an outbox that falls silent when it is told to.
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
		require.NoError(t, h.Look(t.Context()).Err)

		s.hangs.Store(true)
		time.Sleep(3 * time.Second)
		began := time.Now()
		look := h.Look(t.Context()) // asks for another one
		require.NoError(t, look.Err)
		require.Less(t, time.Since(began), time.Second)
		time.Sleep(11 * time.Second)
		look = h.Look(t.Context())
		require.ErrorContains(t, look.Err, "has not answered for 11s")
		require.False(t, look.At.IsZero(), "the last figures stay")
		time.Sleep(time.Minute) // the look is given up
		require.Error(t, h.Look(t.Context()).Err)

		s.hangs.Store(false)
		looks := s.looks.Load()
		time.Sleep(time.Minute) // the one that hung when it answered again
		h.Look(t.Context())
		time.Sleep(3 * time.Second)
		require.NoError(t, h.Look(t.Context()).Err, "what a look took that failed does not count")
		require.Greater(t, s.looks.Load(), looks)
	})
}

func TestOneLookServesAllUntilItIsOldOrSomethingWasDone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	synctest.Test(t, func(t *testing.T) {
		s, h := watchSilent(t, path)
		looks := func() int {
			t.Helper()
			_, err := h.Wait(t.Context())
			require.NoError(t, err)
			h.Look(t.Context())
			return int(s.looks.Load())
		}
		require.Equal(t, 1, looks())
		require.Equal(t, 1, looks())
		h.Renew()
		require.Equal(t, 2, looks())
		time.Sleep(3 * time.Second)
		require.Equal(t, 3, looks())

		s.hangs.Store(true)
		h.Renew()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := h.Wait(short)
		require.ErrorIs(t, err, context.DeadlineExceeded, "what was seen before is not what there is now")
	})
}

func TestAForwarderThatIsAboutToBeginRuns(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, filepath.Join(t.TempDir(), "outbox.db"))
	current := new(target.Current)
	t.Cleanup(current.Show(target.Target{Store: s, Forwarder: newForwarder(t, s)}))
	h := history.New(current, slog.New(slog.DiscardHandler))
	t.Cleanup(h.Close)
	h.Refresh(t.Context())
	require.Equal(t, 1, h.Look(t.Context()).Sample.Forwarders)
}
