package schedule_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	outboxes "github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/schedule"
	"github.com/waybill-go/waybill/framework/store"
)

// ahead is a database whose clock is ahead.
type ahead struct {
	stores
	by time.Duration
}

func (a ahead) Schedules(ctx context.Context) ([]store.Schedule, error) {
	all, err := a.stores.Schedules(ctx)
	for i := range all {
		all[i].ReadAt = all[i].ReadAt.Add(a.by)
	}
	return all, err
}

func TestAScheduleContinuesAfterTheDatabasesClockWasFarAhead(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		right := o.store
		o.store = ahead{right, 366 * 24 * time.Hour}
		_, stop := o.start(report("a", schedule.Every(15*time.Minute), schedule.All))
		o.pass(20 * time.Minute)
		stop()
		require.Equal(t, []string{"a 00:15:00"}, o.ticks())
		o.store = right
		o.start(report("a", schedule.Every(15*time.Minute), schedule.All))
		o.pass(time.Hour)
		require.Equal(t, []string{"a 00:15:00", "a 00:30:00", "a 00:45:00", "a 01:00:00", "a 01:15:00"}, o.ticks())
		require.Equal(t, 1, o.logs.count("the database's clock was set back"), o.logs)
	})
}

// TestATickIsMadeOnceIfTheDatabasesClockGoesBack simulates a failover to a server
// whose clock is behind.
func TestATickIsMadeOnceIfTheDatabasesClockGoesBack(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		right := o.store
		o.store = ahead{right, 10 * time.Minute}
		_, stop := o.start(report("a", schedule.Every(time.Minute), ""))
		o.pass(150 * time.Second)
		stop()
		made := o.ticks()
		require.Equal(t, []string{"a 00:11:00", "a 00:12:00"}, made)
		o.store = right
		o.start(report("a", schedule.Every(time.Minute), ""))
		o.pass(8 * time.Minute)
		require.Equal(t, made, o.ticks(), "the schedule waits until the clock catches up")
		o.pass(3 * time.Minute)
		require.Equal(t, append(made, "a 00:13:00"), o.ticks())
	})
}

// Each tick, over two days, publishes a notification that is unique for a day.
func TestATickThatIsNotUniqueIsMadeWithoutANotification(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := report("a", schedule.Every(time.Minute), schedule.All)
		s.Make = func(_ context.Context, tick time.Time) (any, error) {
			return outboxes.With(reportDue{tick}, outboxes.Unique("today", 24*time.Hour)), nil
		}
		o.start(s)
		o.pass(3 * time.Minute)
		require.Equal(t, []string{"a 00:01:00"}, o.ticks())
		require.Equal(t, "00:03:00", o.row("a").LastTick.Format(time.TimeOnly))
	})
}
