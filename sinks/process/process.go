// Package process delivers notifications to a program of your own, in any language, so
// that you can write a sink without Go.
//
// The sink starts the program and keeps it running. For each delivery it writes a line
// of JSON to the program's stdin, and the program answers with a line of JSON on its
// stdout, in any order. Many deliveries are in flight at once, up to the sink's
// parallelism threshold. What the program writes to stderr is logged.
// docs/process-protocol.md describes the protocol. The Answers of [Kind] explain what each
// answer means. If the engine cancels the context, Deliver returns context.Canceled.
//
// The program gets a minimal environment, so that it does not see secrets such as the
// database's password; Config.Env and Config.InheritEnv add to it. The program has its
// own process group. When the program has ended, the sink kills what is left of the group.
package process

import (
	"cmp"
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

// firstPause is the pause before the first restart. Pauses double, up to longestPause, until
// the program has answered a delivery.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 30 * time.Second
)

// Sink keeps one program running and passes deliveries to it. Before Open and after Close,
// every delivery is unavailable. Deliver and CheckHealth are safe for concurrent use.
type Sink struct {
	config  Config
	name    string
	logger  *slog.Logger
	crashes soleCrashes

	credentials redact.Credentials // removed from all texts of the program

	stopping chan struct{} // closed when Close is called
	killNow  chan struct{} // closed when the context of Close has ended
	stopOnce sync.Once
	killOnce sync.Once

	mu    sync.Mutex
	child *child        // nil while no program runs
	down  error         // why no program runs
	done  chan struct{} // closed when keepRunning has returned; nil before Open
}

var (
	_ sinks.Sink          = (*Sink)(nil)
	_ sinks.Collector     = (*Sink)(nil)
	_ sinks.Opener        = (*Sink)(nil)
	_ sinks.Closer        = (*Sink)(nil)
	_ sinks.HealthChecker = (*Sink)(nil)
)

// Kind is the sink kind process.
func Kind() sinks.Kind {
	return sinks.NewKind("process", "a program of your own, in any language, that reads and answers lines of JSON",
		func(in sinks.Instance, c Config) (sinks.Sink, error) { return New(in, c) },
		sinks.Answer{Says: "ok", Means: "delivered; the receipt is the program's"},
		sinks.Answer{Says: "transient, throttled, unavailable, permanent, invalid, unknown", Means: "as the program says"},
		sinks.Answer{Says: "an invalid answer that names its delivery", Means: "transient"},
		sinks.Answer{Says: "no program: it cannot be started, has ended, or broke the protocol", Means: "unavailable; transient for a delivery that was alone in flight when three programs in a row ended"},
		sinks.Answer{Says: "the line is not read within the sink's timeout", Means: "unavailable"},
		sinks.Answer{Says: "no answer within the sink's timeout", Means: "transient"},
		sinks.Answer{Says: "nothing is sent: the line would be longer than `max_line_bytes`", Means: "invalid"},
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
		killNow:  make(chan struct{}),
		down:     errNotOpen,
	}, nil
}

// Open starts the program. It does not wait for the program's hello; deliveries do. Open fails
// if the program does not exist or cannot be executed. A program that ends at once is
// restarted.
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

// RevealsPrivate implements [sinks.Revealer].
func (*Sink) RevealsPrivate() bool { return true }

// Deliver writes one line and waits for its answer until ctx ends. If the program has read the
// delivery and ctx ends first, the sink sends it a cancel line. The Answers of [Kind] explain
// the errors.
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	return s.pass(ctx, parcel{id: d.ID, encode: func(number int64) ([]byte, error) { return encodeDelivery(number, d) }})
}

// CollectionSize returns 0: a line can have any number of members, up to its length.
func (s *Sink) CollectionSize() int { return 0 }

// DeliverCollection writes one line for all members, and waits for its answer as Deliver does. A
// program that does not say in its hello that it takes collections makes the sink unavailable, with
// ErrNoCollections.
func (s *Sink) DeliverCollection(ctx context.Context, c *sinks.Collection) (notification.Receipt, error) {
	return s.pass(ctx, parcel{c.ID, true, func(number int64) ([]byte, error) { return encodeCollection(number, c) }})
}

// pass passes a parcel to the program.
func (s *Sink) pass(ctx context.Context, p parcel) (notification.Receipt, error) {
	switch err := ctx.Err(); {
	case errors.Is(err, context.DeadlineExceeded):
		return "", sinks.Unavailable(fmt.Errorf("no time is left to pass it to the program: %w", err))
	case err != nil:
		return "", err
	}
	c, err := s.running()
	if err != nil {
		return "", sinks.Unavailable(err)
	}
	return c.deliver(ctx, p)
}

// CheckHealth returns an unavailable error if the program does not run. If the program was
// just started, CheckHealth waits for its hello until ctx ends.
func (s *Sink) CheckHealth(ctx context.Context) error {
	c, err := s.running()
	if err != nil {
		return sinks.Unavailable(err)
	}
	if err := c.awaitHello(ctx); err != nil {
		return err
	}
	return c.rejection()
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
	s.stopOnce.Do(func() { close(s.stopping) })
	select {
	case <-done:
	case <-ctx.Done():
		s.killOnce.Do(func() { close(s.killNow) })
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

// keepRunning serves the child and restarts the program whenever it has ended, until Close.
func (s *Sink) keepRunning(c *child) {
	defer close(s.done)
	defer s.set(nil, errClosed)
	longest := cmp.Or(s.config.longestPause, longestPause)
	pauses := &backoff.ExponentialBackOff{
		InitialInterval:     min(firstPause, longest),
		RandomizationFactor: 0.2,
		Multiplier:          2,
		MaxInterval:         longest,
	}
	var err error
	for {
		if c != nil {
			s.set(c, nil)
			err = c.run(s.stopping, s.killNow)
			if c.hasAnswered() {
				pauses.Reset()
			}
		}
		pause := min(pauses.NextBackOff(), longest).Round(time.Millisecond)
		s.set(nil, fmt.Errorf("%w; it is restarted after %s", err, pause))
		if !s.sleep(pause, err) {
			return
		}
		c, err = s.start()
	}
}

// sleep waits for a pause and returns true. It returns false if Close is called.
func (s *Sink) sleep(pause time.Duration, why error) bool {
	select {
	case <-s.stopping:
		return false
	default:
	}
	s.logger.Warn("the program does not run and is restarted", "error", sinks.Brief(why), "after", pause)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-s.stopping:
		return false
	case <-timer.C:
		return true
	}
}
