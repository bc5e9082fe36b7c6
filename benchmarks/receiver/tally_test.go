package receiver_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/benchmarks/receiver"
	"github.com/waybill-go/waybill/benchmarks/result"
)

func TestATallyFindsWhatIsLostRepeatedUnknownAndOutOfOrder(t *testing.T) {
	t.Parallel()
	const n, keys = 200_000, 1000 // several pages
	for name, c := range map[string]struct {
		arrive func(t *receiver.Tally)
		want   result.Check
	}{
		"all":          {func(*receiver.Tally) {}, result.Check{Arrived: n}},
		"one again":    {func(t *receiver.Tally) { t.Note(7, true) }, result.Check{Arrived: n, Repeated: 1}},
		"something":    {func(t *receiver.Tally) { t.Note(0, false) }, result.Check{Arrived: n, Unknown: 1}},
		"one too many": {func(t *receiver.Tally) { t.Note(n, true) }, result.Check{Arrived: n, Unknown: 1}},
		"a huge one":   {func(t *receiver.Tally) { t.Note(1<<40, true); t.Note(-1, true) }, result.Check{Arrived: n, Unknown: 2}},
	} {
		tally := receiver.NewTally(keys, nil)
		for number := range n {
			require.True(t, tally.Note(number, true))
		}
		c.arrive(tally)
		c.want.Expected = n
		require.Equal(t, c.want, tally.Check(n), name)
	}
	tally := receiver.NewTally(keys, nil)
	for _, number := range []int{0, 1, 2005, 1005, 5, 3} {
		tally.Note(number, true)
	}
	require.Equal(t, result.Check{Expected: 2006, Arrived: 6, Lost: 2000, OutOfOrder: 2}, tally.Check(2006), "1005 and 5 come after 2005")
}

func TestOrdersMadeAtTheSameTimeHaveNoOrder(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		make    func(m *receiver.Made)
		swapped int64
	}{
		"one after the other": {func(m *receiver.Made) { m.Begin(5); m.End(5); time.Sleep(time.Millisecond); m.Begin(1005); m.End(1005) }, 1},
		"at the same time":    {func(m *receiver.Made) { m.Begin(5); m.Begin(1005); time.Sleep(time.Millisecond); m.End(5); m.End(1005) }, 0},
		"one has not ended":   {func(m *receiver.Made) { m.Begin(5); m.Begin(1005); m.End(1005) }, 0},
	} {
		made := receiver.NewMade(2000)
		test.make(made)
		tally := receiver.NewTally(1000, made)
		tally.Note(1005, true)
		tally.Note(5, true)
		require.Equal(t, test.swapped, tally.Check(2000).OutOfOrder, name)
	}
}

func TestExpectIsClosedWhenThatManyHaveArrived(t *testing.T) {
	t.Parallel()
	tally := receiver.NewTally(0, nil)
	both := tally.Expect(2)
	tally.Note(0, true)
	tally.Note(0, true)
	select {
	case <-both:
		t.Fatal("the channel is closed after one of two arrivals")
	default:
	}
	tally.Note(1, true)
	<-both
	<-tally.Expect(2)
	many := tally.Expect(1000)
	var senders sync.WaitGroup
	for from := range 4 {
		senders.Go(func() {
			for number := from; number < 1000; number += 4 {
				tally.Note(number, true)
			}
		})
	}
	<-many
	senders.Wait()
	require.EqualValues(t, 1000, tally.Count())
}

func TestTheTimeFromTheCommitToTheArrivalIsMeasured(t *testing.T) {
	t.Parallel()
	at := time.Now()
	w := receiver.NewWaits(1)
	w.Committed(0, at)
	w.Arrived(0, at.Add(time.Hour)) // before the first that counts
	w.Committed(1, at)
	w.Arrived(1, at.Add(20*time.Millisecond))
	w.Arrived(2, at) // before the publisher knew of the commit
	w.Committed(2, at.Add(time.Millisecond))
	require.InDelta(t, 20, w.Percentile(100), 0.1)
	require.Zero(t, w.Percentile(50))
	w.Restart(3)
	require.Zero(t, w.Percentile(100))
}
