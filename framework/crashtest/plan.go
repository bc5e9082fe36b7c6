package crashtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The kinds of fault. Each happens once before any of them happens again.
const (
	// KillForwarder kills a forwarder with SIGKILL and starts another one.
	KillForwarder Kind = "kill forwarder"
	// PauseForwarder stops a forwarder with SIGSTOP until its leases have expired, and then lets
	// it continue.
	PauseForwarder Kind = "pause forwarder"
	// TerminateForwarder stops a forwarder with SIGTERM and starts another one.
	TerminateForwarder Kind = "terminate forwarder"
	// CutDatabase closes a forwarder's connections to the database and refuses new ones.
	CutDatabase Kind = "cut database"
	// SlowDatabase delays the database's answers to a forwarder.
	SlowDatabase Kind = "slow database"
	// SilenceDatabase drops everything between a forwarder and the database without closing a
	// connection.
	SilenceDatabase Kind = "silence database"
	// CutSink closes a forwarder's connections to the sink and refuses new ones.
	CutSink Kind = "cut sink"
	// RestartDatabase ends all processes of the server at once and starts it again.
	RestartDatabase Kind = "restart database"
	// CrashDatabase kills one process of PostgreSQL with SIGKILL. The server then ends the others
	// and recovers, without a restart. Run leaves it out before PostgreSQL 15, which does not show
	// a recovery, and for MySQL, which is a single process.
	CrashDatabase Kind = "crash database"
	// EndSessions makes the server end all sessions at once. It goes on, and so do the processes.
	EndSessions Kind = "end sessions"
	// StopSession stops a process of PostgreSQL that serves a session, with SIGSTOP, and whatever it has locked.
	StopSession Kind = "stop session"
	// FailOver copies the server to a standby, stops it, and lets the standby replace it.
	FailOver Kind = "fail over"
	// SetClock sets the clock of the database server forward or back, and then right again. It needs libfaketime.
	SetClock Kind = "set clock"
	// FailStep makes a durable step of a forwarder fail; see Config.Steps.
	FailStep Kind = "fail step"
	// Reload changes the configuration of a forwarder while it runs; see Config.Reload.
	Reload Kind = "reload"
	// PersonActs lets a person do one of Config.Acts.
	PersonActs Kind = "person acts"
	// KillPublisher kills a publisher with SIGKILL in a transaction and starts another one.
	KillPublisher Kind = "kill publisher"
	// Stall is a time in which the machine stood still for so long that leases may have expired. Run notices it, and
	// does not cause it.
	Stall Kind = "stall of the machine"
)

var kinds = []Kind{
	KillForwarder, PauseForwarder, TerminateForwarder,
	CutDatabase, SlowDatabase, SilenceDatabase, CutSink,
	RestartDatabase, CrashDatabase, EndSessions, StopSession, FailOver, SetClock,
	FailStep, Reload, PersonActs, KillPublisher,
}

// step is a planned fault.
type step struct {
	kind   Kind
	victim int           // number of the forwarder, publisher or act
	after  time.Duration // after the end of the previous fault
	length time.Duration
	offset time.Duration // of the clock
	points points
}

// detail is what the log says of a step besides.
func (s step) detail() (text string) {
	if s.offset != 0 {
		text = fmt.Sprintf(" by %s", s.offset.Round(time.Millisecond))
	}
	for _, p := range s.points {
		text += fmt.Sprintf(", %s: %s", p.place, p.action)
	}
	return text
}

// plan is an endless sequence of steps, determined by a seed.
type plan struct {
	config Config
	random *rand.Rand
	round  []Kind // the rest of this round
}

// newPlan returns the plan of one of the sequences.
func newPlan(c Config, sequence int) *plan {
	return &plan{config: c, random: rand.New(rand.NewPCG(c.Seed, uint64(1+4*sequence)))}
}

func (p *plan) next() step {
	if len(p.round) == 0 {
		p.round = append(p.round, p.config.Faults...)
		p.random.Shuffle(len(p.round), func(i, j int) { p.round[i], p.round[j] = p.round[j], p.round[i] })
	}
	s := step{kind: p.round[0], after: p.between(p.config.Gap/4, p.config.Gap*7/4)}
	p.round = p.round[1:]
	victims := p.config.Forwarders
	switch s.kind {
	case KillPublisher:
		victims = publishers
	case PersonActs:
		victims = len(p.config.Acts)
	}
	s.victim = p.random.IntN(victims)
	lease := p.config.Lease
	if s.kind == FailStep {
		s.points = p.points(p.config.Steps, 4)
	}
	if p.config.Survivor && s.victim == 0 && (s.kind == KillForwarder || s.kind == TerminateForwarder || s.points.kill()) {
		s.victim = 1
	}
	switch s.kind {
	case KillForwarder, TerminateForwarder, KillPublisher:
		s.length = p.between(0, time.Second) // until the next one starts
	case PauseForwarder:
		s.length = p.between(lease+lease/10, lease*2) // always longer than the lease
	case SlowDatabase:
		s.length = p.between(lease/2, lease*3/2)
	case FailStep:
		s.length = p.between(lease/10, lease*3/2)
	case PersonActs:
		s.length = p.between(0, lease)
		if steps := p.config.Acts[s.victim].Steps; p.random.IntN(2) == 0 {
			s.points = p.points(steps, 1)
		}
	case SetClock:
		s.length, s.offset = p.between(lease/10, lease*3/2), p.between(-lease, 10*lease)
	case RestartDatabase, CrashDatabase, EndSessions, FailOver, Reload: // as long as the server needs
	default:
		s.length = p.between(lease/10, lease*3/2) // sometimes longer than the lease
	}
	return s
}

// points draws n points of some steps; none if there are none.
func (p *plan) points(steps []string, n int) (drawn points) {
	actions := []string{"panic", "error", p.between(0, p.config.Lease).String()}
	for range min(n, len(steps)) {
		place := []string{"before ", "after "}[p.random.IntN(2)] + steps[p.random.IntN(len(steps))]
		drawn = slices.DeleteFunc(drawn, func(p point) bool { return p.place == place })
		drawn = append(drawn, point{place, actions[p.random.IntN(len(actions))]})
	}
	return drawn
}

// part is what a fault happens to: at the same time nothing else happens to it.
func (k Kind) part() string {
	switch k {
	case RestartDatabase, CrashDatabase, EndSessions, StopSession, FailOver, SetClock:
		return "database"
	case KillPublisher:
		return "publisher"
	case PersonActs:
		return "person"
	}
	return "forwarder"
}

func (p *plan) between(low, high time.Duration) time.Duration {
	return low + time.Duration(p.random.Int64N(int64(high-low)))
}
