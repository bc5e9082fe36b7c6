package feed_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/forwarder/internal/feed"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

func TestEachLaneGetsItsRowsInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, l *log, f *feed.Feed) {
		filters := map[string]store.Filter{
			"all": filter(), "a": filter("a"), "b": filter("b"), "none": filter("other"),
			"low":  {Slots: store.SlotRange{Last: 511}, Types: notification.AllTypes},
			"high": {Slots: store.SlotRange{First: 512, Last: 1023}, Types: notification.TypeFilter{Names: []string{"a"}, Except: true}},
		}
		lanes := make(map[string]*taker)
		for name, filter := range filters {
			lanes[name] = &taker{}
			require.NotNil(t, f.Join(t.Context(), lanes[name], filter, target{}, position(0)))
		}
		want := make(map[string][]string)
		for i := range 137 {
			e := notification.Envelope{ID: fmt.Sprint("n", i), Type: []string{"a", "b", "c"}[i%3], Slot: i * 37 % 1024}
			l.append(e)
			for name, filter := range filters {
				if filter.Types.Matches(e.Type) && e.Slot >= filter.Slots.First && e.Slot <= filter.Slots.Last {
					want[name] = append(want[name], e.ID)
				}
			}
			if i%50 == 0 {
				look(f)
			}
		}
		look(f)
		for name, lane := range lanes {
			require.Equal(t, want[name], lane.given(), name)
			require.Empty(t, lane.wrong, name)
			require.Equal(t, position(137), lane.end, name)
		}
		require.Len(t, l.opened, 2, "one reader for the first lane, and one for all")
	})
}

func TestASingleLaneLetsTheDatabaseSelect(t *testing.T) {
	inBubble(t, func(t *testing.T, l *log, f *feed.Feed) {
		var k, other taker
		require.NotNil(t, f.Join(t.Context(), &k, filter("a"), target{}, position(0)))
		l.append(rows("a", 0, numbered("a", 12)...)...)
		l.append(rows("b", 0, numbered("b", 12)...)...)
		look(f)
		require.Equal(t, numbered("a", 12), k.given())
		require.Equal(t, []store.Filter{filter("a")}, l.opened)
		m := f.Join(t.Context(), &other, filter("b"), target{last: 24}, position(24))
		require.NotNil(t, m)
		l.append(rows("b", 0, "b-last")...)
		look(f)
		require.Equal(t, []string{"b-last"}, other.given())
		require.True(t, l.opened[1].Types.All())
		f.Leave(m)
		l.append(rows("a", 0, "a-last")...)
		look(f)
		require.Equal(t, append(numbered("a", 12), "a-last"), k.given())
		require.Equal(t, []string{"b-last"}, other.given())
		require.Equal(t, filter("a"), l.opened[2])
		require.Empty(t, k.wrong+other.wrong)
	})
}

func TestALaneWithoutRoomLeavesTheFeedAtThatPage(t *testing.T) {
	inBubble(t, func(t *testing.T, l *log, f *feed.Feed) {
		var quick, slow taker
		require.NotNil(t, f.Join(t.Context(), &quick, filter(), target{}, position(0)))
		m := f.Join(t.Context(), &slow, filter(), target{}, position(0))
		require.NotNil(t, m)
		l.append(rows("a", 0, numbered("n", 15)...)...)
		look(f)
		slow.setFull(true)
		l.append(rows("a", 0, numbered("m", 25)...)...)
		look(f)
		from, gone := left(m)
		require.True(t, gone)
		require.Equal(t, position(15), from)
		require.Equal(t, numbered("n", 15), slow.given())
		require.Len(t, quick.given(), 40, "it does not delay the other lane")

		// The lane reads by itself, and joins again at the feed's position.
		slow.setFull(false)
		require.Nil(t, f.Join(t.Context(), &slow, filter(), target{last: 15}, position(15)), "the feed has advanced")
		raw, _ := from.MarshalJSON()
		r, err := l.NewReader(raw, filter())
		require.NoError(t, err)
		page, err := r.Next(t.Context(), target{last: 40}, 100)
		require.NoError(t, err)
		require.True(t, slow.Offer(page))
		require.NotNil(t, f.Join(t.Context(), &slow, filter(), target{last: 40}, page.End))
		l.append(rows("a", 0, "last")...)
		look(f)
		require.Equal(t, quick.given(), slow.given())
		require.Empty(t, quick.wrong+slow.wrong)
	})
}

