package scenario

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/procfs"

	"github.com/waybill-go/waybill/benchmarks/database"
	"github.com/waybill-go/waybill/benchmarks/peer"
	"github.com/waybill-go/waybill/benchmarks/receiver"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

// unlimited is how long what takes as long as it takes may take.
const unlimited = 10 * time.Minute

// small is the backlog that the large ones are compared with.
const small = 100_000

var memory = Metric{Key: "memory", Title: "resident memory at most, MiB"}

func history(s Sizes) Scenario {
	to := receiver.Config{Kind: receiver.Nowhere, InFlight: s.InFlight}
	backlog := min(small, s.History)
	measured := func(name, configuration string, run func(ctx context.Context, server *database.Server) (Sample, error)) Contender {
		return Contender{Name: name, Configuration: configuration, Run: func(ctx context.Context, server *database.Server) (Sample, error) {
			return withMemory(func() (Sample, error) { return run(ctx, server) })
		}}
	}
	relay := waybillSingle(s.InFlight)
	return Scenario{
		Name: "history", Title: "Waybill: large backlogs and long histories", Metrics: []Metric{rate, memory, ownCPU, theirCPU},
		About: "Does a drain get slower, or the process larger, with what is pending or has been settled long ago? The process holds the receiver too, and whatever Go's collector has not given back.",
		Contenders: []Contender{
			measured(english.Sprintf("%d pending", backlog), relay.Configuration, drain{relay, to, backlog, unlimited}.run),
			measured(english.Sprintf("%d pending", s.History), relay.Configuration, drain{relay, to, s.History, unlimited}.run),
			measured(english.Sprintf("%d pending behind %d settled", backlog, s.History), relay.Configuration,
				func(ctx context.Context, server *database.Server) (Sample, error) {
					return drainBehind(ctx, server, relay, to, s.History, backlog)
				}),
		},
	}
}

// drainBehind drains a backlog that was filled in after others were settled.
func drainBehind(ctx context.Context, server *database.Server, relay peer.Relay, to receiver.Config, settled, backlog int) (_ Sample, err error) {
	dsn, drop, err := server.Copy(ctx, fmt.Sprintf("waybill %d behind %d", backlog, settled), func(ctx context.Context, dsn string) error {
		if err := errors.Join(relay.Outbox.Migrate(ctx, dsn), relay.Outbox.Fill(ctx, dsn, settled)); err != nil {
			return err
		}
		if _, err := (drain{relay, to, settled, unlimited}).runOn(ctx, server, dsn); err != nil {
			return err
		}
		return relay.Outbox.Fill(ctx, dsn, backlog)
	})
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	return drain{relay, to, backlog, unlimited}.runOn(ctx, server, dsn)
}

// withMemory adds the most memory that the process held while a run lasted.
func withMemory(run func() (Sample, error)) (Sample, error) {
	debug.FreeOSMemory()
	var (
		most     uint64
		sampling sync.WaitGroup
	)
	done := make(chan struct{})
	sampling.Go(func() {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				most = max(most, residentMemory())
			case <-done:
				return
			}
		}
	})
	sample, err := run()
	close(done)
	sampling.Wait()
	if err == nil && most > 0 {
		sample.Metrics["memory"] = float64(most) / (1 << 20)
	}
	return sample, err
}

// residentMemory is 0 where there is no /proc.
func residentMemory() uint64 {
	self, err := procfs.Self()
	if err != nil {
		return 0
	}
	status, err := self.NewStatus()
	if err != nil {
		return 0
	}
	return status.VmRSS
}

// rounds is how often the dead tuples' scenario fills and drains.
const rounds = 5

func deadTuples(s Sizes) Scenario {
	return Scenario{
		Name: "dead-tuples", Title: "Waybill: what deliveries leave behind",
		Metrics: []Metric{
			{Key: "dead_outbox", Title: "dead tuples in outbox"}, {Key: "dead_cursors", Title: "dead tuples in outbox_cursors"}, rate, memory,
		},
		About: english.Sprintf("%d notifications go through in %d rounds of filling and draining, with autovacuum off for the tables.", s.Through, rounds),
		Contenders: []Contender{{
			Name: "Waybill", Configuration: waybillSingle(s.InFlight).Configuration,
			Run: func(ctx context.Context, server *database.Server) (Sample, error) {
				return withMemory(func() (Sample, error) { return leaveBehind(ctx, server, s) })
			},
		}},
	}
}

func leaveBehind(ctx context.Context, server *database.Server, s Sizes) (sample Sample, err error) {
	relay := waybillSingle(s.InFlight)
	dsn, drop, err := empty(ctx, server, relay.Outbox)
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
	to := receiver.Config{Kind: receiver.Nowhere, InFlight: s.InFlight}
	total := Sample{Metrics: make(map[string]float64), Complete: true}
	for range rounds {
		if err := relay.Outbox.Fill(ctx, dsn, s.Through/rounds); err != nil {
			return Sample{}, err
		}
		one, err := drain{relay, to, s.Through / rounds, unlimited}.runOn(ctx, server, dsn)
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
	s.Complete = s.Complete && o.Complete
	s.Lost += o.Lost
	s.Unsettled += o.Unsettled
	s.Repeats += o.Repeats
	s.Swapped += o.Swapped
}

// countDead has ANALYZE count.
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
