package process

import (
	"cmp"
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

// drainTime is the longest time between the end of a process and the end of its pipes. A
// process that left the group may hold the pipes open for longer.
const drainTime = time.Second

// child is one process of the program, from its start to its end. Four goroutines serve it:
// run, and one each for stdin, stdout and stderr.
//
// A delivery is in pending from register until its answer, the end of the child or its own
// context removes it. What removes it also determines its result, so there is exactly one.
type child struct {
	sink   *Sink
	cmd    *exec.Cmd
	logger *slog.Logger

	stdin, stdout, stderr *os.File // this process's ends

	exited    chan struct{} // closed when the process is reaped
	ready     chan struct{} // closed when the program has said hello
	rejecting chan struct{} // closed when cause is set
	stopWrite chan struct{} // closed to stop the goroutine that writes stdin
	fault     chan error    // the first reason to stop the program
	outgoing  chan *pending // to stdin
	wake      chan struct{} // signals that cancelled is not empty

	exitStatus error // set before exited is closed
	collects   bool  // the program takes collections; set before ready is closed

	mu         sync.Mutex
	cause      error // why the child accepts no more deliveries
	last       int64 // the highest number of a delivery
	pending    map[int64]*pending
	cancelled  []int64   // deliveries whose cancel lines are still to be written
	lastActive time.Time // when the program last said hello, read or answered something
	answered   bool      // the program has answered at least one delivery
	lastStderr string    // the last line of stderr
}

// pending is a delivery in flight.
type pending struct {
	number  int64
	id      string
	line    []byte
	written bool        // guarded by child.mu
	result  chan result // has room for the one result
}

type result struct {
	receipt notification.Receipt
	err     error
}

// parcel is what the program gets in one line: a delivery or a collection.
type parcel struct {
	id         string
	collection bool
	encode     func(number int64) ([]byte, error)
}

// deliver passes a parcel to the program and waits for its result, until ctx ends.
func (c *child) deliver(ctx context.Context, one parcel) (notification.Receipt, error) {
	began := time.Now()
	if err := c.awaitHello(ctx); err != nil {
		return "", err
	}
	if one.collection && !c.collects {
		return "", sinks.Unavailable(ErrNoCollections)
	}
	p, err := c.register(one)
	if err != nil {
		return "", err
	}
	select {
	case c.outgoing <- p:
	case s := <-p.result:
		return s.receipt, s.err
	case <-ctx.Done():
		if !c.remove(p) {
			s := <-p.result
			return s.receipt, s.err
		}
		return "", c.contextError(ctx, p, began)
	}
	select {
	case s := <-p.result:
		return s.receipt, s.err
	case <-ctx.Done():
		if !c.remove(p) {
			s := <-p.result // it came at the same moment
			return s.receipt, s.err
		}
		c.cancel(p)
		return "", c.contextError(ctx, p, began)
	}
}

// awaitHello waits until the program has said hello. If it does not in time, the error is
// unavailable.
func (c *child) awaitHello(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	default:
	}
	select {
	case <-c.ready:
		return nil
	case <-c.rejecting:
		return c.rejection()
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return ctx.Err()
		}
		return sinks.Unavailable(fmt.Errorf("the program has not said hello yet: %w", ctx.Err()))
	}
}

// rejection returns why the child accepts no more deliveries; nil while it does.
func (c *child) rejection() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		return nil
	}
	return sinks.Unavailable(c.cause)
}

// register numbers and encodes a parcel, and adds it to pending.
func (c *child) register(one parcel) (*pending, error) {
	c.mu.Lock()
	c.last++
	number := c.last
	c.mu.Unlock()
	line, err := one.encode(number)
	if err != nil {
		return nil, sinks.Invalid(err)
	}
	if limit := c.sink.config.MaxLineBytes; len(line)-len("\n") > limit {
		return nil, sinks.Invalid(fmt.Errorf("%w: its line has %d bytes, max_line_bytes is %d", ErrTooLong, len(line)-len("\n"), limit))
	}
	p := &pending{number: number, id: one.id, line: line, result: make(chan result, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return nil, sinks.Unavailable(c.cause)
	}
	c.pending[number] = p
	return p, nil
}

// remove removes a delivery from pending, and reports whether it was there. If not, its result
// has been sent.
func (c *child) remove(p *pending) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, in := c.pending[p.number]
	delete(c.pending, p.number)
	return in
}

// cancel makes the writer of stdin inform the program that the sink no longer waits for a
// delivery.
func (c *child) cancel(p *pending) {
	c.mu.Lock()
	c.cancelled = append(c.cancelled, p.number)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default: // the signal is already there
	}
}

// contextError returns the error of a delivery whose context has ended. If the program has not
// read the delivery, the error is unavailable and uses up no attempt. If the program has done
// nothing at all since the delivery began, it has stalled and is restarted.
func (c *child) contextError(ctx context.Context, p *pending, began time.Time) error {
	err := ctx.Err()
	if errors.Is(err, context.Canceled) {
		return err
	}
	c.mu.Lock()
	written, stuck := p.written, c.lastActive.Before(began)
	c.mu.Unlock()
	if written {
		return sinks.Transient(fmt.Errorf("the program did not answer in time: %w", err))
	}
	if stuck {
		c.report(fmt.Errorf("%w since %s", ErrStalled, time.Since(began).Round(time.Millisecond)))
	}
	return sinks.Unavailable(fmt.Errorf("the program did not read the delivery in time: %w", err))
}

