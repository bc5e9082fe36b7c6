package fleet

import (
	"context"
	"log/slog"
	"math/rand/v2"
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
// neighbours.
type watch struct {
	log *slog.Logger

	mu       sync.Mutex
	sleepers map[*sleeper]bool
	groups   map[any]*group
}

// sleeper is a sleeping database.
type sleeper struct {
	member *member
	store  forwarder.Store
	idle   *forwarder.Idle
	woken  chan struct{} // capacity 1
	acts   time.Time     // of the next look at what people changed
}

// group is a set of neighbours, or a single database.
type group struct {
	busy    bool // being looked at: a group that does not answer does not delay the others
	trouble *pace.Trouble
}

func newWatch(log *slog.Logger) *watch {
	return &watch{log: log, sleepers: make(map[*sleeper]bool), groups: make(map[any]*group)}
}

// sleep returns when there may be something to do, or when ctx is done.
func (w *watch) sleep(ctx context.Context, m *member, s forwarder.Store, idle *forwarder.Idle) {
	its := &sleeper{member: m, store: s, idle: idle, woken: make(chan struct{}, 1), acts: nextActs()}
	w.mu.Lock()
	w.sleepers[its] = true
	w.mu.Unlock()
	timer := time.NewTimer(time.Until(idle.Until))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-its.woken:
	case <-timer.C:
	}
	w.mu.Lock()
	delete(w.sleepers, its)
	w.mu.Unlock()
}

func nextActs() time.Time { return time.Now().Add(actPause + rand.N(actPause)) }

func (s *sleeper) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// wakeAll wakes all sleeping databases.
func (w *watch) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s := range w.sleepers {
		s.wake()
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

// due returns the groups to look at now.
func (w *watch) due() map[*group][]*sleeper {
	w.mu.Lock()
	defer w.mu.Unlock()
	by := make(map[any][]*sleeper)
	for s := range w.sleepers {
		by[keyOf(s.store)] = append(by[keyOf(s.store)], s)
	}
	for key := range w.groups {
		if by[key] == nil && !w.groups[key].busy {
			delete(w.groups, key)
		}
	}
	due := make(map[*group][]*sleeper)
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
		if !g.busy && !time.Now().Before(g.trouble.Until()) {
			g.busy = true
			due[g] = sleepers
		}
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

func (w *watch) probe(ctx context.Context, sleepers []*sleeper) (err error) {
	if len(sleepers) > 1 {
		if err = probeTogether(ctx, sleepers); err == nil {
			return w.acts(ctx, sleepers)
		}
	}
	for _, s := range sleepers { // one by one, to find out which of them fails
		target, failed := s.store.Probe(ctx)
		s.member.looked(failed)
		switch {
		case failed != nil:
			err = failed
		case s.idle.Moved(target):
			s.wake()
		}
	}
	if err != nil {
		return err
	}
	return w.acts(ctx, sleepers)
}

// probeTogether probes neighbours.
func probeTogether(ctx context.Context, sleepers []*sleeper) error {
	logs := make([]store.Neighbour, len(sleepers))
	for i, s := range sleepers {
		logs[i] = s.store.(store.Neighbour)
	}
	targets, err := logs[0].ProbeTogether(ctx, logs)
	if err != nil {
		return err
	}
	for i, s := range sleepers {
		s.member.looked(nil)
		if s.idle.Moved(targets[i]) {
			s.wake()
		}
	}
	return nil
}

// acts looks at what people changed, where that is due.
func (w *watch) acts(ctx context.Context, sleepers []*sleeper) error {
	for _, s := range sleepers {
		if time.Now().Before(s.acts) {
			continue
		}
		changed, err := s.idle.Changed(ctx)
		if err != nil {
			return err
		}
		if s.acts = nextActs(); changed {
			s.wake()
		}
	}
	return nil
}
