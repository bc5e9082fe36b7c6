package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/benchmarks/durations"
	"github.com/waybill-go/waybill/benchmarks/result"
	"github.com/waybill-go/waybill/framework/outbox"
)

var (
	transactions = result.Quantity{Name: "transactions", Unit: "transactions/s", Better: "higher"}
	ofAlone      = result.Quantity{Name: "of_alone", Better: "higher"}
	commitP99    = result.Quantity{Name: "p99", Unit: "ms", Better: "lower"}
)

// publish measures the cost of publishing for transactions: the insert of a business row alone, with
// one notification, and with ten.
func (b *bench) publish(ctx context.Context) ([]result.Case, error) {
	var trials []trial
	for _, clients := range b.config.clients {
		for _, notifications := range []int{0, 1, 10} {
			trials = append(trials, trial{publishName(notifications, clients), func(ctx context.Context, r round) (measurement, error) {
				return b.publishOnce(ctx, r, clients, notifications)
			}})
		}
	}
	cases, err := b.rounds(ctx, "publish", trials)
	if err != nil {
		return nil, err
	}
	for i := range cases {
		cases[i].AddShare(ofAlone, transactions.Name, &cases[i-i%3])
	}
	return cases, nil
}

func publishName(notifications, clients int) string {
	what := "insert alone"
	if notifications > 0 {
		what = fmt.Sprintf("with %s", result.Plural(notifications, "notification"))
	}
	return fmt.Sprintf("%s, %s", result.Plural(clients, "client"), what)
}

func (b *bench) publishOnce(ctx context.Context, r round, clients, notifications int) (measurement, error) {
	if err := b.database.empty(ctx); err != nil {
		return measurement{}, err
	}
	a, err := b.newApplication(b.database.newBatch(), outbox.Config{})
	if err != nil {
		return measurement{}, err
	}
	a.clients, a.notifications, a.took = clients, notifications, durations.New()
	b.progress.Watch(func() string { return fmt.Sprintf("%s transactions", result.Count(a.transactions.Load())) })
	took, err := a.run(ctx, r.length(b.config.duration(time.Second)))
	if err != nil {
		return measurement{}, err
	}
	check, err := b.checkRows(ctx, a)
	return measurement{
		figures: []result.Figure{
			transactions.Of(float64(a.transactions.Load()) / took.Seconds()),
			commitP99.Of(a.took.Percentile(99)),
		},
		checks: []result.Check{check},
	}, err
}

// checkRows compares the log with what was published.
func (b *bench) checkRows(ctx context.Context, a *application) (result.Check, error) {
	c := result.Check{Sink: "the outbox", Counted: countedRows, Expected: int64(a.published())}
	var own, all int64
	query, args := b.database.SQL(
		b.database.named(`SELECT count(DISTINCT CASE WHEN substr(id, 1, $2) = $1 THEN id END), count(CASE WHEN substr(id, 1, $2) = $1 THEN 1 END), count(*) FROM outbox`),
		a.batch.tag, len(a.batch.tag))
	err := b.database.DB.QueryRowContext(ctx, query, args...).Scan(&c.Arrived, &own, &all)
	c.Lost, c.Repeated, c.Unknown = max(c.Expected-c.Arrived, 0), own-c.Arrived, all-own+max(c.Arrived-c.Expected, 0)
	if err != nil {
		err = fmt.Errorf("count the rows of the outbox: %w", err)
	}
	return c, err
}