// answer sends the result of the delivery that r answers. It ignores an answer to a delivery
// that is no longer pending.
func (c *child) answer(r *reply) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *r.Delivery < 1 || *r.Delivery > c.last {
		return fmt.Errorf("%w: it answers delivery %d, which it never received", ErrProtocol, *r.Delivery)
	}
	c.lastActive, c.answered = time.Now(), true
	p, in := c.pending[*r.Delivery]
	if !in {
		c.logger.Debug("a late answer of the program is ignored", "delivery", *r.Delivery)
		return nil
	}
	delete(c.pending, p.number)
	receipt, err := r.result(time.Now())
	p.result <- result{receipt, err}
	return nil
}

// report reports a fault of the program, so that it is stopped. Only the first one counts.
func (c *child) report(err error) {
	select {
	case c.fault <- err:
	default:
	}
}

// reject makes the child refuse further deliveries with cause. The first cause counts.
func (c *child) reject(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause = cause
		close(c.rejecting)
	}
}

// fail ends all pending deliveries with an unavailable error. If soleCrashes blames a delivery
// for the end of the program, its error is transient.
func (c *child) fail(cause error) {
	c.reject(cause)
	c.mu.Lock()
	defer c.mu.Unlock()
	sole := len(c.pending) == 1 && !errors.Is(cause, errClosed)
	for number, p := range c.pending {
		delete(c.pending, number)
		err := sinks.Unavailable(cause)
		if sole && p.written && c.sink.crashes.blame(p.id) {
			err = sinks.Transient(fmt.Errorf("%d times in a row with only this delivery in flight: %w", crashesToBlame, cause))
		}
		p.result <- result{err: err}
	}
}

func (c *child) hasAnswered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answered
}

// run serves the child until its process group and its pipes are gone. It returns why the
// child ended. stopping asks the program to stop, and killNow ends the time that it is given.
func (c *child) run(stopping, killNow <-chan struct{}) error {
	var pipes sync.WaitGroup
	pipes.Go(c.readStdout)
	pipes.Go(c.readStderr)
	pipes.Go(c.writeStdin)
	go func() {
		c.exitStatus = wait(c.cmd)
		close(c.exited)
	}()

	cause := c.awaitEnd(stopping)
	if cause != nil {
		c.stop(cause, killNow)
	}
	// When the group is gone, no process holds the pipes. The last answers and the last line
	// of stderr are read before the remaining deliveries fail.
	killGroup(c.cmd.Process)
	c.closePipes(&pipes)
	if cause == nil {
		cause = c.exitError()
	}
	c.fail(cause)
	return cause
}

// awaitEnd waits for a reason to stop the process and returns it, or nil if the process has
// ended by itself.
func (c *child) awaitEnd(stopping <-chan struct{}) error {
	late := time.NewTimer(c.sink.config.StartTimeout)
	defer late.Stop()
	ready := c.ready
	for {
		select {
		case <-c.exited:
			return nil
		case <-stopping:
			return errClosed
		case err := <-c.fault:
			if errors.Is(err, errHungUp) && c.awaitExit(c.drainTime(), nil) {
				return nil
			}
			return c.withStderr(err)
		case <-ready:
			late.Stop()
			ready = nil
		case <-late.C:
			return c.withStderr(fmt.Errorf("%w: no hello within %s", ErrProtocol, c.sink.config.StartTimeout))
		}
	}
}

// stop ends the process. If the sink is closed, the program may still answer the deliveries
// in flight. After a fault, the deliveries fail at once and do not wait for its end.
func (c *child) stop(cause error, killNow <-chan struct{}) {
	grace := c.sink.config.Grace
	if errors.Is(cause, errClosed) {
		c.reject(cause)
		_ = c.stdin.Close()
		if c.awaitExit(grace, killNow) {
			return
		}
	} else {
		c.logger.Warn("the program is stopped", "error", sinks.Brief(cause))
		c.fail(cause)
		_ = c.stdin.Close()
	}
	terminateGroup(c.cmd.Process)
	if c.awaitExit(grace, killNow) {
		return
	}
	c.logger.Warn("the program did not end and is killed", "grace", grace)
	killGroup(c.cmd.Process)
	<-c.exited
}

// awaitExit waits for the end of the process, and reports whether it came in time and before
// killNow.
func (c *child) awaitExit(within time.Duration, killNow <-chan struct{}) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c.exited:
		return true
	case <-killNow:
	case <-timer.C:
	}
	return false
}

func (c *child) drainTime() time.Duration { return cmp.Or(c.sink.config.drainTime, drainTime) }

// closePipes waits, for at most drainTime, until stdout and stderr are read to their ends, and
// closes the pipes.
func (c *child) closePipes(pipes *sync.WaitGroup) {
	_ = c.stdin.Close()
	close(c.stopWrite)
	done := make(chan struct{})
	go func() {
		pipes.Wait()
		close(done)
	}()
	timer := time.NewTimer(c.drainTime())
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

// exitError describes how the process ended.
func (c *child) exitError() error {
	status := "with exit status 0"
	exit := new(exec.ExitError)
	switch {
	case errors.As(c.exitStatus, &exit):
		status = "with " + exit.Error()
	case c.exitStatus != nil:
		status = "(" + c.exitStatus.Error() + ")"
	}
	return c.withStderr(fmt.Errorf("%w %s", ErrEnded, status))
}

// withStderr adds the last line of stderr to an error. It may repeat a notification, so it is the answer.
func (c *child) withStderr(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return sinks.WithAnswer(err, clean(c.lastStderr, 256))
}
