package keyqueue_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder/internal/keyqueue"
)

func TestTheFirstDeliveryOfAKeyBeginsAndTheOthersWaitInOrder(t *testing.T) {
	t.Parallel()
	ks := keyqueue.New[int]()
	require.True(t, ks.Idle("k"))
	require.Equal(t, keyqueue.Go, ks.Enqueue("k", 1))
	require.Equal(t, keyqueue.Wait, ks.Enqueue("k", 2))
	require.Equal(t, keyqueue.Wait, ks.Enqueue("k", 3))
	require.Equal(t, keyqueue.Go, ks.Enqueue("other", 4), "keys do not wait for each other")
	require.False(t, ks.Idle("k"))
	require.Equal(t, 2, ks.Waiting("k"))
	require.Equal(t, map[string]int{"k": 2}, ks.Crowded(0))
	require.Equal(t, map[string]int{"k": 2}, ks.Crowded(2))
	require.Empty(t, ks.Crowded(3))
	for _, want := range []int{2, 3} {
		next, ok, ask := ks.Next("k")
		require.Equal(t, want, next)
		require.True(t, ok)
		require.False(t, ask)
	}
	_, ok, ask := ks.Next("k")
	require.False(t, ok)
	require.False(t, ask, "no delivery of the key was parked")
	require.True(t, ks.Idle("k"))
	require.Equal(t, keyqueue.Go, ks.Enqueue("k", 5))
}

func TestAKeyWhoseHeadIsParkedParksLaterDeliveries(t *testing.T) {
	t.Parallel()
	ks := keyqueue.New[int]()
	ks.Enqueue("k", 1)
	ks.Enqueue("k", 2)
	ks.Enqueue("k", 3)
	require.Equal(t, []int{2, 3}, ks.Hold("k"))
	require.True(t, ks.Idle("k"))
	require.Zero(t, ks.Waiting("k"))
	require.Equal(t, keyqueue.Park, ks.Enqueue("k", 4))

	require.Equal(t, keyqueue.Go, ks.Resume("k", 1, true))
	require.Equal(t, keyqueue.Park, ks.Enqueue("k", 5), "earlier deliveries are in the table")
	_, ok, ask := ks.Next("k")
	require.False(t, ok)
	require.True(t, ask, "the next delivery is in the table")
	require.Equal(t, keyqueue.Go, ks.Resume("k", 2, true))
	require.Equal(t, keyqueue.Wait, ks.Resume("k", 3, true))
	next, ok, _ := ks.Next("k")
	require.True(t, ok)
	require.Equal(t, 3, next)
}

func TestAKeyIsFreeOnceItsParkedDeliveriesAreWrittenAndGone(t *testing.T) {
	t.Parallel()
	ks := keyqueue.New[int]()
	ks.Enqueue("k", 1)
	ks.Hold("k")
	before := ks.Parking()
	require.Equal(t, keyqueue.Park, ks.Enqueue("k", 2), "parked behind the number that is being written")
	free, ask := ks.Free("k", before)
	require.False(t, free, "the table does not show it yet")
	require.True(t, ask)
	written := ks.Parking()
	free, ask = ks.Free("k", written)
	require.True(t, free)
	require.False(t, ask)
	require.Equal(t, keyqueue.Go, ks.Enqueue("k", 3))
	free, ask = ks.Free("k", written)
	require.False(t, free, "it was free already")
	require.False(t, ask)
	free, ask = ks.Free("never met", written)
	require.False(t, free)
	require.False(t, ask)
}

func TestAKeyThatIsNotFreeYetAsksAgainOnlyIfItHasNoHead(t *testing.T) {
	t.Parallel()
	ks := keyqueue.New[int]()
	ks.Enqueue("k", 1)
	require.Empty(t, ks.Spill("k"))
	free, ask := ks.Free("k", ks.Parking()-1)
	require.False(t, free)
	require.False(t, ask, "the key is asked for when the head ends")
	free, _ = ks.Free("k", ks.Parking())
	require.True(t, free)
	require.False(t, ks.Idle("k"), "its head is in flight")
	require.Equal(t, keyqueue.Wait, ks.Enqueue("k", 2))
}

