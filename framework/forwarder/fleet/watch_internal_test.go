package fleet

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
)

// numbered is a store of which only the identity matters.
type numbered struct {
	forwarder.Store
	number int
}

// asleep makes the databases from to upTo sleep until the test ends.
func asleep(t *testing.T, w *watch, from, upTo int, connects bool) {
	t.Helper()
	for i := from; i < upTo; i++ {
		o := Outbox{Store: &numbered{number: i}, Connects: connects}
		go func() { _ = w.sleep(t.Context(), &member{}, o, &forwarder.Idle{Until: time.Now().Add(time.Hour)}, 0) }()
	}
	synctest.Wait()
}

func TestDatabasesThatNeedAConnectionAreLookedAtInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(slog.New(slog.DiscardHandler), 2)
		asleep(t, w, 0, 6, true)
		asleep(t, w, 6, 8, false)
		looks := make(map[int]int)
		for range 6 {
			connecting := 0
			for g, sleepers := range w.due() {
				g.busy = false
				looks[sleepers[0].Store.(*numbered).number]++
				if sleepers[0].Connects {
					connecting++
				}
			}
			require.Equal(t, 2, connecting)
			time.Sleep(lookPause)
		}
		require.Equal(t, map[int]int{0: 2, 1: 2, 2: 2, 3: 2, 4: 2, 5: 2, 6: 6, 7: 6}, looks)
	})
}

func TestACallThatComesBeforeADatabaseSleepsWakesIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(slog.New(slog.DiscardHandler), 0)
		calls := w.called()
		w.wakeAll()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		idle := &forwarder.Idle{Until: time.Now().Add(time.Hour)}
		require.NoError(t, w.sleep(ctx, &member{}, Outbox{Store: &numbered{}}, idle, calls))
		require.NoError(t, ctx.Err(), "the sinks may have changed since it was found to be idle")
		require.NoError(t, w.sleep(ctx, &member{}, Outbox{Store: &numbered{}}, idle, w.called()))
		require.Error(t, ctx.Err(), "the database slept")
	})
}
