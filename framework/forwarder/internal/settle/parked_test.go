package settle_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder/internal/lanetest"
	"github.com/waybill-go/waybill/framework/forwarder/internal/settle"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

func TestRestoringEndsWhereNoAnswerComes(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
		b.OnHeldKeys = func(ctx context.Context, _ string) ([]store.HeldKey, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		c, _ := begin(t, b)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.ErrorIs(t, c.Restore(ctx), context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(began), lanetest.TTL/2)
	})
}

// A large delivery that is in the lane's hands is the table's whole answer: what is due
// behind it does not come, and nothing says when it will.
func TestWhatIsDueBehindALargeDeliveryInHandIsAskedForEachSecondAndOnceThatIsSettled(t *testing.T) {
	t.Parallel()
	const takes = 10*time.Second + 300*time.Millisecond
	for name, answer := range map[string]error{"delivered": nil, "retried": errors.New("once")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
				began := time.Now()
				var asked atomic.Int64
				b.OnDue = func(ctx context.Context) {
					if asked.Add(1) > 1000 {
						<-ctx.Done() // a loop without a pause would stop the time
					}
				}
				var behind time.Duration
				b.Answer = func(ctx context.Context, d *notification.Delivery) error {
					switch {
					case d.ID == "behind":
						behind = time.Since(began)
					case d.Attempt == 1:
						return errors.Join(answer, lanetest.Sleep(ctx, takes))
					}
					return nil
				}
				parked := func(offset int64, id string, size int) store.Parked {
					return store.Parked{
						Envelope: notification.Envelope{Offset: offset, ID: id, Type: "t", OccurredOn: began, Payload: make([]byte, size)},
						State:    store.StateRetrying, DueAt: began, FirstParkedAt: began,
					}
				}
				require.NoError(t, b.Checkpoint(t.Context(), store.Checkpoint{Lease: b.Lease, TTL: lanetest.TTL,
					Park: []store.Parked{parked(1, "large", 9<<20), parked(2, "behind", 2)}}))
				c, _ := begin(t, b)
				run(t, c)
				time.Sleep(10*time.Second + time.Millisecond)
				require.Equal(t, []string{"large"}, b.Given())
				require.InDelta(t, 11, asked.Load(), 2)

				time.Sleep(time.Second)
				require.Contains(t, b.Given(), "behind")
				require.Equal(t, takes, behind, "there is room for it at once")
				time.Sleep(5 * time.Second)
				synctest.Wait()
				var left int
				require.NoError(t, b.DB.QueryRowContext(t.Context(), `SELECT count(*) FROM outbox_parked`).Scan(&left))
				require.Zero(t, left)
			})
		})
	}
}

func TestAComparisonThatIsAskedForWhileOneRunsFollowsIt(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
		first := make([]store.HeldKey, 10_000) // a whole part
		for i := range first {
			first[i] = store.HeldKey{Key: fmt.Sprintf("k%04d", i), Head: true}
		}
		revised := make(chan struct{}, 1)
		var parts []string // the key behind which each began
		b.OnHeldKeys = func(_ context.Context, after string) ([]store.HeldKey, error) {
			parts = append(parts, after)
			switch {
			case len(parts) == 2:
				return nil, errors.New("reset") // the comparison pauses in its middle
			case after == "":
				return first, nil
			}
			return nil, nil
		}
		c, _ := begin(t, b, func(c *settle.Config) { c.Revised = revised })
		run(t, c)
		revised <- struct{}{}
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []string{"", "k9999"}, parts)
		revised <- struct{}{}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"", "k9999", "k9999", "", "k9999"}, parts)
	})
}
