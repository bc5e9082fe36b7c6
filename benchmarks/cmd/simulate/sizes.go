package main

import "time"

// sizes are the fleets to simulate.
type sizes struct {
	seed  uint64
	seeds int // runs of each fleet in handovers

	forwarders []int // fleets in handovers
	lanes      []int // numbers of lanes in handovers

	watchers  []int         // numbers of idle forwarders on one database
	databases []int         // numbers of databases with two idle forwarders each
	looking   time.Duration // simulated time of idle forwarders

	fleet  fleetSize     // fleet in tenants
	dead   []int         // numbers of dead tenants in tenants, per ten thousand
	warmUp time.Duration // simulated time before the figures of tenants count
	time   time.Duration // simulated time that counts
	fleets []fleetSize   // fleets in courses, where one tenant in a hundred dies; the first with all ways
	course time.Duration // simulated time of courses
}

// fleetSize is a fleet that delivers to tenants.
type fleetSize struct {
	processes, tenants int
	rate               float64
}

// slots returns the slots of each process: 1.5 times the process's rate times the latency.
func (f fleetSize) slots() int {
	return int(1.5 * f.rate / float64(f.processes) * latency.Seconds())
}

// latency is the response time of all destinations.
const latency = 20 * time.Millisecond

func defaultSizes() sizes {
	return sizes{
		seeds: 10, forwarders: []int{2, 4, 8, 16, 32, 64}, lanes: []int{64, 512, 4096},
		watchers: []int{1, 2, 5, 10, 20, 50, 100}, databases: []int{1, 10, 100, 1000}, looking: time.Minute,
		fleet: fleetSize{2, 1000, 20_000},
		dead:  []int{0, 10, 30, 100, 300, 1000}, warmUp: 50 * time.Second, time: 10 * time.Second,
		fleets: []fleetSize{{10, 10_000, 100_000}, {1, 100, 10_000}, {10, 1000, 100_000}, {100, 10_000, 1_000_000}}, course: 2 * time.Minute,
	}
}

// smokeSizes returns tiny sizes, to check that everything works.
func smokeSizes() sizes {
	return sizes{
		seeds: 2, forwarders: []int{2, 4}, lanes: []int{8, 16},
		watchers: []int{1, 2}, databases: []int{1, 3}, looking: 10 * time.Second,
		fleet: fleetSize{2, 100, 2000},
		dead:  []int{0, 100}, warmUp: 3 * time.Second, time: 2 * time.Second,
		fleets: []fleetSize{{1, 50, 1000}, {2, 100, 2000}}, course: 5 * time.Second,
	}
}
