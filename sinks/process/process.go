// Package process delivers notifications to a program of your own, in any language, so
// that you can write a sink without Go.
//
// The sink starts the program and keeps it running. For each delivery it writes a line
// of JSON to the program's stdin, and the program answers with a line of JSON on its
// stdout, in any order. Many deliveries are in flight at once, up to the sink's
// parallelism threshold. What the program writes to stderr is logged.
// docs/process-protocol.md has the protocol, and the Answers of [Kind] what each answer
// means. If the engine cancels the context, Deliver returns context.Canceled.
//
// The program gets a minimal environment, so that it does not see secrets such as the
// database's password; Config.Env and Config.InheritEnv add to it. The program has its
// own process group. When the program has ended, the sink kills what is left of the group.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/redact"
)

// firstPause is how long a program that ended waits for its next start; pauses
// double up to max_restart_pause until one has answered something.
const firstPause = 100 * time.Millisecond

// Sink keeps one program running and passes deliveries to it. Before Open and after Close,
// every delivery is unavailable. Deliver and CheckHealth are safe for concurrent use.
type Sink struct {
	config   Config
	name     string
	logger   *slog.Logger
	suspects suspects

	credentials redact.Credentials // which nothing repeats of what the program says

	stopping chan struct{} // closed when Close is called
	hurry    chan struct{} // closed when Close may wait no longer
	closing  sync.Once
	hurrying sync.Once

	mu    sync.Mutex
	child *child        // nil while none runs
	down  error         // why none runs
	done  chan struct{} // closed when nothing runs any more; nil before Open
}

var (
	_ sinks.Sink          = (*Sink)(nil)
	_ sinks.Opener        = (*Sink)(nil)
	_ sinks.Closer        = (*Sink)(nil)
	_ sinks.HealthChecker = (*Sink)(nil)
)

// Kind is the sink kind process.
func Kind() sinks.Kind {
	return sinks.NewKind("process", "a program of your own, in any language, that reads and answers lines of JSON",
		func(in sinks.Instance, c Config) (sinks.Sink, error) { return New(in, c) },
		sinks.Answer{Says: "ok", Means: "delivered; the receipt is the program's"},
		sinks.Answer{Says: "transient, throttled, unavailable, permanent, unknown", Means: "as the program says"},
		sinks.Answer{Says: "what cannot be understood, but for the delivery that it is about", Means: "transient"},
		sinks.Answer{Says: "no program: it cannot be started, has ended, or broke the protocol", Means: "unavailable; transient for a delivery with which, alone in flight, three programs in a row have ended"},
		sinks.Answer{Says: "the line is not read within the sink's timeout", Means: "unavailable"},
		sinks.Answer{Says: "no answer within the sink's timeout", Means: "transient"},
		sinks.Answer{Says: "nothing is asked: the line would be longer than `max_line_bytes`", Means: "permanent"},
	)
}

// New makes a sink from c with defaults for zero fields. It starts nothing. Its error
// joins all mistakes of c.
func New(in sinks.Instance, c Config) (*Sink, error) {
	c.SetDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if in.Logger == nil {
		in.Logger = slog.New(slog.DiscardHandler)
	}
	return &Sink{
		config: c,
		name:   in.Name,
		logger: in.Logger,

		credentials: redact.New(c.credentials()...),

		stopping: make(chan struct{}),
		hurry:    make(chan struct{}),
		down:     errNotOpen,
	}, nil
}

// Open starts the program, and leaves it to deliveries to wait for its hello. It fails if
// the program does not exist or cannot be executed. A program that ends at once is
// restarted, as at any later time.
func (s *Sink) Open(context.Context) error {
	first, err := s.start()
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.child, s.down, s.done = first, nil, make(chan struct{})
	s.mu.Unlock()
	go s.keepRunning(first)
	return nil
}

// Deliver writes one line and waits for its answer, until ctx ends. The Answers of [Kind]
// explain the errors. If the sink stops waiting for a delivery, it informs the program.
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	switch err := ctx.Err(); {
	case errors.Is(err, context.DeadlineExceeded):
		return "", sinks.Unavailable(fmt.Errorf("no time is left to hand it to the program: %w", err))
	case err != nil:
		return "", err
	}
	c, err := s.running()
	if err != nil {
		return "", sinks.Unavailable(err)
	}
	return c.deliver(ctx, d)
}

// CheckHealth waits for the hello of a program that was just started. It returns an error if
// the program does not run.
func (s *Sink) CheckHealth(ctx context.Context) error {
	c, err := s.running()
	if err != nil {
		return sinks.Unavailable(err)
	}
	if err := c.awaitHello(ctx); err != nil {
		return err
	}
	return c.refusal()
}

// Close closes the program's stdin, and waits for it to end: for grace, then after SIGTERM
// for grace again, then it kills the program. When ctx ends it kills the program at once.
// Nothing runs when Close returns. The program may still answer deliveries in flight until
// it ends; those without an answer are unavailable.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	done := s.done
	s.mu.Unlock()
	if done == nil {
		return nil
	}
	s.closing.Do(func() { close(s.stopping) })
	select {
	case <-done:
	case <-ctx.Done():
		s.hurrying.Do(func() { close(s.hurry) })
		<-done // a killed process ends at once
	}
	return nil
}

// running returns the program's process, or why there is none.
func (s *Sink) running() (*child, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child, s.down
}

func (s *Sink) set(c *child, down error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.child, s.down = c, down
}

// keepRunning starts the program again whenever it has ended, until Close.
func (s *Sink) keepRunning(c *child) {
	defer close(s.done)
	defer s.set(nil, errClosed)
	pauses := &backoff.ExponentialBackOff{
		InitialInterval:     min(firstPause, s.config.MaxRestartPause),
		RandomizationFactor: 0.2,
		Multiplier:          2,
		MaxInterval:         s.config.MaxRestartPause,
	}
	var err error
	for {
		if c != nil {
			s.set(c, nil)
			err = c.run(s.stopping, s.hurry)
			if c.wasUseful() {
				pauses.Reset()
			}
		}
		pause := min(pauses.NextBackOff(), s.config.MaxRestartPause).Round(time.Millisecond)
		s.set(nil, fmt.Errorf("%w; it is started again %s later", err, pause))
		if !s.sleep(pause, err) {
			return
		}
		c, err = s.start()
	}
}

// sleep waits for a pause; false where Close came.
func (s *Sink) sleep(pause time.Duration, why error) bool {
	select {
	case <-s.stopping:
		return false
	default:
	}
	s.logger.Warn("the program does not run and is started again", "error", why, "after", pause)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-s.stopping:
		return false
	case <-timer.C:
		return true
	}
}
