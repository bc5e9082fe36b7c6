package fleet

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/waybill-go/waybill/framework/internal/pace"
)

// turns bounds how many databases are awake, so that each of them gets the connections that its leases need.
type turns struct {
	seats   *semaphore.Weighted // first come, first served; nil: no bound
	waiting atomic.Int32
	usual   time.Duration // idle time after which a database sleeps; 0: never
}

// While others wait, an idle database sleeps after hurried, and one that has something to do ends its
// turn after leastTurn.
const (
	hurried   = 500 * time.Millisecond
	leastTurn = 5 * time.Second
)

func newTurns(awake int, sleep time.Duration) *turns {
	t := &turns{usual: sleep}
	if awake > 0 && sleep > 0 {
		t.seats = semaphore.NewWeighted(int64(awake))
	}
	return t
}

// sleep returns the idle time after which a database that begins its turn sleeps.
func (t *turns) sleep() time.Duration {
	if t.waiting.Load() > 0 {
		return min(hurried, t.usual)
	}
	return t.usual
}

// begin waits for a turn. The turn's context ends when others wait and the turn has lasted for leastTurn.
// The caller calls end after the work.
func (t *turns) begin(ctx context.Context) (turn context.Context, end func(), err error) {
	if t.seats == nil {
		return ctx, func() {}, nil
	}
	t.waiting.Add(1)
	err = t.seats.Acquire(ctx, 1)
	t.waiting.Add(-1)
	if err != nil {
		return nil, nil, err
	}
	turn, cancel := context.WithCancel(ctx)
	go func() {
		for pause := leastTurn; pace.Sleep(turn, pause); pause = hurried {
			if t.waiting.Load() > 0 {
				cancel()
			}
		}
	}()
	return turn, func() {
		cancel()
		t.seats.Release(1)
	}, nil
}
