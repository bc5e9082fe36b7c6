package acts_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard/internal/acts"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// patience is how long a step may take on a busy machine.
const patience = 30 * time.Second

// slow returns a replay of 100 rows, one per second, so that it runs until it is stopped.
func slow(t *testing.T, a *admin.Admin) admin.Planned {
	t.Helper()
	routes, err := route.New(route.Routes{"*": route.To("mail")}, []string{"mail"}, nil)
	require.NoError(t, err)
	plan, err := a.Replay(t.Context(), admin.ReplayRequest{Sink: "mail", Routed: routes.Filter("mail"), Rate: 1})
	require.NoError(t, err)
	return plan
}

// outbox returns a store whose log the sink mail has settled.
func outbox(t *testing.T) *admin.Admin {
	t.Helper()
	db, s := outboxtest.SQLite(t, outboxtest.File(t), sqlite.Config{})
	for i := range 100 {
		_, err := db.ExecContext(t.Context(), `INSERT INTO outbox (id, type, payload) VALUES ($1, 'order.placed', '{}')`, fmt.Sprint("n", i))
		require.NoError(t, err)
	}
	_, err := s.Cut(t.Context(), "mail", 1, store.StartOldest)
	require.NoError(t, err)
	lease, err := s.Acquire(t.Context(), store.Lanes("mail", 1)[0], "f1", time.Hour)
	require.NoError(t, err)
	reader, err := s.NewReader(lease.Position, store.Filter{Slots: lease.Lane.Slots, Types: notification.AllTypes})
	require.NoError(t, err)
	target, err := s.Probe(t.Context())
	require.NoError(t, err)
	page, err := reader.Next(t.Context(), target, 1000)
	require.NoError(t, err)
	require.NoError(t, s.Checkpoint(t.Context(), store.Checkpoint{Lease: lease, TTL: time.Hour, Position: page.End}))
	return admin.New(s, "ada")
}

// idle waits until nothing runs.
func idle(t *testing.T, r *acts.Runner) {
	t.Helper()
	require.Eventually(t, func() bool { return len(r.Running()) == 0 }, patience, 5*time.Millisecond)
}

func TestAPlanContinuesAfterItsRequest(t *testing.T) {
	t.Parallel()
	a, r := outbox(t), acts.New(slog.New(slog.DiscardHandler))
	t.Cleanup(r.Close)
	ctx, cancel := context.WithCancel(t.Context())
	action, err := r.Start(ctx, slow(t, a))
	require.NoError(t, err)
	cancel()
	require.Equal(t, store.ActionRunning, action.State)
	require.EqualValues(t, 100, action.Planned)
	running := r.Running()
	require.Len(t, running, 1)
	require.Equal(t, action.ID, running[0].ID)
	require.Eventually(t, func() bool { return r.Running()[0].Count > 0 }, patience, 5*time.Millisecond)

	require.True(t, r.Cancel(action.ID))
	idle(t, r)
	require.False(t, r.Cancel(action.ID))
}

func TestAnActionCancelledByAnotherProcessIsNotAFailure(t *testing.T) {
	t.Parallel()
	var logged strings.Builder
	a, r := outbox(t), acts.New(slog.New(slog.NewTextHandler(&logged, nil)))
	action, err := r.Start(t.Context(), slow(t, a))
	require.NoError(t, err)
	_, err = a.Cancel(t.Context(), action.ID)
	require.NoError(t, err)
	idle(t, r)
	r.Close()
	require.Empty(t, logged.String())
}

func TestCloseInterruptsPlansAndRefusesNewOnes(t *testing.T) {
	t.Parallel()
	a, r := outbox(t), acts.New(slog.New(slog.DiscardHandler))
	action, err := r.Start(t.Context(), slow(t, a))
	require.NoError(t, err)
	r.Close()
	require.Empty(t, r.Running())
	got, err := a.Action(t.Context(), action.ID)
	require.NoError(t, err)
	require.True(t, got.EndedAt.IsZero(), "the action can be continued")
	_, err = r.Start(t.Context(), slow(t, a))
	require.ErrorIs(t, err, context.Canceled)
}

func TestAPlanThatCannotBeginFailsItsRequest(t *testing.T) {
	t.Parallel()
	var logged strings.Builder
	a, r := outbox(t), acts.New(slog.New(slog.NewTextHandler(&logged, nil)))
	a = a.For(admin.Request{Key: "k"})
	action, err := r.Start(t.Context(), slow(t, a))
	require.NoError(t, err)
	_, err = r.Start(t.Context(), slow(t, a))
	require.ErrorIs(t, err, store.ErrActionBegun)
	require.True(t, r.Cancel(action.ID), "the first one still runs")
	idle(t, r)
	r.Close()
	require.NotContains(t, logged.String(), "begun already", "the request has it")
}

func TestTheNumberOfRunningPlansIsLimited(t *testing.T) {
	t.Parallel()
	a, r := outbox(t), acts.New(slog.New(slog.DiscardHandler))
	t.Cleanup(r.Close)
	var last store.Action
	for range acts.Limit {
		var err error
		last, err = r.Start(t.Context(), slow(t, a))
		require.NoError(t, err)
	}
	_, err := r.Start(t.Context(), slow(t, a))
	require.ErrorIs(t, err, acts.ErrBusy)
	require.True(t, r.Cancel(last.ID))
	require.Eventually(t, func() bool { return len(r.Running()) < acts.Limit }, patience, 5*time.Millisecond)
	_, err = r.Start(t.Context(), slow(t, a))
	require.NoError(t, err)
}
