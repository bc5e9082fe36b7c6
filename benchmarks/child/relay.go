package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/prometheus/procfs"

	"github.com/waybill-go/waybill/benchmarks/peer"
	"github.com/waybill-go/waybill/benchmarks/receiver"
)

// Delivery is the task of a forwarder that delivers orders to nowhere.
type Delivery struct {
	Forwarder peer.WaybillForwarder
	DSN       string
	// Orders is the backlog of each sink.
	Orders int
}

// Report is the result of a Relay.
type Report struct {
	Verdict receiver.Verdict
	// Resident and Heap are the maximum memory of the process, in bytes: the resident size, and
	// live and dead Go objects. 0 if it is unknown.
	Resident, Heap uint64
}

// Relay is a process with a forwarder.
type Relay struct {
	*process
	arrived chan struct{}
	ended   chan struct{}
	report  Report
	err     error // of reading the output of the process; set before ended is closed
}

// StartRelay starts a process with a forwarder.
func StartRelay(d Delivery) (*Relay, error) {
	p, err := start(task{Relay: &d})
	if err != nil {
		return nil, err
	}
	r := &Relay{process: p, arrived: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.err = r.listen()
	}()
	return r, nil
}

// listen reads the output of the process: a line once all orders have arrived, and the report at the
// end.
func (r *Relay) listen() error {
	lines := bufio.NewReader(r.output)
	line, err := lines.ReadString('\n')
	if err == nil && line == allArrived+"\n" {
		close(r.arrived)
		line, err = lines.ReadString('\n')
	}
	if err != nil {
		return fmt.Errorf("read the output of the relay's process: %w", err)
	}
	return json.Unmarshal([]byte(line), &r.report)
}

// Arrived is closed when all orders have arrived.
func (r *Relay) Arrived() <-chan struct{} { return r.arrived }

// Ended is closed when the process has stopped or failed.
func (r *Relay) Ended() <-chan struct{} { return r.ended }

// Stop stops the process gracefully and returns its report.
func (r *Relay) Stop() (Report, error) {
	closed := r.input.Close()
	<-r.ended
	return r.report, errors.Join(closed, r.wait(), r.err)
}

const allArrived = "arrived"

// deliver runs the forwarder in the child, and writes the output that Relay reads.
func (d *Delivery) deliver(ctx context.Context, parent io.Writer) error {
	to, err := receiver.New(receiver.Config{
		Kind: receiver.Nowhere, InFlight: d.Forwarder.Threshold, Capacity: d.Orders, Copies: d.Forwarder.Sinks,
	})
	if err != nil {
		return err
	}
	relay := d.Forwarder.Relay("", "")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var work sync.WaitGroup
	work.Go(func() {
		select {
		case <-to.Expect(d.Orders * max(1, d.Forwarder.Sinks)):
			_, _ = fmt.Fprintln(parent, allArrived) // an error means that the parent has ended
		case <-ctx.Done():
		}
	})
	var heap uint64
	work.Go(func() { heap = largestHeap(ctx) })
	err = relay.Deliver(ctx, d.DSN, to.Destination())
	cancel()
	work.Wait()
	if err != nil {
		return err
	}
	report := Report{Heap: heap, Resident: resident()}
	if report.Verdict, err = to.Verdict(ctx); err != nil {
		return err
	}
	return json.NewEncoder(parent).Encode(report)
}

// largestHeap samples the heap until ctx is done, and returns the largest size in bytes.
func largestHeap(ctx context.Context) (most uint64) {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		metrics.Read(sample)
		most = max(most, sample[0].Value.Uint64())
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return most
		}
	}
}

// resident returns the maximum resident size of this process in bytes, or 0 without /proc.
func resident() uint64 {
	self, err := procfs.Self()
	if err != nil {
		return 0
	}
	status, err := self.NewStatus()
	if err != nil {
		return 0
	}
	return status.VmHWM
}