func TestALogThatStartsAgainIsReportedToAllLanes(t *testing.T) {
	inBubble(t, func(t *testing.T, l *log, f *feed.Feed) {
		var some, all taker
		require.NotNil(t, f.Join(t.Context(), &some, filter("a"), target{}, position(0)))
		require.NotNil(t, f.Join(t.Context(), &all, filter(), target{}, position(0)))
		l.append(rows("a", 0, "old1", "old2")...)
		look(f)
		l.set(func() { l.rows, l.rebased = nil, l.rebased+1 })
		l.append(rows("b", 0, "new1")...)
		l.append(rows("a", 0, "new2")...)
		look(f)
		require.Equal(t, []string{"new2"}, some.given())
		require.Equal(t, []string{"new1", "new2"}, all.given())
		require.Equal(t, []int{1, 1}, []int{some.rebased, all.rebased}, "reported once, with or without rows")
	})
}

func TestAServerThatChangedEndsTheWorkOfAllLanes(t *testing.T) {
	inBubble(t, func(t *testing.T, l *log, f *feed.Feed) {
		var a, b taker
		ms := []*feed.Member{f.Join(t.Context(), &a, filter("a"), target{}, position(0)), f.Join(t.Context(), &b, filter(), target{}, position(0))}
		l.append(rows("a", 0, "a1")...)
		look(f)
		l.set(func() { l.life++ })
		look(f)
		for i, k := range []*taker{&a, &b} {
			require.ErrorIs(t, k.over, store.ErrServerChanged)
			_, gone := left(ms[i])
			require.True(t, gone)
			require.Equal(t, []string{"a1"}, k.given())
		}
		var next taker
		require.NotNil(t, f.Join(t.Context(), &next, filter(), target{last: 1, life: 1}, position(1)))
		l.append(rows("a", 0, "a2")...)
		look(f)
		require.Equal(t, []string{"a2"}, next.given())
	})
}

func TestAfterAnErrorEachLaneReadsByItselfFromThere(t *testing.T) {
	inBubble(t, func(t *testing.T, l *log, f *feed.Feed) {
		var a, b taker
		ms := []*feed.Member{f.Join(t.Context(), &a, filter("a"), target{}, position(0)), f.Join(t.Context(), &b, filter(), target{}, position(0))}
		look(f)
		l.set(func() { l.fails, l.skip = errors.New("connection reset"), 2 })
		l.append(rows("a", 0, numbered("n", 35)...)...)
		look(f)
		for i, k := range []*taker{&a, &b} {
			require.NoError(t, k.over)
			require.Equal(t, numbered("n", 20), k.given())
			from, gone := left(ms[i])
			require.True(t, gone)
			require.Equal(t, position(20), from)
		}
		require.NotNil(t, f.Join(t.Context(), &a, filter("a"), target{last: 35}, position(35)), "it can join again")
	})
}

func TestALaneThatHasLeftGetsNoMoreRows(t *testing.T) {
	inBubble(t, func(t *testing.T, l *log, f *feed.Feed) {
		var k taker
		m := f.Join(t.Context(), &k, filter(), target{}, position(0))
		f.Leave(m)
		f.Leave(m)
		l.append(rows("a", 0, "n")...)
		look(f)
		require.Empty(t, k.given())
		require.Zero(t, l.reads, "no lane wants to read")
		_, gone := left(m)
		require.False(t, gone)
	})
}

