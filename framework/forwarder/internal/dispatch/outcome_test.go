package dispatch

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

func TestParkedDeliveriesOfALaneAreLimitedByTheirBytes(t *testing.T) {
	t.Parallel()
	const n, each = 4, maxBusyBytes / 4
	for name, c := range map[string]struct {
		key    string
		state  store.State
		resume func(l *Lane, parked []store.Parked)
		busy   int
	}{
		"due":       {"", store.StateRetrying, func(l *Lane, parked []store.Parked) { l.ResumeDue(parked) }, n},
		"followers": {"k", store.StateBlocked, func(l *Lane, parked []store.Parked) { l.ResumeFollowers("k", parked, 1) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := idle(t)
			l := join(d, 0, 1)
			require.Equal(t, Room{Due: maxDue, Followers: maxFollowers}, l.Take(nil).Room)
			parked, payload := make([]store.Parked, n), make([]byte, each)
			for i := range parked {
				parked[i] = store.Parked{Envelope: notification.Envelope{Offset: int64(i + 1), ID: "large", Key: c.key, Payload: payload}, State: c.state}
			}
			c.resume(l, parked)
			require.Zero(t, l.Take(nil).Room, "no more deliveries are read")
			require.Len(t, l.DueBusy(), c.busy)

			l.delivered(next(t, d), "")
			out := l.Take(nil)
			require.Zero(t, out.Room, "they use room until they are written")
			room := l.Written(out.Settled, nil)
			require.Positive(t, room.Due)
			require.Positive(t, room.Followers)
		})
	}
}
