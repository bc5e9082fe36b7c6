package scenario

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/waybill-go/waybill/benchmarks/child"
	"github.com/waybill-go/waybill/benchmarks/database"
	"github.com/waybill-go/waybill/benchmarks/peer"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

// unlimited is the time limit of runs that should always finish.
const unlimited = 10 * time.Minute

// small is the backlog with which the large ones are compared.
const small = 100_000

// The maximum memory of the relay's process.
var (
	resident = Metric{Key: "resident", Title: "resident memory, MiB"}
	heap     = Metric{Key: "heap", Title: "Go heap, MiB"}
)

// separate is a Waybill forwarder in a separate process, which delivers to nowhere.
type separate struct {
	peer.WaybillForwarder
	configuration string
}

func separateForwarder(s Sizes, sinks int) separate {
	f := peer.WaybillForwarder{Threshold: s.InFlight, Listen: true, Sinks: sinks}
	return separate{f, waybillSingle(s.InFlight).Configuration + "; a separate process"}
}

func (a separate) relay() peer.Relay { return a.Relay("separate", a.configuration) }

// drain delivers the backlog of the database in a new process, and stops the process.
func (a separate) drain(ctx context.Context, server *database.Server, dsn string, backlog int) (sample Sample, err error) {
	relay, err := child.StartRelay(child.Delivery{Forwarder: a.WaybillForwarder, DSN: dsn, Orders: backlog})
	if err != nil {
		return sample, err
	}
	m := newMeter(ctx, server, relay.ID())
	select {
	case <-relay.Arrived():
		sample.Complete = true
	case <-relay.Ended():
	case <-time.After(unlimited):
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	n := backlog * max(1, a.Sinks)
	took, metrics := m.stop(ctx, n)
	report, stopped := relay.Stop()
	if err := errors.Join(err, stopped); err != nil {
		return sample, err
	}
	metrics["rate"] = float64(report.Verdict.Distinct) / took.Seconds()
	metrics[resident.Key], metrics[heap.Key] = float64(report.Resident)/(1<<20), float64(report.Heap)/(1<<20)
	sample.Metrics = metrics
	return sample, sample.judgeBy(ctx, report.Verdict, n, a.relay(), dsn)
}

func history(s Sizes) Scenario {
	a := separateForwarder(s, 1)
	backlog := min(small, s.History/2)
	contender := func(name string, run func(ctx context.Context, server *database.Server, dsn string) (Sample, error), n int) Contender {
		return Contender{Name: name, Configuration: a.configuration, Run: func(ctx context.Context, server *database.Server) (_ Sample, err error) {
			dsn, drop, err := filled(ctx, server, a.relay().Outbox, n)
			if err != nil {
				return Sample{}, err
			}
			defer func() { err = errors.Join(err, drop()) }()
			return run(ctx, server, dsn)
		}}
	}
	pending := func(n int) Contender {
		return contender(english.Sprintf("Waybill, %d pending", n), func(ctx context.Context, server *database.Server, dsn string) (Sample, error) {
			return a.drain(ctx, server, dsn, n)
		}, n)
	}
	return Scenario{
		Name: "history", Title: "Waybill: large backlogs and long histories", Metrics: []Metric{rate, resident, heap, ownCPU, theirCPU}, Once: true,
		About: "Is a drain slower, or the process larger, with many pending rows, or with many rows that were settled long ago? The forwarder runs in a separate process and delivers to nowhere. The time includes its start.",
		Contenders: []Contender{
			pending(backlog), pending(s.History),
			contender(english.Sprintf("Waybill, %d pending behind %d settled", backlog, s.History), func(ctx context.Context, server *database.Server, dsn string) (Sample, error) {
				if _, err := a.drain(ctx, server, dsn, s.History); err != nil {
					return Sample{}, err
				}
				if err := a.relay().Outbox.Fill(ctx, dsn, backlog); err != nil {
					return Sample{}, err
				}
				return a.drain(ctx, server, dsn, backlog)
			}, s.History),
		},
	}
}

// manySinks is the number of sinks in a program with very many.
const manySinks = 40

func fan(s Sizes) Scenario {
	scenario := Scenario{
		Name: "sinks", Title: "Waybill: many sinks", Metrics: []Metric{rate, resident, heap, ownCPU, theirCPU}, Once: true,
		About: english.Sprintf("%d orders are pending, and each goes to every sink. The process has only the forwarder and a counter, so its memory shows the cost of a sink.", s.Fan),
	}
	for _, sinks := range []int{1, manySinks} {
		a := separateForwarder(s, sinks)
		scenario.Contenders = append(scenario.Contenders, Contender{
			Name: "Waybill, " + plural(sinks, "sink"), Configuration: a.configuration,
			Run: func(ctx context.Context, server *database.Server) (_ Sample, err error) {
				dsn, drop, err := filled(ctx, server, a.relay().Outbox, s.Fan)
				if err != nil {
					return Sample{}, err
				}
				defer func() { err = errors.Join(err, drop()) }()
				return a.drain(ctx, server, dsn, s.Fan)
			},
		})
	}
	return scenario
}

// rounds is how often the scenario dead-tuples fills and drains.
const rounds = 5

func deadTuples(s Sizes) Scenario {
	a := separateForwarder(s, 1)
	return Scenario{
		Name: "dead-tuples", Title: "Waybill: what deliveries leave behind", Once: true,
		Metrics: []Metric{
			{Key: "dead_outbox", Title: "dead tuples in outbox"}, {Key: "dead_cursors", Title: "dead tuples in outbox_cursors"}, rate,
		},
		About: english.Sprintf("%d notifications are published and delivered in %d rounds, with autovacuum off for the tables.", s.Through, rounds),
		Contenders: []Contender{{
			Name: "Waybill", Configuration: a.configuration,
			Run: func(ctx context.Context, server *database.Server) (Sample, error) {
				return leaveBehind(ctx, server, a, s)
			},
		}},
	}
}

func leaveBehind(ctx context.Context, server *database.Server, a separate, s Sizes) (_ Sample, err error) {
	outbox := a.relay().Outbox
	dsn, drop, err := empty(ctx, server, outbox)
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	db, err := postgres.OpenDB(dsn)
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.ExecContext(ctx, `ALTER TABLE outbox SET (autovacuum_enabled = off); ALTER TABLE outbox_cursors SET (autovacuum_enabled = off)`); err != nil {
		return Sample{}, err
	}
	total := Sample{Metrics: make(map[string]float64), Complete: true}
	for range rounds {
		if err := outbox.Fill(ctx, dsn, s.Through/rounds); err != nil {
			return Sample{}, err
		}
		one, err := a.drain(ctx, server, dsn, s.Through/rounds)
		if err != nil {
			return Sample{}, err
		}
		total.add(one)
	}
	total.Metrics["rate"] /= rounds
	return total, errors.Join(
		countDead(ctx, db, "outbox", total.Metrics, "dead_outbox"), countDead(ctx, db, "outbox_cursors", total.Metrics, "dead_cursors"))
}

func (s *Sample) add(o Sample) {
	s.Metrics["rate"] += o.Metrics["rate"]
	for _, key := range []string{othersKey, stolenKey, throttledKey} {
		s.Metrics[key] = max(s.Metrics[key], o.Metrics[key])
	}
	s.Complete = s.Complete && o.Complete
	s.Lost += o.Lost
	s.Unsettled += o.Unsettled
	s.Repeats += o.Repeats
	s.Swapped += o.Swapped
}

// countDead adds the number of dead tuples of a table, which ANALYZE counts.
func countDead(ctx context.Context, db *sql.DB, table string, metrics map[string]float64, key string) error {
	if _, err := db.ExecContext(ctx, `ANALYZE `+table); err != nil {
		return err
	}
	var dead float64
	if err := db.QueryRowContext(ctx, `SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = $1`, table).Scan(&dead); err != nil {
		return err
	}
	metrics[key] = dead
	return nil
}
