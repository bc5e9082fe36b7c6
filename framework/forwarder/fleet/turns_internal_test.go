package fleet

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDatabasesWithWorkTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(1, 10*time.Second)
		first, end, err := turns.begin(t.Context())
		require.NoError(t, err)
		require.Equal(t, 10*time.Second, turns.sleep())
		time.Sleep(time.Hour)
		require.NoError(t, first.Err(), "no database waits")

		began := make(chan func())
		go func() {
			_, end, err := turns.begin(t.Context())
			if err == nil {
				began <- end
			}
		}()
		synctest.Wait()
		require.Equal(t, hurried, turns.sleep(), "a database without work ends its turn")
		select {
		case <-first.Done():
		case <-time.After(2 * hurried):
			require.Fail(t, "the turn continues although another database waits")
		}
		select {
		case <-began:
			require.Fail(t, "two are awake at once")
		default:
		}
		end()
		endSecond := <-began
		require.Equal(t, 10*time.Second, turns.sleep())
		endSecond()
	})
}

func TestATurnHasAMinimumDuration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(1, time.Minute)
		start := time.Now()
		turn, end, err := turns.begin(t.Context())
		require.NoError(t, err)
		waiting, giveUp := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() {
			_, _, err := turns.begin(waiting)
			failed <- err
		}()
		<-turn.Done()
		require.Equal(t, leastTurn, time.Since(start))
		giveUp()
		require.ErrorIs(t, <-failed, context.Canceled, "a database that is stopped no longer waits")
		end()
		_, end, err = turns.begin(t.Context())
		require.NoError(t, err, "it does not use a turn")
		end()
	})
}

func TestWithoutABoundNoOneWaits(t *testing.T) {
	t.Parallel()
	for _, turns := range []*turns{newTurns(0, time.Minute), newTurns(1, 0)} {
		for range 3 {
			turn, end, err := turns.begin(t.Context())
			require.NoError(t, err)
			require.NoError(t, turn.Err())
			defer end()
		}
	}
}
