package scenario

import (
	"context"
	"database/sql"
	"errors"

	"github.com/waybill-go/waybill/benchmarks/peer"
)

// trouble causes a problem in the database at dsn during a run; over ends it.
type trouble func(ctx context.Context, dsn string) (over func() error, err error)

// begin does nothing if t is nil.
func (t trouble) begin(ctx context.Context, dsn string) (over func() error, err error) {
	if t == nil {
		return func() error { return nil }, nil
	}
	return t(ctx, dsn)
}

// heldTransaction opens a transaction that writes to the outbox and stays open during the run. It
// holds an offset, a snapshot and a transaction id.
func heldTransaction(ctx context.Context, dsn string) (over func() error, err error) {
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		return nil, err
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	over = func() error { return errors.Join(tx.Rollback(), db.Close()) }
	if _, err := tx.ExecContext(ctx, `INSERT INTO outbox (type, key, payload) VALUES ('order.held', 'held', '{}')`); err != nil {
		return nil, errors.Join(err, over())
	}
	return over, nil
}

// parked adds n parked deliveries with keys that no order of the run has: half of them are dead, half
// are due in an hour.
func parked(n int) trouble {
	return func(ctx context.Context, dsn string) (over func() error, err error) {
		db, err := sql.Open("postgres", dsn)
		if err != nil {
			return nil, err
		}
		_, err = db.ExecContext(ctx, `
			INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, due_at)
			SELECT $2, i, i % 1024, 'parked-' || i, 'order.placed', 1, 'parked-' || i % 5000, now(), '{}', '{}',
				CASE WHEN i % 2 = 0 THEN 'dead' ELSE 'retrying' END, 1, CASE WHEN i % 2 = 0 THEN NULL ELSE now() + interval '1 hour' END
			FROM generate_series(1, $1::int) i`, n, peer.WaybillSink(0))
		if err == nil {
			_, err = db.ExecContext(ctx, `VACUUM ANALYZE outbox_parked`)
		}
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		return db.Close, nil
	}
}

// troubled measures Waybill's latencies while there is another problem.
func troubled(s Sizes) Scenario {
	scenario := Scenario{
		Name: "latency-trouble", Title: "Waybill: from the commit to the sink, with other problems", Metrics: latencyMetrics,
		About: english.Sprintf("The same with %d transactions a second, while there is another problem that must not delay them. The parked deliveries have other keys.", usualRate),
	}
	for _, c := range []struct {
		name, configuration string
		dead                bool
		trouble             trouble
	}{
		{name: "Waybill, no trouble", configuration: "as single above"},
		{name: "Waybill, a held transaction", configuration: "a transaction that has written to the outbox stays open", trouble: heldTransaction},
		{name: "Waybill, a dead sink", configuration: "a second sink gets every order too, and its destination is unreachable", dead: true},
		{name: "Waybill, many parked", configuration: english.Sprintf("%d deliveries of the sink are parked, half of them dead", s.Parked), trouble: parked(s.Parked)},
	} {
		relay := peer.WaybillForwarder{Threshold: s.InFlight, Listen: true, Dead: c.dead}.Relay("single", "")
		scenario.Contenders = append(scenario.Contenders, Contender{
			Name: c.name, Configuration: c.configuration, Run: lags{relay: relay, sizes: s, rate: usualRate, trouble: c.trouble}.run,
		})
	}
	return scenario
}
