package simulation

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/fairqueue"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/settings"
)

// process is one forwarder of a fleet, with one sink. It does in simulated time what package
// dispatch does, with the same queue and circuits, in the same order.
type process struct {
	Tenants
	events[step]
	names  []string // of the destinations
	chance *rand.Rand
	end    time.Duration

	queue    *fairqueue.Queue[*delivery]
	log      []*delivery // published, but without room in memory
	head     int         // of log
	pending  int         // in memory
	busy     int
	breaker  *policy.Circuit         // of the sink
	circuits map[int]*policy.Circuit // of destinations with a problem
	probing  map[int]int             // their calls
	lookAt   time.Duration           // when a look is planned; 0: none
	spare    []*delivery

	times                histogram
	offered              int
	tries, parked        int
	waiting              int   // for tenants that live
	course               []int // delivered to them, by second
	busyTime, wastedTime time.Duration
}

// delivery is one notification.
type delivery struct {
	fairqueue.Ticket
	tenant  int
	came    time.Duration
	attempt int
	probe   bool
	number  int // which makes its key
}

// step is an event of a delivery, or of the whole process if it has no delivery.
type step struct {
	what happening
	of   *delivery
}

type happening uint8

const (
	comes    happening = iota // a notification comes, and the next one is planned
	ends                      // a call ends
	falls                     // a parked delivery becomes due
	looksNow                  // the process looks again
)

var (
	errTimeout = errors.New("no answer within the timeout")
	errRefused = errors.New("connection refused")
)

func newProcess(t Tenants, number int, names []string) *process {
	p := &process{
		Tenants: t, names: names, chance: rand.New(rand.NewPCG(t.Seed, uint64(number))), end: t.WarmUp + t.Time,
		queue: fairqueue.New[*delivery](), circuits: make(map[int]*policy.Circuit), probing: make(map[int]int),
		course: make([]int, int((t.WarmUp+t.Time)/time.Second)),
	}
	p.breaker = p.circuit()
	return p
}

func (p *process) circuit() *policy.Circuit {
	return policy.NewCircuitBy(settings.Breaker{}.WithDefaults(), p.chance.Float64)
}

// forget releases what Effect does not need.
func (p *process) forget() {
	p.queue, p.log, p.circuits, p.spare, p.list, p.names = nil, nil, nil, nil, nil, nil
}

func (p *process) run() {
	p.planNext()
	for {
		s, ok := p.pop(p.end)
		if !ok {
			return
		}
		switch s.what {
		case comes:
			p.come()
		case ends:
			p.settle(s.of)
		case falls:
			p.due(s.of)
		case looksNow:
			p.lookAt = 0
		}
		p.fill()
	}
}

// clock returns the time of day.
func (p *process) clock() time.Time { return epoch.Add(p.now) }

func (p *process) counts() bool { return p.now >= p.WarmUp }

// lives reports whether a tenant is alive: the first ones are dead.
func (p *process) lives(tenant int) bool { return tenant >= p.Dead }

func (p *process) planNext() {
	mean := float64(p.Processes) / p.Rate * float64(time.Second)
	p.add(p.now+time.Duration(p.chance.ExpFloat64()*mean), step{what: comes})
}

func (p *process) come() {
	d := p.fresh()
	d.tenant, d.came = p.chance.IntN(p.Tenants.Tenants), p.now
	if p.lives(d.tenant) {
		p.waiting++
		if p.counts() {
			p.offered++
		}
	}
	p.log = append(p.log, d)
	p.read()
	p.planNext()
}

// fresh returns a settled delivery for reuse, since there are many millions.
func (p *process) fresh() *delivery {
	if n := len(p.spare); n > 0 {
		d := p.spare[n-1]
		p.spare = p.spare[:n-1]
		*d = delivery{number: p.next}
		return d
	}
	return &delivery{number: p.next}
}

// read reads from the log what there is room for.
func (p *process) read() {
	for p.head < len(p.log) && p.pending < p.Window {
		p.offer(p.log[p.head])
		p.log[p.head] = nil
		p.head++
	}
	if p.head > len(p.log)/2 {
		n := copy(p.log, p.log[p.head:])
		p.log, p.head = p.log[:n], 0
	}
}

func (p *process) offer(d *delivery) {
	p.pending++
	p.queue.Push(d, p.group(d), false)
}

// group returns the destination as the engine names it; "" if the sink does not name it.
func (p *process) group(d *delivery) string {
	if p.Isolation == IsolateNothing {
		return ""
	}
	return p.names[d.tenant]
}

// due brings back a parked delivery, or postpones it if there is no room.
func (p *process) due(d *delivery) {
	if p.pending >= p.Window {
		p.add(p.now+time.Second, step{falls, d})
		return
	}
	d.Origin = fairqueue.FromParked
	p.offer(d)
}

