package peer

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/benchmarks/peers/receiver"
	"github.com/waybill-go/waybill/benchmarks/peers/workload"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

// The limits of an outbox: they read rows without delivering them, or deliver made-up orders without
// reading any.

const keysetPage = 5000

// KeysetLimit reads pages of Waybill's outbox on one connection, and settles nothing.
func KeysetLimit() Relay {
	return Relay{
		Name:          "Limit: pages of a keyset SELECT",
		Configuration: fmt.Sprintf(`SELECT "offset", id, key, payload FROM outbox WHERE "offset" > $1 ORDER BY "offset" LIMIT %d, prepared, one connection through lib/pq, nothing delivered or settled`, keysetPage),
		Bare:          true,
		Outbox:        Waybill{},
		Deliver:       deliverKeyset,
	}
}

func deliverKeyset(ctx context.Context, dsn string, to receiver.Destination) error {
	db, err := postgres.OpenDB(dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	query, err := db.PrepareContext(ctx, fmt.Sprintf(`SELECT "offset", id, key, payload FROM outbox WHERE "offset" > $1 ORDER BY "offset" LIMIT %d`, keysetPage))
	if err != nil {
		return err
	}
	defer query.Close()
	for last, more := int64(0), true; more; {
		if last, more, err = readPage(ctx, query, last, to); err != nil {
			return err
		}
	}
	return nil
}

func readPage(ctx context.Context, query *sql.Stmt, after int64, to receiver.Destination) (last int64, more bool, err error) {
	rows, err := query.QueryContext(ctx, after)
	if err != nil {
		return after, false, err
	}
	defer rows.Close()
	last = after
	for rows.Next() {
		var id, key, payload sql.RawBytes
		if err := rows.Scan(&last, &id, &key, &payload); err != nil {
			return last, false, err
		}
		to.Take(payload)
	}
	return last, last > after, rows.Err()
}

// FranzGoLimit sends records without waiting for their acknowledgements.
func FranzGoLimit() Relay {
	return Relay{
		Name:          "Limit: franz-go",
		Configuration: "fed as fast as it takes records; idempotent, acks=all, no linger: its defaults",
		Bare:          true,
		Outbox:        Business{},
		Deliver: func(ctx context.Context, _ string, to receiver.Destination) error {
			client, err := kgo.NewClient(kgo.SeedBrokers(to.Brokers...), kgo.DefaultProduceTopic(to.Topic), kgo.ProducerLinger(0))
			if err != nil {
				return err
			}
			defer client.Close()
			var failed kgo.FirstErrPromise
			for number := 0; number < to.Orders && ctx.Err() == nil; number++ {
				o := workload.New(number)
				client.Produce(context.WithoutCancel(ctx), &kgo.Record{Key: []byte(workload.Key(number)), Value: o.JSON()}, failed.Promise())
			}
			return failed.Err()
		},
	}
}

// HTTPLimit is a loop around net/http's client.
func HTTPLimit() Relay {
	return Relay{
		Name:          "Limit: a bare net/http loop",
		Configuration: "client.Do in as many goroutines as may be in flight, with as many kept-alive connections",
		Bare:          true,
		Outbox:        Business{},
		Deliver: func(ctx context.Context, _ string, to receiver.Destination) error {
			client := newClient(to.InFlight)
			defer client.CloseIdleConnections()
			return each(ctx, to.Orders, to.InFlight, func(number int) error {
				return post(context.WithoutCancel(ctx), client, to.URL, workload.New(number).JSON())
			})
		},
	}
}

// each calls do with the numbers from 0 to n-1, in parallel goroutines, until ctx is done.
func each(ctx context.Context, n, parallel int, do func(number int) error) error {
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range parallel {
		group.Go(func() error {
			for ctx.Err() == nil {
				number := int(next.Add(1)) - 1
				if number >= n {
					return nil
				}
				if err := do(number); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}
