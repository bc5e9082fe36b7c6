package logs

import (
	"database/sql"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

var schedulesFacts = []kit.Fact{
	{"a schedule is added once, and is listed by name with the database's clock", schedulesAdd},
	{"a move writes its values if the row is as it was read", schedulesMove},
	{"a move of a transaction that rolled back can be made again", schedulesRollback},
	{"of transactions that move a row as they all read it exactly one commits", schedulesTogether},
	{"pausing, requesting and forgetting change the row and are counted", schedulesPeople},
	{"an unknown schedule is an error", schedulesUnknown},
}

// schedule adds a schedule and returns its row.
func schedule(t *testing.T, o *kit.Outbox, name string) store.Schedule {
	t.Helper()
	require.NoError(t, o.AddSchedule(t.Context(), name))
	return scheduleRow(t, o, name)
}

func scheduleRow(t *testing.T, o *kit.Outbox, name string) store.Schedule {
	t.Helper()
	all, err := o.Schedules(t.Context())
	require.NoError(t, err)
	for _, s := range all {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("there is no schedule %s", name)
	return store.Schedule{}
}

// move moves a row, and reports whether it was as it was read.
func move(t *testing.T, o *kit.Outbox, tx store.Execer, s store.Schedule) bool {
	t.Helper()
	moved, err := o.MoveSchedule(t.Context(), tx, s)
	require.NoError(t, err)
	return moved
}

func schedulesAdd(t *testing.T, o *kit.Outbox) {
	all, err := o.Schedules(t.Context())
	require.NoError(t, err)
	require.Empty(t, all)
	first := schedule(t, o, "weekly")
	schedule(t, o, "daily")
	require.Equal(t, first.ID, schedule(t, o, "weekly").ID, "the row stays")
	all, err = o.Schedules(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, "daily", all[0].Name)
	require.NotEqual(t, all[0].ID, all[1].ID)
	require.WithinDuration(t, all[0].NextTick, all[0].ReadAt, time.Minute)
	require.Equal(t, store.Schedule{Name: "weekly", ID: first.ID, NextTick: first.NextTick, ReadAt: first.ReadAt}, first)
}

func schedulesMove(t *testing.T, o *kit.Outbox) {
	s := schedule(t, o, "daily")
	to := s
	to.Spec, to.Missed = "0 9 * * * Europe/Berlin", "one"
	to.LastTick, to.NextTick, to.RequestedAt = kit.Moment, kit.Moment.Add(time.Hour), kit.Moment.Add(time.Minute)
	require.True(t, move(t, o, o.DB, to))
	got := scheduleRow(t, o, "daily")
	to.Revision, to.ReadAt = got.Revision, got.ReadAt
	require.Equal(t, to, got)

	require.False(t, move(t, o, o.DB, s), "the row has changed since")
	s = got
	s.LastTick, s.RequestedAt = time.Time{}, time.Time{}
	require.True(t, move(t, o, o.DB, s))
	require.Zero(t, scheduleRow(t, o, "daily").RequestedAt)
	require.Zero(t, scheduleRow(t, o, "daily").LastTick)
}

func schedulesRollback(t *testing.T, o *kit.Outbox) {
	s := schedule(t, o, "daily")
	for _, commit := range []bool{false, true} {
		tx := o.Tx(t)
		require.True(t, move(t, o, tx, s))
		if commit {
			require.NoError(t, tx.Commit())
		} else {
			require.NoError(t, tx.Rollback())
		}
	}
}

func schedulesTogether(t *testing.T, o *kit.Outbox) {
	schedule(t, o, "daily")
	for range 4 {
		s := scheduleRow(t, o, "daily")
		require.Equal(t, 1, o.Together(t, func(tx *sql.Tx) (int, error) { return one(o.MoveSchedule(t.Context(), tx, s)) }))
		require.False(t, move(t, o, o.DB, s))
	}
}

func schedulesPeople(t *testing.T, o *kit.Outbox) {
	s := schedule(t, o, "daily")
	o.BeginAction(t, "a")
	for _, paused := range []bool{true, false} {
		for _, want := range []bool{true, false} {
			changed, err := o.PauseSchedule(t.Context(), "a", "daily", paused)
			require.NoError(t, err)
			require.Equal(t, want, changed)
			require.Equal(t, paused, scheduleRow(t, o, "daily").Paused)
		}
	}
	for _, want := range []bool{true, false} {
		changed, err := o.RequestTick(t.Context(), "a", "daily")
		require.NoError(t, err)
		require.Equal(t, want, changed)
	}
	got := scheduleRow(t, o, "daily")
	require.WithinDuration(t, got.ReadAt, got.RequestedAt, time.Minute)
	require.False(t, move(t, o, o.DB, s), "people's actions change the row")

	require.NoError(t, o.ForgetSchedule(t.Context(), "a", "daily"))
	action := o.ActionOf(t, "a")
	require.EqualValues(t, 4, action.Count)
	require.NotEqual(t, s.ID, schedule(t, o, "daily").ID)
	require.False(t, move(t, o, o.DB, s), "the row that was read is forgotten")

	_, err := o.PauseSchedule(t.Context(), "nothing", "daily", true)
	require.ErrorIs(t, err, store.ErrUnknownAction)
	require.False(t, scheduleRow(t, o, "daily").Paused, "a refused action changes nothing")
}

func schedulesUnknown(t *testing.T, o *kit.Outbox) {
	o.BeginAction(t, "a")
	for _, do := range []func() error{
		func() error { _, err := o.PauseSchedule(t.Context(), "a", "dayly", true); return err },
		func() error { _, err := o.RequestTick(t.Context(), "a", "dayly"); return err },
		func() error { return o.ForgetSchedule(t.Context(), "a", "dayly") },
	} {
		require.ErrorIs(t, do(), store.ErrUnknownSchedule)
	}
}