func TestAScheduledDeliveryDoesNotOvertakeBlockedOnes(t *testing.T) {
	t.Parallel()
	ks := keyqueue.New[int]()
	require.Equal(t, keyqueue.Go, ks.Resume("k", 1, false))
	require.Equal(t, keyqueue.Wait, ks.Enqueue("k", 2), "a scheduled head blocks no delivery in the table")
	require.Equal(t, keyqueue.Wait, ks.Resume("k", 3, false))
	require.Equal(t, []int{2, 3}, ks.Hold("k"))
	require.Equal(t, keyqueue.Refuse, ks.Resume("k", 3, false))
	require.True(t, ks.Idle("k"))
	require.Equal(t, keyqueue.Go, ks.Resume("k", 1, true), "the head itself blocks them")
}

func TestSpillHoldsTheKeyAndLeavesItsHead(t *testing.T) {
	t.Parallel()
	ks := keyqueue.New[int]()
	ks.Enqueue("k", 1)
	ks.Enqueue("k", 2)
	ks.Enqueue("k", 3)
	require.Equal(t, []int{2, 3}, ks.Spill("k"))
	require.False(t, ks.Idle("k"))
	require.Empty(t, ks.Crowded(0))
	require.Equal(t, keyqueue.Park, ks.Enqueue("k", 4))
	_, ok, ask := ks.Next("k")
	require.False(t, ok)
	require.True(t, ask)
}

func TestAPoppedDeliveryThatIsPutBackIsFirst(t *testing.T) {
	t.Parallel()
	ks := keyqueue.New[int]()
	for i := 1; i <= 4; i++ {
		ks.Enqueue("k", i)
	}
	two, _ := ks.Pop("k")
	three, _ := ks.Pop("k")
	require.Equal(t, []int{2, 3}, []int{two, three})
	require.Equal(t, 1, ks.Waiting("k"))
	ks.Unpop("k", three)
	ks.Unpop("k", two)
	require.Equal(t, []int{2, 3, 4}, ks.Hold("k"))
	ks.Resume("k", 1, true)
	_, ok := ks.Pop("k")
	require.False(t, ok)
}

func TestAComparisonAsksForKeysThatLostTheirHead(t *testing.T) {
	t.Parallel()
	ks := keyqueue.New[int]()
	require.True(t, ks.Held("no head", false))
	require.False(t, ks.Held("head", true), "it will be due without a comparison")
	ks.Resume("in flight", 1, true)
	require.False(t, ks.Held("in flight", false), "the key is asked for when its head ends")
	require.Empty(t, ks.Compared())
	require.Equal(t, keyqueue.Park, ks.Enqueue("no head", 2))

	ks.Held("no head", true)
	require.Equal(t, []string{"head"}, ks.Compared(), "an operator removed it")
	ks.Parking()
	free, _ := ks.Free("head", ks.Parking())
	require.True(t, free)
	ks.Held("no head", true)
	ks.Resume("in flight", 3, true)
	require.Empty(t, ks.Compared())
}

func TestDeliveriesParkedDuringAComparisonAreNotMissed(t *testing.T) {
	t.Parallel()
	ks := keyqueue.New[int]()
	ks.Enqueue("k", 1)
	ks.Hold("k") // the table was read before
	require.Empty(t, ks.Compared())
	require.Equal(t, []string{"k"}, ks.Compared(), "the next comparison did not have it")
}

func TestDropForgetsAllKeys(t *testing.T) {
	t.Parallel()
	ks := keyqueue.New[int]()
	for i := range 5 {
		ks.Enqueue("a", i)
		ks.Enqueue("b", i)
	}
	ks.Enqueue("c", 1)
	require.Equal(t, 8, ks.Drop())
	require.True(t, ks.Idle("a"))
	require.Equal(t, keyqueue.Go, ks.Enqueue("a", 1))
	require.Zero(t, ks.Drop())
}
