package fleet

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

// slowControl is a control database in which only renewals succeed.
type slowControl struct {
	ControlStore
	renewed []string
}

func (s *slowControl) Checkpoint(_ context.Context, c store.Checkpoint) error {
	s.renewed = append(s.renewed, c.Lease.Lane.Sink)
	return nil
}

func (*slowControl) Heartbeat(context.Context, store.Member, time.Duration) error {
	return errors.New("the heartbeat takes too long")
}

func TestLeasesAreRenewedThoughTheRestOfATurnTakesTooLong(t *testing.T) {
	t.Parallel()
	s, d := &slowControl{}, Database{Name: "eu"}
	c := newControl(nil, "me", "fleet", time.Minute, slog.New(slog.DiscardHandler))
	c.store, c.answered = s, time.Now()
	lane := store.NewLane(nameOf(d), 0, 1)
	c.held[lane.Sink] = &heldLease{Lease: store.Lease{Lane: lane}, database: d, renewed: time.Now().Add(-time.Minute / 2)}
	mine, _, err := c.look(t.Context(), []Database{d}, func(Database) bool { return false })
	require.NoError(t, err)
	require.Equal(t, []Database{d}, mine)
	require.Equal(t, []string{lane.Sink}, s.renewed)
}

func TestAControlDatabaseThatIsAwayAtTheStartIsOpenedLater(t *testing.T) {
	t.Parallel()
	tries := 0
	c := newControl(func(context.Context) (ControlStore, error) {
		tries++
		var none *slowControl // as stores return it
		return none, errors.New("connection refused")
	}, "me", "fleet", time.Minute, slog.New(slog.DiscardHandler))
	for range 2 {
		require.ErrorContains(t, c.update(t.Context(), nil, nil), "connection refused")
	}
	require.Equal(t, 2, tries)
	c.leave(t.Context())
}
