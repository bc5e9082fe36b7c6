package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	outboxes "github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/schedule"
	"github.com/waybill-go/waybill/framework/store"
)

// seconds returns the ticks of a schedule with one per second, in a period.
func seconds(name string, from, to int) (ticks []string) {
	for n := from; n <= to; n++ {
		ticks = append(ticks, fmt.Sprintf("%s 00:00:%02d", name, n))
	}
	return ticks
}

func TestOneOfManyProcessesMakesEachTick(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		for range 5 {
			o.start(report("a", schedule.Every(time.Second), ""), report("b", schedule.Every(time.Second), schedule.All))
		}
		o.pass(12*time.Second + time.Millisecond)
		require.ElementsMatch(t, append(seconds("a", 1, 12), seconds("b", 1, 12)...), o.ticks())
		require.Empty(t, o.logs.String())
	})
}

func TestOneOfManyProcessesMakesEachTickInSerializableTransactions(t *testing.T) {
	t.Parallel()
	dsn := outboxtest.DSN(t)
	synctest.Test(t, func(t *testing.T) {
		o := onPostgres(t, dsn)
		_, err := o.db.ExecContext(t.Context(), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database()); END $$`)
		require.NoError(t, err)
		for range 4 {
			o.start(report("a", schedule.Every(time.Second), schedule.All))
		}
		o.pass(20 * time.Second)
		require.Equal(t, seconds("a", 1, 20), o.ticks())
	})
}

// A process that dies between the claim of a tick and the commit leaves a transaction that rolls back.
func TestATickWhoseTransactionIsLostIsMadeLaterOnce(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		_, stop := o.start(report("a", schedule.Every(time.Minute), ""))
		stop()
		dying, err := o.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		row := o.row("a")
		row.LastTick, row.NextTick = row.NextTick, row.NextTick.Add(time.Minute)
		moved, err := o.store.MoveSchedule(t.Context(), dying, row)
		require.NoError(t, err)
		require.True(t, moved)
		called := make(chan struct{}, 100)
		job := report("a", schedule.Every(time.Minute), "")
		job.Make = func(_ context.Context, tick time.Time) (any, error) {
			called <- struct{}{}
			return reportDue{tick}, nil
		}
		o.start(job)
		time.Sleep(time.Minute - time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)))
		<-called
		require.NoError(t, dying.Rollback())
		o.pass(30 * time.Second)
		require.Equal(t, []string{"a 00:01:00"}, o.ticks())
	})
}

func TestMissedTicksAreSkippedMadeOnceOrAll(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		schedules := []schedule.Schedule{
			report("all", schedule.Every(15*time.Minute), schedule.All),
			report("cron", schedule.Cron("*/15 * * * *", "Europe/Berlin"), schedule.One),
			report("one", schedule.Every(15*time.Minute), ""),
			report("skip", schedule.Every(15*time.Minute), schedule.Skip),
			report("soon", schedule.Every(time.Minute), schedule.Skip),
		}
		_, stop := o.start(schedules...)
		require.Empty(t, o.ticks(), "a new schedule has missed nothing")
		stop()
		o.pass(50*time.Minute + 30*time.Second)
		o.start(schedules...)
		require.ElementsMatch(t, []string{"all 00:15:00", "all 00:30:00", "all 00:45:00", "cron 00:45:00", "one 00:45:00", "soon 00:50:00"}, o.ticks())
		require.Equal(t, 4, o.logs.count("missed ticks are skipped"), o.logs)
		o.pass(10 * time.Minute)
		require.Subset(t, o.ticks(), []string{"all 01:00:00", "cron 01:00:00", "one 01:00:00", "skip 01:00:00"})
	})
}

func TestAThousandMissedTicksComeInOrder(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		_, stop := o.start(report("a", schedule.Every(time.Second), schedule.All))
		stop()
		o.pass(1000 * time.Second)
		o.start(report("a", schedule.Every(time.Second), schedule.All))
		ticks := o.ticks()
		require.Len(t, ticks, 1000)
		require.IsIncreasing(t, ticks)
	})
}

func TestAFailureDelaysOnlyItsScheduleAndIsLoggedOnce(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var mended atomic.Bool
		failing := func(name string, fail func() (any, error)) schedule.Schedule {
			s := report(name, schedule.Every(time.Minute), schedule.All)
			works := s.Make
			s.Make = func(ctx context.Context, tick time.Time) (any, error) {
				if mended.Load() {
					return works(ctx, tick)
				}
				return fail()
			}
			return s
		}
		o.start(
			report("works", schedule.Every(time.Minute), ""),
			failing("error", func() (any, error) { return nil, errors.New("no printer") }),
			failing("exit", func() (any, error) { runtime.Goexit(); return nil, nil }),
			failing("panic", func() (any, error) { panic("no paper") }),
			failing("strange", func() (any, error) { return 17, nil }), // not a registered type, so the claim is rolled back
		)
		o.pass(5*time.Minute + time.Second)
		require.Equal(t, []string{"works 00:01:00", "works 00:02:00", "works 00:03:00", "works 00:04:00", "works 00:05:00"}, o.ticks())
		for _, name := range []string{"error", "exit", "panic", "strange"} {
			require.Equal(t, "00:01:00", o.row(name).NextTick.Format("15:04:05"), name)
			require.Equal(t, 1, o.logs.count(`msg="making a tick failed, trying again" schedule=`+name), o.logs)
		}
		mended.Store(true)
		o.pass(100 * time.Second)
		for _, name := range []string{"error", "exit", "panic", "strange"} {
			require.Subset(t, o.ticks(), []string{name + " 00:01:00", name + " 00:05:00", name + " 00:06:00"})
			require.Equal(t, 1, o.logs.count(`msg="making a tick works again" schedule=`+name))
		}
	})
}

func TestAHangingMakeDelaysNeitherOthersNorTheEnd(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		release := make(chan struct{})
		defer close(release)
		hangs := report("hangs", schedule.Every(time.Minute), "")
		hangs.Make = func(context.Context, time.Time) (any, error) { <-release; return nil, nil }
		s, stop := o.start(hangs, report("works", schedule.Every(time.Minute), ""))
		o.pass(3 * time.Minute)
		require.Len(t, o.ticks(), 3)
		require.NoError(t, s.Reload(report("works", schedule.Every(time.Minute), "")))
		o.pass(time.Minute)
		require.Len(t, o.ticks(), 4)
		stop()
	})
}

func TestSchedulesArePausedRunAndForgotten(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		ctx := t.Context()
		require.NoError(t, o.store.Begin(ctx, store.Action{ID: "x", Who: "ada", Name: "x", Filter: []byte(`{}`)}))
		o.start(report("a", schedule.Every(time.Minute), schedule.All))
		o.pass(time.Minute)
		_, err := o.store.PauseSchedule(ctx, "x", "a", true)
		require.NoError(t, err)
		o.pass(3 * time.Minute)
		require.Equal(t, []string{"a 00:01:00"}, o.ticks())
		require.Equal(t, "00:05:00", o.row("a").NextTick.Format("15:04:05"), "ticks pass")
		_, err = o.store.RequestTick(ctx, "x", "a")
		require.NoError(t, err)
		requested := o.row("a").RequestedAt
		o.pass(5 * time.Second)
		require.Equal(t, []string{"a 00:01:00", "a " + requested.Format("15:04:05")}, o.ticks())
		require.Zero(t, o.row("a").RequestedAt)
		_, err = o.store.PauseSchedule(ctx, "x", "a", false)
		require.NoError(t, err)
		o.pass(time.Minute)
		require.Len(t, o.ticks(), 3)
		require.Equal(t, "a 00:05:00", o.ticks()[2], "ticks during the pause do not count as missed")
		require.NoError(t, o.store.ForgetSchedule(ctx, "x", "a"))
		o.pass(time.Minute)
		require.Equal(t, "a 00:06:00", o.ticks()[3], "a running schedule is added again")
	})
}

func TestAChangedScheduleBeginsFromNowAndTheProcessThatStartsLastDecides(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		_, stopOld := o.start(report("a", schedule.Every(10*time.Minute), schedule.All))
		o.pass(9 * time.Minute)
		_, stopNew := o.start(report("a", schedule.Every(4*time.Minute), schedule.All))
		o.pass(4*time.Minute + time.Second)
		require.Equal(t, []string{"a 00:12:00"}, o.ticks(), "not the tick of minute 10")
		require.Equal(t, 1, o.logs.count("the schedule has changed"), o.logs)
		require.Equal(t, "every 4m", o.row("a").Spec)
		stopNew() // as in a deployment that is rolled back
		o.pass(10 * time.Minute)
		require.Equal(t, []string{"a 00:12:00", "a 00:20:00"}, o.ticks(), "the old one takes over once a tick is late")
		require.Equal(t, "every 10m", o.row("a").Spec)
		stopOld()
		o.pass(time.Hour)
		o.start(report("a", schedule.Every(4*time.Minute), schedule.All))
		require.Len(t, o.ticks(), 2, "a changed schedule has missed nothing")
	})
}

func TestReloadAppliesOtherSchedules(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s, _ := o.start(report("a", schedule.Every(time.Minute), ""), report("b", schedule.Every(time.Minute), ""))
		o.pass(time.Minute)
		require.NoError(t, s.Reload(report("b", schedule.Every(2*time.Minute), ""), report("c", schedule.Every(time.Minute), "")))
		o.pass(time.Minute)
		require.ElementsMatch(t, []string{"a 00:01:00", "b 00:01:00", "b 00:02:00", "c 00:02:00"}, o.ticks())
		require.ErrorIs(t, s.Reload(report("c", schedule.Every(0), "")), schedule.ErrConfig)
		o.pass(time.Minute)
		require.Equal(t, "c 00:03:00", o.ticks()[4])
	})
}

func TestTheIdOfATickIsTheSameWhenItIsMadeAgain(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		_, stop := o.start(report("a", schedule.Every(time.Hour), ""))
		before := o.row("a")
		o.pass(time.Hour)
		stop()
		restored := o.row("a") // the row as a restored database has it
		restored.NextTick, restored.LastTick = before.NextTick, time.Time{}
		_, err := o.store.MoveSchedule(t.Context(), o.db, restored)
		require.NoError(t, err)
		o.start(report("a", schedule.Every(time.Hour), ""), report("b", schedule.Every(time.Hour), ""))
		o.pass(time.Hour)
		ticks, ids := o.made()
		require.Equal(t, []string{"a 01:00:00", "a 01:00:00"}, ticks[:2])
		require.Equal(t, ids[0], ids[1])
		require.Len(t, ids, 4)
		require.NotEqual(t, ids[2], ids[3], "another schedule has a different id at the same time")
		require.NotEqual(t, ids[1], ids[2])
	})
}

func TestARowReturnsTheIdsOfItsTicks(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		require.NoError(t, o.store.Begin(t.Context(), store.Action{ID: "x", Who: "ada", Name: "x", Filter: []byte(`{}`)}))
		o.start(report("a", schedule.Every(time.Minute), ""))
		o.pass(time.Minute)
		_, ids := o.made()
		require.Equal(t, []string{o.row("a").NotificationID(o.row("a").LastTick)}, ids)
		o.pass(time.Second)
		_, err := o.store.RequestTick(t.Context(), "x", "a")
		require.NoError(t, err)
		o.pass(10 * time.Second)
		_, ids = o.made()
		require.Len(t, ids, 2)
		require.Equal(t, o.row("a").NotificationID(o.row("a").LastTick), ids[1], "a requested tick, not at a whole second")
	})
}

func TestMakeReturnsOptionsEnvelopesOrNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var n atomic.Int32
		s := report("a", schedule.Every(time.Minute), "")
		s.Make = func(_ context.Context, tick time.Time) (any, error) {
			switch n.Add(1) {
			case 1:
				return outboxes.With(&reportDue{tick}, outboxes.ID("mine"), outboxes.Key("k"), outboxes.Metadata("tenant", "a")), nil
			case 2:
				return notification.Envelope{Type: "raw", Payload: []byte(`[1]`)}, nil
			}
			return nil, nil
		}
		o.start(s)
		o.pass(3 * time.Minute)
		ticks, ids := o.made()
		require.Equal(t, []string{"a 00:01:00", "a 00:02:00"}, ticks)
		require.Equal(t, "mine", ids[0])
		require.Equal(t, "00:03:00", o.row("a").LastTick.Format("15:04:05"))
	})
}

func TestTicksContinueAfterAnOutageOfTheDatabase(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		o.start(report("a", schedule.Every(time.Minute), schedule.All))
		rename := func(from, to string) {
			_, err := o.db.ExecContext(t.Context(), `ALTER TABLE `+from+` RENAME TO `+to)
			require.NoError(t, err)
		}
		rename("outbox_schedules", "away")
		o.pass(150 * time.Second)
		require.Equal(t, 1, o.logs.count("looking at the schedules failed"), o.logs)
		rename("away", "outbox_schedules")
		o.pass(30 * time.Second)
		require.Equal(t, []string{"a 00:01:00", "a 00:02:00", "a 00:03:00"}, o.ticks())
		require.Equal(t, 1, o.logs.count("looking at the schedules works again"))
	})
}

func TestNewReportsAllMistakesAtOnce(t *testing.T) {
	t.Parallel()
	_, err := schedule.New(schedule.Config{},
		report("", schedule.Every(time.Minute), ""),
		report("a b", schedule.Every(time.Minute), ""),
		report("twice", schedule.Every(time.Minute), ""), report("twice", schedule.Every(time.Minute), ""),
		report("fast", schedule.Every(time.Millisecond), ""),
		report("line", schedule.Cron("0 9 * *", "Nowhere"), ""),
		report("late", schedule.Every(time.Minute), "never"),
		schedule.Schedule{Name: "empty"},
	)
	require.ErrorIs(t, err, schedule.ErrConfig)
	for _, want := range []string{
		"a scheduler needs a store", `name "": use up to 63`, `name "a b": use`, "schedule twice: another schedule has the same name",
		"schedule fast: every 1ms: use whole seconds", `schedule line: cron "0 9 * *" has 4 fields`, `zone "Nowhere"`,
		`schedule late: missed is "never": use one, skip or all`, "schedule empty: it is never due", "schedule empty: the function Make is not set",
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestRunReturnsWithoutSchedulesAndRefusesASecondCall(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s, stop := o.start()
		require.ErrorContains(t, s.Run(t.Context()), "already running")
		stop()
	})
}
