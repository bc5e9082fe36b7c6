package scenario

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/waybill-go/waybill/benchmarks/peers/database"
	"github.com/waybill-go/waybill/benchmarks/peers/peer"
	"github.com/waybill-go/waybill/benchmarks/result"
)

// insertTurns is how many turns of transactions with a notification, and as many without one, are measured.
// The least time counts: whatever else the machine does can only add to it, and leaves some of many short turns
// alone.
const insertTurns = 21

var insertCPU = result.Quantity{Name: "insert_cpu", Unit: "µs", Better: "lower", Title: "PostgreSQL's processor time for the INSERT, µs"}

// measureInsert returns the processor time of PostgreSQL, in microseconds, that a transaction of one session
// takes more with a notification than without one; false if the system does not report it.
func measureInsert(ctx context.Context, server *database.Server, o peer.Outbox, s Sizes) (micros float64, ok bool, err error) {
	s.Clients = 1
	_, err = onEmpty(ctx, server, o, s, func(dsn string, with peer.Publisher) (_ Sample, err error) {
		without, err := peer.Business{}.Open(ctx, dsn, s.Clients)
		if err != nil {
			return Sample{}, err
		}
		defer func() { err = errors.Join(err, without.Close()) }()
		least := [2]time.Duration{math.MaxInt64, math.MaxInt64}
		for turn := range 2 * (insertTurns + 1) { // the first ones open the sessions
			which := turn % 2
			began, _ := server.SessionCPU(ctx, dsn)
			for i := range s.Session {
				if _, err := []peer.Publisher{without, with}[which].Publish(ctx, turn*s.Session+i); err != nil {
					return Sample{}, err
				}
			}
			var ended time.Duration
			ended, ok = server.SessionCPU(ctx, dsn)
			if turn >= 2 {
				least[which] = min(least[which], ended-began)
			}
		}
		micros = float64((least[1] - least[0]).Nanoseconds()) / 1e3 / float64(s.Session)
		return Sample{}, nil
	})
	return micros, ok, err
}
