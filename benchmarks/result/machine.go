package result

import (
	"context"
	"runtime"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/host"
	"github.com/shirou/gopsutil/v4/load"
	"github.com/shirou/gopsutil/v4/mem"
)

// Machine describes the machine. Unknown fields are zero.
type Machine struct {
	Processor   string  `json:"processor"`
	Processors  int     `json:"processors"` // that the program may use
	MemoryBytes uint64  `json:"memory_bytes"`
	Platform    string  `json:"platform"`
	Go          string  `json:"go"`
	Busy        float64 `json:"busy"` // share of the processors that others used before the benchmark began
	Load        float64 `json:"load"` // average of the last minute
	// Modules are the versions of modules that affect the result, in the comparison with peers.
	Modules map[string]string `json:"modules,omitempty"`
}

// Server is the database.
type Server struct {
	Kind    string `json:"kind"`
	Version string `json:"version"`
	// RoundTripMS is the time that an empty statement takes.
	RoundTripMS float64           `json:"round_trip_ms"`
	Settings    map[string]string `json:"settings"`
}

// InspectMachine describes this machine, as far as the system reports it.
func InspectMachine(ctx context.Context) Machine {
	m := Machine{Processors: runtime.GOMAXPROCS(0), Platform: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()}
	if infos, err := cpu.InfoWithContext(ctx); err == nil && len(infos) > 0 {
		m.Processor = infos[0].ModelName
	}
	if memory, err := mem.VirtualMemoryWithContext(ctx); err == nil {
		m.MemoryBytes = memory.Total
	}
	if kernel, err := host.KernelVersionWithContext(ctx); err == nil {
		m.Platform += ", kernel " + kernel
	}
	m.Load = Load(ctx)
	return m
}

// Load returns the load average of the last minute; 0 if it is unknown.
func Load(ctx context.Context) float64 {
	if average, err := load.AvgWithContext(ctx); err == nil {
		return average.Load1
	}
	return 0
}
