package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// lingerTime is how long two things that belong together may lie apart: the end
// of a process, and that of its pipes, which a process that left its group may
// hold open.
const lingerTime = time.Second

// child is one process of the program, from its start to its end. Four
// goroutines serve it: run, and those of stdin, stdout and stderr.
//
// A delivery is pending from its registration until it is taken out by its
// answer, the end of the child, or its own context. What takes it out settles it,
// so it is settled once.
type child struct {
	sink   *Sink
	cmd    *exec.Cmd
	logger *slog.Logger

	stdin, stdout, stderr *os.File // our ends

	exited   chan struct{} // closed when the process is reaped
	ready    chan struct{} // closed at its hello
	refused  chan struct{} // closed once cause is set
	mute     chan struct{} // closed when nothing is written any more
	trouble  chan error    // the first reason to end it
	outgoing chan *pending // to stdin
	wake     chan struct{} // there are cancellations

	exitStatus error // once exited is closed

	mu        sync.Mutex
	cause     error // why nothing is taken any more
	last      int64 // number of the youngest delivery
	pending   map[int64]*pending
	cancelled []int64   // of which the program has yet to be told
	moved     time.Time // when it last said hello, read or answered something
	useful    bool      // it has answered something
	lastWords string    // the last line of stderr
}

// pending is a delivery in flight.
type pending struct {
	number  int64
	id      string
	line    []byte
	written bool            // guarded by child.mu
	settled chan settlement // takes one without waiting
}

type settlement struct {
	receipt notification.Receipt
	err     error
}

// deliver hands a delivery over and waits for what becomes of it.
func (c *child) deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	began := time.Now()
	if err := c.awaitHello(ctx); err != nil {
		return "", err
	}
	p, err := c.register(d)
	if err != nil {
		return "", err
	}
	select {
	case c.outgoing <- p:
	case s := <-p.settled:
		return s.receipt, s.err
	case <-ctx.Done():
		if !c.takeOut(p) {
			s := <-p.settled
			return s.receipt, s.err
		}
		return "", c.gaveUp(ctx, p, began)
	}
	select {
	case s := <-p.settled:
		return s.receipt, s.err
	case <-ctx.Done():
		if !c.takeOut(p) {
			s := <-p.settled // at the same moment
			return s.receipt, s.err
		}
		c.cancel(p)
		return "", c.gaveUp(ctx, p, began)
	}
}

// awaitHello returns once the program has said hello.
func (c *child) awaitHello(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	default:
	}
	select {
	case <-c.ready:
		return nil
	case <-c.refused:
		return c.refusal()
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return ctx.Err()
		}
		return sinks.Unavailable(fmt.Errorf("the program has not said hello yet: %w", ctx.Err()))
	}
}

// refusal is why no delivery is taken any more; nil while they are.
func (c *child) refusal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		return nil
	}
	return sinks.Unavailable(c.cause)
}

// register gives a delivery its number and its line.
func (c *child) register(d *notification.Delivery) (*pending, error) {
	c.mu.Lock()
	c.last++
	number := c.last
	c.mu.Unlock()
	line, err := encodeDelivery(number, d)
	if err != nil {
		return nil, sinks.Permanent(err)
	}
	if limit := c.sink.config.MaxLineBytes; len(line)-len("\n") > limit {
		return nil, sinks.Permanent(fmt.Errorf("%w: its line has %d bytes, max_line_bytes is %d", ErrTooLong, len(line)-len("\n"), limit))
	}
	p := &pending{number: number, id: d.ID, line: line, settled: make(chan settlement, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return nil, sinks.Unavailable(c.cause)
	}
	c.pending[number] = p
	return p, nil
}

// takeOut ends the wait for a delivery; false if it is settled elsewhere.
func (c *child) takeOut(p *pending) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, in := c.pending[p.number]
	delete(c.pending, p.number)
	return in
}

// cancel informs the program that the sink no longer waits for a delivery.
func (c *child) cancel(p *pending) {
	c.mu.Lock()
	c.cancelled = append(c.cancelled, p.number)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default: // it is awake
	}
}

// gaveUp is the error of a delivery whose context ended. One that the program
// never read costs no attempt; and if the program did nothing else either since
// the delivery began, it is stuck.
func (c *child) gaveUp(ctx context.Context, p *pending, began time.Time) error {
	err := ctx.Err()
	if errors.Is(err, context.Canceled) {
		return err
	}
	c.mu.Lock()
	written, stuck := p.written, c.moved.Before(began)
	c.mu.Unlock()
	if written {
		return sinks.Transient(fmt.Errorf("the program did not answer in time: %w", err))
	}
	if stuck {
		c.report(fmt.Errorf("%w since %s", ErrStalled, time.Since(began).Round(time.Millisecond)))
	}
	return sinks.Unavailable(fmt.Errorf("the program did not read the delivery in time: %w", err))
}

