package simulation

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/feed"
)

// Looks are forwarders that look at databases with little traffic. Each database has its own
// forwarders, one in each process, and one sink.
type Looks struct {
	Forwarders int // for each database
	Databases  int // default 1
	Lanes      int // of each database; default 1
	// PollMin and PollMax bound the pause between two looks at the log; default 1 and 50 ms.
	PollMin, PollMax time.Duration
	Lease            time.Duration // default 15 s
	// Rate is how many notifications each database gets per second, at random times. The
	// database does not announce them.
	Rate float64
	// Probe is how long a look at the log takes; default 100 µs.
	Probe time.Duration
	// Time is how long they look; default one minute.
	Time time.Duration
	Seed uint64
}

// Statements is how many statements per second the forwarders make, over all databases.
type Statements struct {
	Probes      float64 // looks at the log
	Memberships float64 // looks at the leases
	Heartbeats  float64
	Renewals    float64 // of leases of lanes
	// Found is how long a notification waits until a forwarder has seen it, on average; 0 without any.
	Found time.Duration
}

// All returns the total per second.
func (s Statements) All() float64 { return s.Probes + s.Memberships + s.Heartbeats + s.Renewals }

// WithDefaults returns the configuration with the defaults of unset fields.
func (l Looks) WithDefaults() Looks {
	l.Databases, l.Lanes = cmp.Or(l.Databases, 1), cmp.Or(l.Lanes, 1)
	l.PollMin, l.PollMax = cmp.Or(l.PollMin, time.Millisecond), cmp.Or(l.PollMax, 50*time.Millisecond)
	l.Lease, l.Probe, l.Time = cmp.Or(l.Lease, 15*time.Second), cmp.Or(l.Probe, 100*time.Microsecond), cmp.Or(l.Time, time.Minute)
	return l
}

// Run simulates the forwarders.
func (l Looks) Run() (Statements, error) {
	l = l.WithDefaults()
	if l.Forwarders < 1 || l.Databases < 1 || l.Lanes < 1 || l.Rate < 0 {
		return Statements{}, fmt.Errorf("%d forwarders, %d databases, %d lanes, a rate of %g: use at least 1, and a rate of 0 or more", l.Forwarders, l.Databases, l.Lanes, l.Rate)
	}
	if min(l.PollMin, l.PollMax-l.PollMin+1, l.Lease, l.Probe, l.Time) <= 0 {
		return Statements{}, errors.New("a time is not above 0, or poll.max is below poll.min")
	}
	var total counted
	for number := range l.Databases {
		total.add(l.one(rand.New(rand.NewPCG(l.Seed, uint64(number)))))
	}
	perSecond := func(n int) float64 { return float64(n) / l.Time.Seconds() }
	s := Statements{Probes: perSecond(total.probes), Memberships: perSecond(total.memberships), Heartbeats: perSecond(total.heartbeats), Renewals: perSecond(total.renewals)}
	if total.found > 0 {
		s.Found = total.waited / time.Duration(total.found)
	}
	return s, nil
}

// counted is what was counted at a database.
type counted struct {
	probes, memberships, heartbeats, renewals int

	found  int // notifications, by each forwarder
	waited time.Duration
}

func (c *counted) add(o counted) {
	c.probes, c.memberships = c.probes+o.probes, c.memberships+o.memberships
	c.heartbeats, c.renewals = c.heartbeats+o.heartbeats, c.renewals+o.renewals
	c.found, c.waited = c.found+o.found, c.waited+o.waited
}

// one simulates a database with its forwarders, which do not depend on each other.
func (l Looks) one(chance *rand.Rand) (c counted) {
	var published []time.Duration
	for at := l.between(chance); at < l.Time; at += l.between(chance) {
		published = append(published, at)
	}
	for range l.Forwarders {
		l.probe(chance, published, &c)
		c.memberships += l.regular(chance, l.Lease/20)
		c.heartbeats += l.regular(chance, l.heartbeat())
	}
	for range l.Lanes {
		c.renewals += l.regular(chance, l.Lease/3)
	}
	return c
}

// between returns the time between two notifications; longer than Time if there are none.
func (l Looks) between(chance *rand.Rand) time.Duration {
	if l.Rate == 0 {
		return l.Time
	}
	return time.Duration(chance.ExpFloat64() / l.Rate * float64(time.Second))
}

// heartbeat returns the time between two heartbeats, which are made with a look at the leases.
func (l Looks) heartbeat() time.Duration {
	look := l.Lease / 20
	return (l.Lease/3 + look - 1) / look * look
}

// regular returns how often something with a fixed interval happens, from a random start.
func (l Looks) regular(chance *rand.Rand, every time.Duration) int {
	first := time.Duration(chance.Float64() * float64(every))
	return int((l.Time-first-1)/every) + 1
}

// probe simulates one forwarder that looks at the log.
func (l Looks) probe(chance *rand.Rand, published []time.Duration, c *counted) {
	pause, seen := l.PollMax, 0
	for now := time.Duration(chance.Float64() * float64(pause)); now < l.Time; {
		c.probes++
		grown := false
		for ; seen < len(published) && published[seen] <= now; seen++ {
			grown = true
			c.found++
			c.waited += now + l.Probe - published[seen]
		}
		pause = feed.NextPause(pause, grown, l.PollMin, l.PollMax)
		now += l.Probe + max(pause, feed.RestAfter(l.Probe))
	}
}
