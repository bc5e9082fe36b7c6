package scenario

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/waybill-go/waybill/benchmarks/peers/database"
	"github.com/waybill-go/waybill/benchmarks/peers/machine"
)

// meter measures a run, from newMeter to stop.
type meter struct {
	server *database.Server
	loops  []int // ids of the processes that keep the machine busy
	began  time.Time
	before reading
}

// reading is the processor time used up to a moment.
type reading struct {
	own, postgres, loops time.Duration
	seen                 bool // PostgreSQL's processes are visible
	machine              machine.Usage
	known                bool // machine is valid
}

// newMeter starts to measure a contender.
func newMeter(ctx context.Context, server *database.Server) *meter {
	m := &meter{server: server, loops: loopsBeside(ctx)}
	m.before = m.read(ctx)
	m.began = time.Now()
	return m
}

func (m *meter) read(ctx context.Context) (r reading) {
	r.own = processCPU()
	r.loops = machine.CPU(m.loops...)
	r.postgres, r.seen = m.server.CPU(ctx)
	r.machine, r.known = machine.Used()
	return r
}

// The keys of the metrics that show whether a run is spoiled; see Sample.Spoilt.
const (
	samplesKey = "samples" // number of deliveries, transactions or latencies
	othersKey  = "others"  // cores used by other processes
	stolenKey  = "stolen"  // cores that the hypervisor gave to other guests
)

// stop returns the metrics that all runs have: the time, how many cores were busy,
// and how many samples there are.
func (m *meter) stop(ctx context.Context, samples int) (took time.Duration, metrics map[string]float64) {
	took = time.Since(m.began)
	after := m.read(ctx)
	cores := func(used time.Duration) float64 { return max(0, used.Seconds()/took.Seconds()) }
	own, postgres := after.own-m.before.own, after.postgres-m.before.postgres
	metrics = map[string]float64{"seconds": took.Seconds(), samplesKey: float64(samples), "cpu": cores(own)}
	if after.seen && m.before.seen {
		metrics["postgres_cpu"] = cores(postgres)
	}
	if after.known && m.before.known && after.seen {
		used := after.machine.Since(m.before.machine)
		metrics[othersKey] = cores(used.Busy - own - postgres - (after.loops - m.before.loops))
		metrics[stolenKey] = cores(used.Stolen)
	}
	return took, metrics
}

const (
	// fewestSamples is the least number of samples of a valid figure.
	fewestSamples = 20
	// countingError is the possible error of processor time, in seconds: the system counts
	// hundredths of each process.
	countingError = 0.05
)

// Spoilt returns why a run is not valid, or "" if it is. Other processes, or other guests of the
// hypervisor, had the given share of the machine or more, or there are fewer than 20 samples.
func (s Sample) Spoilt(cores int, share float64) string {
	m := s.Metrics
	most := share * float64(cores)
	if seconds := m["seconds"]; seconds > 0 {
		most = max(most, countingError/seconds)
	}
	switch n, counted := m[samplesKey]; {
	case m[othersKey] >= most:
		return fmt.Sprintf("other processes had %.2f cores", m[othersKey])
	case m[stolenKey] >= most:
		return fmt.Sprintf("the hypervisor kept %.2f cores", m[stolenKey])
	case counted && n < fewestSamples:
		return fmt.Sprintf("only %.0f samples", n)
	}
	return ""
}

// processCPU returns the processor time of this process: the contender and the receiver.
func processCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
