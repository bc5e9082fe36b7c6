package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// A failed delivery is a head only once the failure is written. Until then the table shows it as blocked,
// and later deliveries of the key must not overtake it.
func TestNoFollowerOvertakesADeliveryWhoseFailureIsNotWritten(t *testing.T) {
	t.Parallel()
	d := idle(t)
	l := join(d, 0, 1)
	blocked := func(offset int64, id string) store.Parked {
		return store.Parked{Envelope: notification.Envelope{Offset: offset, ID: id, Key: "k"}, State: store.StateBlocked}
	}
	parked := []store.Parked{blocked(1, "first"), blocked(2, "second")}
	require.Equal(t, []string{"k"}, l.ResumeHeld([]store.HeldKey{{Key: "k"}}, true))
	l.ResumeFollowers("k", parked, 1)
	require.Equal(t, 1, d.queue.Len())

	it := next(t, d)
	require.Equal(t, "first", it.ID)
	l.parkRetrying(it, "", time.Now().Add(time.Minute))

	l.ResumeFollowers("k", parked, 1) // the table before the failure is written
	require.Zero(t, d.queue.Len(), "the second delivery waits for the first")
}