// fill begins what may begin, as dispatch does.
func (p *process) fill() {
	for p.queue.Len() > 0 {
		limit := p.breaker.Limit(p.Slots, p.clock())
		if limit == 0 {
			p.lookAgain(p.breaker.Next())
		}
		if p.busy >= limit {
			return
		}
		from, ok := p.queue.Next(limit)
		if !ok || p.fillsItsShare(from, limit) {
			return
		}
		d := p.queue.Pop(from)
		if !p.postpones(d) {
			p.begin(d)
		}
	}
}

func (p *process) lookAgain(at time.Time) {
	if wanted := at.Sub(epoch); p.lookAt == 0 || wanted < p.lookAt {
		p.lookAt = wanted
		p.add(wanted, step{what: looksNow})
	}
}

func (p *process) fillsItsShare(from fairqueue.Origin, slots int) bool {
	destination, n := p.queue.Group(from)
	return destination != "" && n > 0 && n >= slots-p.busy
}

// postpones parks a delivery whose destination must wait; false if it may go.
func (p *process) postpones(d *delivery) bool {
	known := p.circuits[d.tenant]
	if known == nil || known.Limit(policy.NoLimit, p.clock()) > p.probing[d.tenant] {
		return false
	}
	p.queue.Done(d)
	p.park(d, known.Postponement(p.clock()))
	return true
}

// park takes a delivery out of memory for some time.
func (p *process) park(d *delivery, pause time.Duration) {
	p.pending--
	if p.counts() {
		p.parked++
	}
	p.add(p.now+pause, step{falls, d})
	p.read()
}

func (p *process) begin(d *delivery) {
	p.breaker.Begin()
	if known := p.circuits[d.tenant]; known != nil && known.IsOpen() {
		known.Begin()
		p.probing[d.tenant]++
		d.probe = true
	}
	p.busy++
	d.attempt++
	took := p.Latency
	switch {
	case p.lives(d.tenant):
	case p.Trouble == Hangs:
		took = p.Timeout
	default:
		took = p.Refusal
	}
	p.use(d, took)
	p.add(p.now+took, step{ends, d})
}

// use counts the time for which a slot is in use.
func (p *process) use(d *delivery, took time.Duration) {
	counted := max(0, min(p.now+took, p.end)-max(p.now, p.WarmUp))
	p.busyTime += counted
	if p.lives(d.tenant) {
		return
	}
	p.wastedTime += counted
	if p.counts() {
		p.tries++
	}
}

func (p *process) settle(d *delivery) {
	p.busy--
	p.queue.Done(d)
	if d.probe {
		d.probe = false
		p.probing[d.tenant]--
	}
	if p.lives(d.tenant) {
		p.delivered(d)
		return
	}
	if p.Isolation == IsolateAll {
		p.destinationFailed(d)
		return
	}
	p.failed(d)
}

func (p *process) delivered(d *delivery) {
	p.breaker.Delivered()
	p.pending--
	p.waiting--
	if second := int(p.now / time.Second); second < len(p.course) {
		p.course[second]++
	}
	if p.counts() {
		p.times.note(p.now - d.came)
	}
	p.spare = append(p.spare, d)
	p.read()
}

// destinationFailed settles a delivery whose failure is about its destination.
func (p *process) destinationFailed(d *delivery) {
	known := p.circuits[d.tenant]
	if known == nil {
		known = p.circuit()
		p.circuits[d.tenant] = known
	}
	if p.Trouble == Refuses {
		known.Unavailable(p.clock(), errRefused)
	} else if spent, _ := known.Failed(p.clock(), p.key(d), errTimeout); spent {
		p.retry(d)
		return
	}
	d.attempt--
	p.park(d, known.Postponement(p.clock()))
}

// failed settles a delivery whose failure is about the sink. With IsolateSlots the sink's
// breaker is off, and unavailable destinations are tried again like any other.
func (p *process) failed(d *delivery) {
	switch {
	case p.Isolation == IsolateSlots:
	case p.Trouble == Refuses:
		p.breaker.Unavailable(p.clock(), errRefused)
		p.putBack(d)
		return
	default:
		if spent, _ := p.breaker.Failed(p.clock(), p.key(d), errTimeout); !spent {
			p.putBack(d)
			return
		}
	}
	p.retry(d)
}

func (p *process) putBack(d *delivery) {
	d.attempt--
	p.queue.Push(d, p.group(d), true)
}

// retry parks a delivery until its next attempt, unless it was its last.
func (p *process) retry(d *delivery) {
	if p.Retry.Exhausted(d.attempt) {
		p.pending--
		p.spare = append(p.spare, d)
		p.read()
		return
	}
	p.park(d, p.Retry.PauseBy(d.attempt, p.chance.Float64))
}

func (p *process) key(d *delivery) string { return strconv.Itoa(d.number) }
