package crashtest

import (
	"math/rand/v2"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The faults. Each happens once before any of them happens again.
const (
	// KillForwarder kills a forwarder with SIGKILL and starts another one.
	KillForwarder Kind = "kill forwarder"
	// PauseForwarder stops a forwarder with SIGSTOP until its leases are over, then
	// lets it go on, unaware.
	PauseForwarder Kind = "pause forwarder"
	// TerminateForwarder stops a forwarder with SIGTERM and starts another one.
	TerminateForwarder Kind = "terminate forwarder"
	// CutDatabase closes a forwarder's connections to the database and refuses new ones.
	CutDatabase Kind = "cut database"
	// SlowDatabase delays all that the database answers to a forwarder.
	SlowDatabase Kind = "slow database"
	// SilenceDatabase swallows what a forwarder and the database say to each other,
	// without closing a connection: a black hole.
	SilenceDatabase Kind = "silence database"
	// CutSink closes a forwarder's connections to the sink and refuses new ones.
	CutSink Kind = "cut sink"
	// RestartDatabase ends all of the server's processes at once and starts it again.
	RestartDatabase Kind = "restart database"
	// CrashDatabase kills one of PostgreSQL's processes with SIGKILL; it then ends
	// the others and recovers, without a restart. Before PostgreSQL 15 that
	// cannot be noticed, and MySQL is one process, so it is left out there.
	CrashDatabase Kind = "crash database"
	// KillPublisher kills a publisher with SIGKILL in a transaction and starts
	// another one.
	KillPublisher Kind = "kill publisher"
)

var kinds = []Kind{
	KillForwarder, PauseForwarder, TerminateForwarder,
	CutDatabase, SlowDatabase, SilenceDatabase, CutSink,
	RestartDatabase, CrashDatabase, KillPublisher,
}

// step is a fault to come.
type step struct {
	kind   Kind
	victim int           // number of the forwarder or publisher
	after  time.Duration // since the end of the one before it
	length time.Duration
}

// plan is an endless row of steps that follows from a seed.
type plan struct {
	config Config
	random *rand.Rand
	round  []Kind // what is left of this one
}

func newPlan(c Config) *plan {
	return &plan{config: c, random: rand.New(rand.NewPCG(c.Seed, 1))}
}

func (p *plan) next() step {
	if len(p.round) == 0 {
		p.round = append(p.round, p.config.Faults...)
		p.random.Shuffle(len(p.round), func(i, j int) { p.round[i], p.round[j] = p.round[j], p.round[i] })
	}
	s := step{kind: p.round[0], after: p.between(p.config.Gap/4, p.config.Gap*7/4)}
	p.round = p.round[1:]
	victims := p.config.Forwarders
	if s.kind == KillPublisher {
		victims = p.config.Publishers
	}
	s.victim = p.random.IntN(victims)
	lease := p.config.Lease
	switch s.kind {
	case KillForwarder, TerminateForwarder, KillPublisher:
		s.length = p.between(0, time.Second) // until the next one is there
	case PauseForwarder:
		s.length = p.between(lease+lease/10, lease*2) // always past the lease
	case SlowDatabase:
		s.length = p.between(lease/2, lease*3/2)
	case RestartDatabase, CrashDatabase: // as long as it takes
	default:
		s.length = p.between(lease/10, lease*3/2) // sometimes past the lease
	}
	return s
}

func (p *plan) between(low, high time.Duration) time.Duration {
	return low + time.Duration(p.random.Int64N(int64(high-low)))
}
