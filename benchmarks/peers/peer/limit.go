package peer

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/benchmarks/peers/receiver"
	"github.com/waybill-go/waybill/benchmarks/peers/workload"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

// The limits of an outbox: they read rows without delivering them, or deliver made-up orders without
// reading any.

// keysetPage has as many rows as a page of a forwarder.
const keysetPage = 2000

var keysetQuery = fmt.Sprintf(`SELECT "offset", key, id, type, version, occurred_on, deliver_at, metadata, payload FROM outbox WHERE "offset" > $1 ORDER BY "offset" LIMIT %d`, keysetPage)

// KeysetLimit reads pages of Waybill's outbox on one connection, with the columns and the number of rows
// that a forwarder reads, and settles nothing.
func KeysetLimit() Relay {
	return Relay{
		Name:          "Limit: pages of a keyset SELECT",
		Configuration: keysetQuery + ", which are the columns and the page size of Waybill; prepared, one connection through lib/pq and database/sql, nothing delivered or settled",
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
	query, err := db.PrepareContext(ctx, keysetQuery)
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
		var key, id, kind, metadata, payload sql.RawBytes // copies of them would be slower
		var version int
		var occurredOn time.Time
		var deliverAt sql.NullTime
		if err := rows.Scan(&last, &key, &id, &kind, &version, &occurredOn, &deliverAt, &metadata, &payload); err != nil {
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
		Configuration: "client.Do in as many goroutines as may be in flight, with as many kept-alive connections; " + HTTPText,
		Bare:          true,
		Outbox:        Business{},
		Deliver: func(ctx context.Context, _ string, to receiver.Destination) error {
			client := newClient(to.InFlight)
			defer client.CloseIdleConnections()
			return each(ctx, to.Orders, to.InFlight, func(number int) error {
				return post(context.WithoutCancel(ctx), client, to.URL, item{int64(number), workload.Key(number), workload.New(number).JSON()})
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
