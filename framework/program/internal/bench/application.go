package bench

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/benchmarks/durations"
	"github.com/waybill-go/waybill/framework/outbox"
)

// application simulates an application: clients that commit business rows together with
// notifications.
type application struct {
	bench     *bench
	batch     batch
	publisher *outbox.Publisher
	clients   int
	// notifications is how many each transaction publishes.
	notifications int
	// rate is in transactions per second; 0 means as many as possible.
	rate int
	// committed, if set, is called concurrently after each commit, with the number of the first
	// notification.
	committed func(first int, at time.Time)
	// took, if set, records the duration of each transaction.
	took *durations.Histogram

	insert       string       // of a business row
	next         atomic.Int64 // number of the next notification
	begun        atomic.Int64 // transactions
	transactions atomic.Int64 // that are committed
}

func (b *bench) newApplication(named batch, c outbox.Config) (*application, error) {
	types, err := b.config.newTypes()
	if err != nil {
		return nil, err
	}
	publisher, err := outbox.New(types, b.database.Store, c)
	insert, _ := b.database.SQL(b.database.named(`INSERT INTO outbox_orders (id, customer, quantity) VALUES ($1, $2, $3)`), "", "", 0)
	return &application{
		bench: b, batch: named, publisher: publisher, clients: b.database.together, notifications: 1,
		insert: insert,
	}, err
}

// published returns how many notifications are committed.
func (a *application) published() int { return int(a.transactions.Load()) * a.notifications }

// run commits transactions for a time and returns the actual duration.
func (a *application) run(ctx context.Context, d time.Duration) (time.Duration, error) {
	began := time.Now()
	var turns atomic.Int64
	clients, ctx := errgroup.WithContext(ctx)
	for range a.clients {
		clients.Go(func() error {
			for {
				var due time.Duration
				if a.rate > 0 {
					due = time.Duration(turns.Add(1)-1) * time.Second / time.Duration(a.rate)
				}
				if due >= d || time.Since(began) >= d {
					return nil
				}
				if !sleep(ctx, due-time.Since(began)) {
					return ctx.Err()
				}
				if err := a.transact(ctx); err != nil {
					return err
				}
			}
		})
	}
	err := clients.Wait()
	return time.Since(began), err
}

// transact commits one business row and its notifications.
func (a *application) transact(ctx context.Context) error {
	n := a.notifications
	first := int(a.next.Add(int64(n))) - n
	order := a.batch.id(int(a.begun.Add(1)) - 1)
	items := make([]any, n)
	for i := range items {
		items[i] = a.bench.notification(a.batch, first+i)
	}
	began := time.Now()
	err := a.publisher.RunInTx(ctx, a.bench.database.DB, nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, a.insert, order, "customer", 1); err != nil {
			return err
		}
		return a.publisher.Publish(ctx, tx, items...)
	})
	if err != nil {
		return err
	}
	at := time.Now()
	a.transactions.Add(1)
	if a.took != nil {
		a.took.Record(at.Sub(began))
	}
	if a.committed != nil {
		a.committed(first, at)
	}
	return nil
}

// sleep returns false once ctx is done.
func sleep(ctx context.Context, pause time.Duration) bool {
	if pause <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
