package scenario

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/waybill-go/waybill/benchmarks/database"
	"github.com/waybill-go/waybill/benchmarks/peer"
)

// meter measures a run from its making on.
type meter struct {
	server   *database.Server
	began    time.Time
	own      time.Duration
	postgres time.Duration
	seen     bool // PostgreSQL's processes are visible
}

func newMeter(ctx context.Context, server *database.Server) *meter {
	m := &meter{server: server}
	m.postgres, m.seen = server.CPU(ctx)
	m.own, m.began = processCPU(), time.Now()
	return m
}

// stop returns the metrics that all runs have: the time, and how many cores were busy.
func (m *meter) stop(ctx context.Context) (took time.Duration, metrics map[string]float64) {
	took = time.Since(m.began)
	metrics = map[string]float64{"seconds": took.Seconds(), "cpu": (processCPU() - m.own).Seconds() / took.Seconds()}
	if now, ok := m.server.CPU(ctx); ok && m.seen {
		metrics["postgres_cpu"] = (now - m.postgres).Seconds() / took.Seconds()
	}
	return took, metrics
}

// processCPU is the processor time of this process: the contender, and the receiver.
func processCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func key(o peer.Outbox, n int) string { return fmt.Sprintf("%s %d", o.Name(), n) }