// answer settles the delivery that an answer is about. An answer to a
// delivery that is no longer pending is ignored.
func (c *child) answer(r *reply) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *r.Delivery < 1 || *r.Delivery > c.last {
		return fmt.Errorf("%w: it answers delivery %d, which it was never given", ErrProtocol, *r.Delivery)
	}
	c.moved, c.useful = time.Now(), true
	p, in := c.pending[*r.Delivery]
	if !in {
		c.logger.Debug("a late answer of the program is ignored", "delivery", *r.Delivery)
		return nil
	}
	delete(c.pending, p.number)
	receipt, err := r.result(time.Now())
	p.settled <- settlement{receipt, err}
	return nil
}

// report notes a reason to end the program. The first one counts.
func (c *child) report(err error) {
	select {
	case c.trouble <- err:
	default:
	}
}

// refuse has no further deliveries taken.
func (c *child) refuse(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause = cause
		close(c.refused)
	}
}

// fail settles all that is in flight: unavailable, except for a delivery that is
// blamed for the end.
func (c *child) fail(cause error) {
	c.refuse(cause)
	c.mu.Lock()
	defer c.mu.Unlock()
	alone := len(c.pending) == 1 && !errors.Is(cause, errClosed)
	for number, p := range c.pending {
		delete(c.pending, number)
		err := sinks.Unavailable(cause)
		if alone && p.written && c.sink.suspects.blame(p.id) {
			err = sinks.Transient(fmt.Errorf("%d times in a row with only this delivery in flight: %w", lonelyDeaths, cause))
		}
		p.settled <- settlement{err: err}
	}
}

func (c *child) wasUseful() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.useful
}

// run is the life of the child, until nothing is left of it. It returns why it
// ended.
func (c *child) run(stopping, hurry <-chan struct{}) error {
	var pipes sync.WaitGroup
	pipes.Go(c.readStdout)
	pipes.Go(c.readStderr)
	pipes.Go(c.writeStdin)
	go func() {
		c.exitStatus = wait(c.cmd)
		close(c.exited)
	}()

	cause := c.live(stopping)
	if cause != nil {
		c.end(cause, hurry)
	}
	// Without the group no process holds the pipes, and what is still in them is read
	// before deliveries fail: the last answers, the last words.
	killGroup(c.cmd.Process)
	c.closePipes(&pipes)
	if cause == nil {
		cause = c.death()
	}
	c.fail(cause)
	return cause
}

// live waits for a reason to end the process; nil where it has ended by itself.
func (c *child) live(stopping <-chan struct{}) error {
	late := time.NewTimer(c.sink.config.StartTimeout)
	defer late.Stop()
	ready := c.ready
	for {
		select {
		case <-c.exited:
			return nil
		case <-stopping:
			return errClosed
		case err := <-c.trouble:
			if errors.Is(err, errHungUp) && c.awaitExit(lingerTime, nil) {
				return nil
			}
			return fmt.Errorf("%w%s", err, c.quote())
		case <-ready:
			late.Stop()
			ready = nil
		case <-late.C:
			return fmt.Errorf("%w: no hello within %s%s", ErrProtocol, c.sink.config.StartTimeout, c.quote())
		}
	}
}

// end ends the process. A program that is only asked to stop may still answer
// what is in flight; one that is in trouble has no deliveries any more, and they
// do not wait for its end.
func (c *child) end(cause error, hurry <-chan struct{}) {
	grace := c.sink.config.Grace
	if errors.Is(cause, errClosed) {
		c.refuse(cause)
		_ = c.stdin.Close()
		if c.awaitExit(grace, hurry) {
			return
		}
	} else {
		c.logger.Warn("the program is ended", "error", cause)
		c.fail(cause)
		_ = c.stdin.Close()
	}
	terminateGroup(c.cmd.Process)
	if c.awaitExit(grace, hurry) {
		return
	}
	c.logger.Warn("the program did not end and is killed", "grace", grace)
	killGroup(c.cmd.Process)
	<-c.exited
}

// awaitExit says whether the process ended in time, and before hurry.
func (c *child) awaitExit(within time.Duration, hurry <-chan struct{}) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c.exited:
		return true
	case <-hurry:
	case <-timer.C:
	}
	return false
}

// closePipes waits for what is still to be read, as long as a dead group needs,
// and closes our ends.
func (c *child) closePipes(pipes *sync.WaitGroup) {
	_ = c.stdin.Close()
	close(c.mute)
	done := make(chan struct{})
	go func() {
		pipes.Wait()
		close(done)
	}()
	timer := time.NewTimer(lingerTime)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		c.logger.Warn("a process that the program left behind in another group holds its stdout or stderr open; they are no longer read")
	}
	_ = c.stdout.Close()
	_ = c.stderr.Close()
	<-done
}

// death describes how the process ended.
func (c *child) death() error {
	status := "with exit status 0"
	exit := new(exec.ExitError)
	switch {
	case errors.As(c.exitStatus, &exit):
		status = "with " + exit.Error()
	case c.exitStatus != nil:
		status = "(" + c.exitStatus.Error() + ")"
	}
	return fmt.Errorf("%w %s%s", ErrEnded, status, c.quote())
}

// quote is the last line of stderr, for an error.
func (c *child) quote() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lastWords == "" {
		return ""
	}
	return ": " + clean(c.lastWords, 256)
}