// reads does what a session does for a lane, until done returns true: it reads by itself up to the newest
// target, joins the feed, and reads by itself again from where the feed released it.
func reads(ctx context.Context, f *feed.Feed, l *log, k *taker, of store.Filter, chance func(n int) int) {
	targets := f.Since(time.Time{})
	r, _ := l.NewReader(nil, of)
	for ctx.Err() == nil {
		at, newer := targets.Latest()
		if at == nil {
			select {
			case <-newer:
			case <-ctx.Done():
			}
			continue
		}
		caughtUp := false
		for !caughtUp && ctx.Err() == nil {
			page, err := r.Next(ctx, at, 1+chance(7))
			if err != nil {
				continue
			}
			k.mu.Lock()
			k.take(page)
			k.mu.Unlock()
			caughtUp = page.CaughtUp
		}
		k.mu.Lock()
		end := k.end
		k.mu.Unlock()
		m := f.Join(context.Background(), k, of, at, end)
		if m == nil {
			select {
			case <-newer:
			case <-ctx.Done():
			}
			continue
		}
		leaves := make(<-chan time.Time)
		if chance(3) == 0 {
			leaves = time.After(time.Duration(chance(50)) * time.Millisecond)
		}
		var from store.Position
		select {
		case <-ctx.Done():
			f.Leave(m)
			return
		case <-leaves:
			f.Leave(m)
			k.mu.Lock()
			from = k.end
			k.mu.Unlock()
			if f, gone := left(m); gone {
				from = f
			}
		case from = <-m.Left():
		}
		raw, _ := from.MarshalJSON()
		r, _ = l.NewReader(raw, of)
	}
}

func ids(l *log, of store.Filter) (all []string) {
	for _, e := range l.rows {
		if of.Types.Matches(e.Type) && e.Slot >= of.Slots.First && e.Slot <= of.Slots.Last {
			all = append(all, e.ID)
		}
	}
	return all
}

func randomFilter(chance func(n int) int) store.Filter {
	of := filter([][]string{nil, {"a"}, {"b"}, {"a", "c"}}[chance(4)]...)
	if chance(3) == 0 {
		of.Slots = store.SlotRange{First: 300, Last: 700}
	}
	return of
}

// Lanes join and leave, have no room and get errors, in any order.
func TestRandomLanesGetExactlyTheirRows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		lanes := rapid.IntRange(1, 5).Draw(rt, "lanes")
		acts := rapid.SliceOfN(rapid.IntRange(0, 6), 1, 40).Draw(rt, "acts")
		var failed string
		synctest.Test(t, func(*testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			var mu sync.Mutex
			chance := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return random.IntN(n)
			}
			l := &log{}
			f := newFeed(l)
			ctx, stop := context.WithCancel(context.Background())
			takers, filters := make([]taker, lanes), make([]store.Filter, lanes)
			var work sync.WaitGroup
			work.Go(func() { f.Run(ctx) })
			for i := range lanes {
				filters[i] = randomFilter(chance)
				work.Go(func() { reads(ctx, f, l, &takers[i], filters[i], chance) })
			}
			n := 0
			for _, act := range acts {
				switch act {
				case 0, 1, 2:
					for range 1 + chance(30) {
						n++
						l.append(notification.Envelope{ID: fmt.Sprint("n", n), Type: []string{"a", "b", "c"}[chance(3)], Slot: chance(1024)})
					}
				case 3:
					takers[chance(lanes)].setFull(true)
				case 4:
					takers[chance(lanes)].setFull(false)
				case 5:
					l.set(func() { l.fails, l.skip = errors.New("reset"), chance(4) })
				case 6:
					time.Sleep(time.Duration(chance(100)) * time.Millisecond)
				}
				f.Wake()
				time.Sleep(time.Duration(chance(4)) * time.Millisecond)
			}
			for i := range takers {
				takers[i].setFull(false)
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			for i := range takers {
				want, got := ids(l, filters[i]), takers[i].given()
				if !slices.Equal(want, got) || takers[i].wrong != "" {
					failed = fmt.Sprintf("lane %d: %s\nwant %v\ngot  %v", i, takers[i].wrong, want, got)
				}
			}
			stop()
			work.Wait()
		})
		if failed != "" {
			rt.Fatal(failed)
		}
	})
}

func TestNoLaneJoinsAfterARoundThatStartedAgainInAnotherLog(t *testing.T) {
	inBubble(t, func(t *testing.T, l *log, f *feed.Feed) {
		synctest.Wait() // the first look
		var a, b taker
		require.NotNil(t, f.Join(t.Context(), &a, filter("a"), target{}, position(0)))
		l.append(rows("a", 0, "a1")...)
		l.set(func() { l.rebased++ })
		f.Wake()
		synctest.Wait() // one round, no time passes
		require.Equal(t, 1, a.rebased)
		require.Nil(t, f.Join(t.Context(), &b, filter("b"), target{last: 1}, position(1)),
			"the reader may stand behind that target, and what lies between would be passed over")
		look(f)
		require.NotNil(t, f.Join(t.Context(), &b, filter("b"), target{last: 1}, position(1)), "a round to a later target has a position")
	})
}

