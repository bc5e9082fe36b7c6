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

// Delivery is a forwarder that carries orders to nowhere.
type Delivery struct {
	Forwarder peer.WaybillForwarder
	DSN       string
	// Orders is how many are pending for each sink.
	Orders int
}

// Report is what a Relay has to say when it has stopped.
type Report struct {
	Verdict receiver.Verdict
	// Resident and Heap are the most memory that the process had, in bytes: as the
	// system counts it, and live and dead objects of Go. 0 where it is not known.
	Resident, Heap uint64
}

// Relay is a process that delivers.
type Relay struct {
	*process
	arrived chan struct{}
	ended   chan struct{}
	report  Report
	err     error // of reading what it says; once it has ended
}

// StartRelay starts one.
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

// listen reads a line once all have arrived, and the report at the end.
func (r *Relay) listen() error {
	lines := bufio.NewReader(r.output)
	line, err := lines.ReadString('\n')
	if err == nil && line == allArrived+"\n" {
		close(r.arrived)
		line, err = lines.ReadString('\n')
	}
	if err != nil {
		return fmt.Errorf("read what the relay's process says: %w", err)
	}
	return json.Unmarshal([]byte(line), &r.report)
}

// Arrived is closed when all orders have come.
func (r *Relay) Arrived() <-chan struct{} { return r.arrived }

// Ended is closed when it has stopped, or failed.
func (r *Relay) Ended() <-chan struct{} { return r.ended }

// Stop stops it in order.
func (r *Relay) Stop() (Report, error) {
	closed := r.input.Close()
	<-r.ended
	return r.report, errors.Join(closed, r.wait(), r.err)
}

const allArrived = "arrived"

// deliver is the child's side.
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
			_, _ = fmt.Fprintln(parent, allArrived) // a parent that is gone needs no answer
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

// largestHeap looks now and then until ctx ends.
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

// resident is 0 where there is no /proc.
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
