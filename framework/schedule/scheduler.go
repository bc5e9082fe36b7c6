package schedule

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/tracing"
)

const (
	// poll is the longest time between two looks at the table, and so how long changes by
	// people and other processes may stay unnoticed.
	poll = 5 * time.Second
	// maxPause is the longest pause before a failed tick is tried again.
	maxPause = time.Minute
	// timeout bounds a look at the table, and the transaction of a tick.
	timeout = 10 * time.Second
)

// Config is the configuration of a scheduler. All fields but Logger are required.
type Config struct {
	// Store and DB belong to one outbox, and Publisher publishes to it. A scheduler uses one
	// connection of DB at a time.
	Store     store.Schedules
	DB        *sql.DB
	Publisher *outbox.Publisher
	// Logger gets the log lines; default: slog's.
	Logger *slog.Logger
}

// Scheduler runs schedules. It is safe for concurrent use.
type Scheduler struct {
	config  Config
	running atomic.Bool
	one     sync.Mutex // held while a connection is used

	mu        sync.Mutex // guards the fields below
	schedules []Schedule
	replaced  chan struct{} // closed when the schedules are replaced
}

// New returns a scheduler; it may have no schedules. It reports all mistakes at once, as
// ErrConfig. It starts nothing.
func New(c Config, schedules ...Schedule) (*Scheduler, error) {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	var missing error
	if c.Store == nil || c.DB == nil || c.Publisher == nil {
		missing = errors.Join(ErrConfig, errors.New("a scheduler needs a store, its database and a publisher"))
	}
	checked, err := check(schedules)
	if err := errors.Join(missing, err); err != nil {
		return nil, err
	}
	return &Scheduler{config: c, schedules: checked, replaced: make(chan struct{})}, nil
}

// Reload replaces the schedules, before Run or while it runs. After an error nothing is changed.
func (s *Scheduler) Reload(schedules ...Schedule) error {
	checked, err := check(schedules)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.replaced)
	s.schedules, s.replaced = checked, make(chan struct{})
	return nil
}

// Run makes ticks until ctx is done, then returns nil. It logs errors, such as those of the
// database, and tries again. Any number of processes may run the same schedules.
//
// A schedule that is new to the outbox begins with the first tick after now. So does one whose
// When differs from the stored one, which is logged. If processes disagree about When, the one
// that started last decides; the others leave the schedule to it, unless a tick is more than a
// minute late.
func (s *Scheduler) Run(ctx context.Context) error {
	if s.running.Swap(true) {
		return errors.New("the scheduler is already running")
	}
	defer s.running.Store(false)
	ctx = tracing.Detach(ctx) // ticks do not belong to the trace of Run's caller
	for ctx.Err() == nil {
		s.mu.Lock()
		schedules, replaced := s.schedules, s.replaced
		s.mu.Unlock()
		s.run(ctx, schedules, replaced)
	}
	return nil
}

// job is a running schedule.
type job struct {
	Schedule
	// met is set once the stored row matched this schedule. A row that differs afterwards comes
	// from a process that started later.
	met     bool
	busy    bool // a turn is under way
	trouble *pace.Trouble
}

// outcome is the result of a turn.
type outcome struct {
	*job
	err error
}

// run looks at the table and starts a turn for each schedule that is due, until ctx is done or
// the schedules are replaced.
func (s *Scheduler) run(ctx context.Context, schedules []Schedule, replaced <-chan struct{}) {
	var turns sync.WaitGroup
	defer turns.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	jobs := make(map[string]*job, len(schedules))
	for _, one := range schedules {
		jobs[one.Name] = &job{Schedule: one, trouble: pace.NewTrouble(s.config.Logger.With("schedule", one.Name), "making a tick", maxPause)}
	}
	looking := pace.NewTrouble(s.config.Logger, "looking at the schedules", 0)
	ended := make(chan outcome, len(jobs))
	for {
		wait := poll
		rows, err := s.look(ctx, jobs)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			wait = looking.Met(err)
		default:
			looking.Over()
		}
		for _, row := range rows {
			j := jobs[row.Name]
			if j == nil || j.busy {
				continue
			}
			t := j.turn(row)
			if t.wait = max(t.wait, time.Until(j.trouble.Until())); t.wait > 0 {
				wait = min(wait, t.wait)
				continue
			}
			j.busy = true
			turns.Go(func() { ended <- outcome{j, s.take(ctx, j, t)} })
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-replaced:
			return
		case o := <-ended:
			switch o.busy = false; {
			case ctx.Err() != nil:
			case o.err != nil:
				o.trouble.Met(o.err)
			default:
				o.trouble.Over()
			}
		}
		timer.Stop()
	}
}

// look reads the rows, and adds those that are missing.
func (s *Scheduler) look(ctx context.Context, jobs map[string]*job) ([]store.Schedule, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	s.one.Lock()
	defer s.one.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	rows, err := s.config.Store.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	there := make(map[string]bool, len(rows))
	for _, row := range rows {
		there[row.Name] = true
	}
	missing := false
	for name := range jobs {
		if !there[name] {
			missing = true
			if err := s.config.Store.AddSchedule(ctx, name); err != nil {
				return nil, err
			}
		}
	}
	if !missing {
		return rows, nil
	}
	return s.config.Store.Schedules(ctx)
}