func TestARoundEndsWithItsLastLaneOrAfterSomeTime(t *testing.T) {
	t.Parallel()
	for name, full := range map[string]bool{"no lane is left": true, "it is long": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const many = 100_000
				l := &log{}
				f := newFeed(l)
				run(t, f)
				a := taker{full: full}
				m := f.Join(t.Context(), &a, filter("a"), target{}, position(0))
				l.append(rows("a", 0, numbered("a", many)...)...)
				look(f)
				from, gone := left(m)
				require.True(t, gone, "the lane reads by itself, and the looks continue")
				require.EqualValues(t, len(a.given()), from, "from where the feed ended")
				require.Less(t, len(a.given()), many)
			})
		})
	}
}

func TestALaneThatJoinsAfterTheRoundOfANewerTargetGetsItsRowsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{}
		f := feed.New(feed.Config{Log: l, PollMin: time.Hour, PollMax: time.Hour, PageRows: 10, Logger: slog.New(slog.DiscardHandler)})
		run(t, f)
		synctest.Wait() // the first look
		l.append(rows("a", 0, "a1")...)
		look(f)
		var a taker // has read up to the first target when the feed is at the second one already
		require.NotNil(t, f.Join(t.Context(), &a, filter("a"), target{}, position(0)))
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []string{"a1"}, a.given())
	})
}

func TestALaneThatMustEndDoesNotWaitForARound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFeed(&log{})
		ended, end := context.WithCancel(t.Context())
		end()
		var a taker
		require.Nil(t, f.Join(ended, &a, filter("a"), target{}, position(0)))
	})
}

// growing is a log that has grown at each look. A look takes 300 µs.
type growing struct {
	*log
	looks int
	rows  int // more at each look; 0: 1
}

func (g *growing) Probe(context.Context) (store.Target, error) {
	time.Sleep(300 * time.Microsecond)
	g.looks++
	return target{g.looks * max(1, g.rows), g.life}, nil
}

func TestALaneGetsNoTargetFromBeforeItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFeed(&growing{log: &log{}})
		before := f.Since(time.Now())
		run(t, f)
		time.Sleep(100 * time.Millisecond)
		old, _ := before.Latest()
		require.NotNil(t, old)
		lease := f.Since(time.Now())
		got, newer := lease.Latest()
		require.Nil(t, got)
		<-newer
		time.Sleep(time.Second)
		got, _ = lease.Latest()
		require.Greater(t, got.Last(), old.Last())
	})
}

// looksOf runs the feed of a log that grows by some rows with each look, which takes 0.3 ms. It returns how many looks a
// second has.
func looksOf(t *testing.T, rows int, unannounced bool, pollMin time.Duration) (n int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &growing{log: &log{}, rows: rows}
		f := feed.New(feed.Config{Log: l, PollMin: pollMin, PollMax: time.Second, Unannounced: unannounced, PageRows: 10, Logger: slog.New(slog.DiscardHandler)})
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		f.Run(ctx)
		n = l.looks
	})
	return n
}

func TestWithoutAnnouncementsLooksTakeATenthOfTheTime(t *testing.T) {
	require.InDelta(t, 1000/3.3, looksOf(t, 1, true, time.Millisecond), 10)
	require.InDelta(t, 1000/1.3, looksOf(t, 1, false, time.Millisecond), 20)
}

// Under load the feed neither waits for announcements nor looks for each commit.
func TestALookThatFindsSeveralRowsIsFollowedByAnotherAfterARestForThem(t *testing.T) {
	const poll = 500 * time.Millisecond // after the first look
	require.LessOrEqual(t, looksOf(t, 1, false, poll), 3, "a lone row: the next look waits for an announcement")
	require.InDelta(t, 500/1.1, looksOf(t, 3, false, poll), 20)
	require.InDelta(t, 500/5.3, looksOf(t, 500, false, poll), 5)
}
