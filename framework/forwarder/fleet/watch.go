package fleet

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/store"
)

const (
	// lookPause is the pause between two looks at the log of a sleeping database.
	lookPause = time.Second
	// lookTime bounds one look.
	lookTime = 10 * time.Second
	// actPause, and at random up to twice that, is the pause between two looks at what people changed.
	actPause = 5 * time.Second
)

// watch looks at the logs of all sleeping databases once a second, with one statement for
// neighbours, or less often if there are too many.
type watch struct {
	log   *slog.Logger
	looks int // in each second that need a connection; 0: no bound

	mu       sync.Mutex
	calls    int // of wakeAll
	sleepers map[*sleeper]bool
	groups   map[any]*group
}

// sleeper is a sleeping database.
type sleeper struct {
	member *member
	Outbox
	idle  *forwarder.Idle
	woken chan error // capacity 1; nil: there may be something to do
	acts  time.Time  // of the next look at what people changed
}

// group is a set of neighbours, or a single database.
type group struct {
	busy    bool // being looked at: a group that does not answer does not delay the others
	looked  time.Time
	trouble *pace.Trouble
}

func newWatch(log *slog.Logger, looks int) *watch {
	return &watch{log: log, looks: looks, sleepers: make(map[*sleeper]bool), groups: make(map[any]*group)}
}

// called returns how often wakeAll was called.
func (w *watch) called() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls
}

// sleep returns nil when there may be something to do, or when ctx is done. It returns an error if
// this database fails and its neighbours do not. calls is the number of calls of wakeAll before the
// database turned out to be idle.
func (w *watch) sleep(ctx context.Context, m *member, o Outbox, idle *forwarder.Idle, calls int) (err error) {
	its := &sleeper{member: m, Outbox: o, idle: idle, woken: make(chan error, 1), acts: nextActs()}
	w.mu.Lock()
	w.sleepers[its] = true
	if w.calls != calls {
		its.wake(nil)
	}
	w.mu.Unlock()
	timer := time.NewTimer(time.Until(idle.Until))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case err = <-its.woken:
	case <-timer.C:
	}
	w.mu.Lock()
	delete(w.sleepers, its)
	w.mu.Unlock()
	return err
}

func nextActs() time.Time { return time.Now().Add(actPause + rand.N(actPause)) }

func (s *sleeper) wake(err error) {
	select {
	case s.woken <- err:
	default:
	}
}

// wakeAll wakes all sleeping databases.
func (w *watch) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	for s := range w.sleepers {
		s.wake(nil)
	}
}

// run looks until ctx is done.
func (w *watch) run(ctx context.Context) {
	ticks := time.NewTicker(lookPause)
	defer ticks.Stop()
	var looks sync.WaitGroup
	defer looks.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		for g, sleepers := range w.due() {
			looks.Go(func() { w.look(ctx, g, sleepers) })
		}
	}
}

// due returns the groups to look at now: those that have waited longest, if there are too many.
func (w *watch) due() map[*group][]*sleeper {
	w.mu.Lock()
	defer w.mu.Unlock()
	by := make(map[any][]*sleeper)
	for s := range w.sleepers {
		by[keyOf(s.Store)] = append(by[keyOf(s.Store)], s)
	}
	for key := range w.groups {
		if by[key] == nil && !w.groups[key].busy {
			delete(w.groups, key)
		}
	}
	due := make(map[*group][]*sleeper)
	var connecting []*group
	for key, sleepers := range by {
		g := w.groups[key]
		if g == nil {
			log := w.log
			if len(sleepers) == 1 {
				log = log.With("database", sleepers[0].member.Name)
			} else {
				log = log.With("databases", len(sleepers))
			}
			g = &group{trouble: pace.NewTrouble(log, "looking at databases that sleep", 0)}
			w.groups[key] = g
		}
		if g.busy || time.Now().Before(g.trouble.Until()) {
			continue
		}
		due[g] = sleepers
		if sleepers[0].Connects {
			connecting = append(connecting, g)
		}
	}
	if more := len(connecting) - w.looks; w.looks > 0 && more > 0 {
		slices.SortFunc(connecting, func(a, b *group) int { return b.looked.Compare(a.looked) })
		for _, g := range connecting[:more] {
			delete(due, g)
		}
	}
	for g := range due {
		g.busy, g.looked = true, time.Now()
	}
	return due
}

// keyOf returns the same key for neighbours.
func keyOf(s forwarder.Store) any {
	if n, ok := s.(store.Neighbour); ok && store.SourceOf(s) == nil {
		return n.Handle()
	}
	return s
}

// look wakes the databases of a group that may have something to do. A database that does not
// answer goes on sleeping. If its server has restarted when it answers, it counts as moved.
func (w *watch) look(ctx context.Context, g *group, sleepers []*sleeper) {
	bounded, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	err := w.probe(bounded, sleepers)
	w.mu.Lock()
	defer w.mu.Unlock()
	g.busy = false
	switch {
	case ctx.Err() != nil:
	case err != nil:
		g.trouble.Met(err)
	default:
		g.trouble.Over()
	}
}

// probe returns an error if none of the databases answers. One that fails while another answers does
// not sleep any longer.
func (w *watch) probe(ctx context.Context, sleepers []*sleeper) (err error) {
	together := len(sleepers) > 1 && probeTogether(ctx, sleepers) == nil
	failed := make(map[*sleeper]error)
	for _, s := range sleepers {
		its := s.look(ctx, !together) // one by one, to find out which of them fails
		s.member.looked(its)
		if its != nil {
			failed[s], err = its, its
		}
		if errors.Is(its, store.ErrReplaced) {
			s.wake(its) // only opening it again helps
		}
	}
	if ctx.Err() != nil || !together && len(failed) == len(sleepers) {
		return err
	}
	for s, err := range failed {
		s.wake(err)
	}
	return nil
}

// probeTogether probes neighbours.
func probeTogether(ctx context.Context, sleepers []*sleeper) error {
	logs := make([]store.Neighbour, len(sleepers))
	for i, s := range sleepers {
		logs[i] = s.Store.(store.Neighbour)
	}
	targets, err := logs[0].ProbeTogether(ctx, logs)
	if err != nil {
		return err
	}
	for i, s := range sleepers {
		if s.idle.Moved(targets[i]) {
			s.wake(nil)
		}
	}
	return nil
}

// look wakes a database whose log has moved, or in which a person changed something. It looks at the
// log if probe is set, and for a person's changes when it is time.
func (s *sleeper) look(ctx context.Context, probe bool) error {
	if probe {
		target, err := s.Store.Probe(ctx)
		if err != nil {
			return err
		}
		if s.idle.Moved(target) {
			s.wake(nil)
		}
	}
	if time.Now().Before(s.acts) {
		return nil
	}
	changed, err := s.idle.Changed(ctx)
	if err != nil {
		return err
	}
	if s.acts = nextActs(); changed {
		s.wake(nil)
	}
	return nil
}
