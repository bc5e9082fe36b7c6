package peer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/waybill-go/waybill/benchmarks/peers/receiver"
	"github.com/waybill-go/waybill/benchmarks/peers/workload"
)

// River is River's job table, with one job for each order.
type River struct{}

// orderJob is an order as a job.
type orderJob struct{ workload.Order }

func (orderJob) Kind() string { return workload.Type }

const (
	riverFill        = 10_000 // jobs of a COPY
	riverConnections = 20     // of a relay
)

// Name returns the name of the outbox.
func (River) Name() string { return "river" }

// Migrate runs River's migrations.
func (River) Migrate(ctx context.Context, dsn string) error {
	err := withPool(ctx, dsn, 1, func(pool *pgxpool.Pool) error {
		migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
		return err
	})
	return errors.Join(err, execute(ctx, dsn, createBusiness))
}

// Fill inserts with COPY.
func (River) Fill(ctx context.Context, dsn string, n int) error {
	return withPool(ctx, dsn, 1, func(pool *pgxpool.Pool) error {
		client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
		if err != nil {
			return err
		}
		return fillRiver(ctx, client, n)
	})
}

func fillRiver(ctx context.Context, client *river.Client[pgx.Tx], n int) error {
	for first := 0; first < n; first += riverFill {
		var jobs []river.InsertManyParams
		for number := first; number < min(first+riverFill, n); number++ {
			jobs = append(jobs, river.InsertManyParams{Args: orderJob{workload.New(number)}})
		}
		if _, err := client.InsertManyFast(ctx, jobs); err != nil {
			return err
		}
	}
	return nil
}

// Pending counts the jobs that are not completed.
func (River) Pending(ctx context.Context, dsn string) (int, error) {
	return count(ctx, dsn, `SELECT count(*) FROM river_job WHERE state <> 'completed'`)
}

// Open returns a publisher that inserts a job in a transaction of pgx.
func (River) Open(ctx context.Context, dsn string, clients int) (Publisher, error) {
	t, err := openPgxTransactions(ctx, dsn, clients)
	if err != nil {
		return nil, err
	}
	client, err := river.NewClient(riverpgxv5.New(t.pool), &river.Config{})
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	t.append = func(ctx context.Context, tx pgx.Tx, o workload.Order) error {
		_, err := client.InsertTx(ctx, tx, orderJob{o}, nil)
		return err
	}
	return t, nil
}

// RiverClient has the settings of a River client. Zero fields mean River's defaults.
type RiverClient struct {
	MaxWorkers        int
	FetchCooldown     time.Duration
	FetchPollInterval time.Duration
}

// Relay returns the client as a contender.
func (r RiverClient) Relay(how, configuration string) Relay {
	return Relay{Name: "River (" + how + ")", Configuration: configuration, Outbox: River{}, Deliver: r.deliver}
}

func (r RiverClient) deliver(ctx context.Context, dsn string, to receiver.Destination) error {
	return withPool(ctx, dsn, riverConnections, func(pool *pgxpool.Pool) error { return r.work(ctx, riverpgxv5.New(pool), to) })
}

// work runs a client until ctx is done.
func (r RiverClient) work(ctx context.Context, driver *riverpgxv5.Driver, to receiver.Destination) (err error) {
	out, err := newSender(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.close()) }()
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, job *river.Job[orderJob]) error {
		return out.send(ctx, item{id: job.ID, key: job.Args.Customer, payload: job.EncodedArgs})
	}))
	client, err := river.NewClient(driver, &river.Config{
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: r.MaxWorkers}},
		Workers:           workers,
		FetchCooldown:     r.FetchCooldown,
		FetchPollInterval: r.FetchPollInterval,
		Logger:            slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	// The end of Start's context would cancel running jobs; Stop lets them finish.
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	return client.Stop(context.WithoutCancel(ctx))
}
