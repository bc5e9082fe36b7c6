// Package jsonlines writes each notification as a line of JSON
// (https://jsonlines.org), to the program's output or to a file. Use it to see what is delivered, for archives, and for log shippers.
//
// # The line
//
// A [Line] has the envelope's fields. A JSON payload is included as JSON, without
// spaces and line ends between its values; any other payload is in payload_base64.
// A collection is one line, a [CollectionLine].
//
// # Order and repetition
//
// Lines are in the order of the deliveries, and so in the order of each key. After a
// crash or a failed write, a notification can have two lines, with the same id. If a
// write was cut short, the sink ends that line before it writes the next one: a reader
// finds one line that is not JSON, and nothing else is lost.
//
// Only one sink of one program may write a file. Programs that run at the same time
// need different paths, such as orders-${HOSTNAME}.jsonl.
//
// # Rotation
//
// Another program, such as logrotate, may rename or remove the file: the sink then begins a
// new one at the path, and a line that was written meanwhile is written again.
//
// # Durability
//
// Without fsync, lines count as delivered when the operating system has them: they
// survive a crash of the program, but not of the machine. With fsync, the disk has
// them, which costs one fsync for each batch.
package jsonlines

import (
	"context"
	"os"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// maxBatch is how many deliveries are written, and synced, at once.
const maxBatch = 512

// Kind is the sink kind jsonlines.
func Kind() sinks.Kind {
	return sinks.NewKind("jsonlines", "a line of JSON for each notification, to the output or a file",
		func(_ sinks.Instance, c Config) (sinks.Sink, error) { return New(c) },
		sinks.Answer{Says: "the line is written, and with `fsync` it is on the disk", Means: "delivered; the receipt is `jsonlines` and the path"},
		sinks.Answer{Says: "the file cannot be opened, written or synced", Means: "unavailable"},
		sinks.Answer{Says: "the notification cannot be a line", Means: "invalid"},
		sinks.Answer{Says: "not written: an earlier delivery of its key in the batch failed", Means: "transient; uses up no attempt"},
	)
}

// output is the destination of lines. Calls must not overlap, except those of check.
type output interface {
	// check returns an error if lines could not be written. It changes nothing.
	check() error
	// open prepares the output for write. It is called before each batch.
	open() error
	// write writes whole lines. If it fails, the first n bytes are safe, and the next write
	// begins a new line.
	write(lines []byte) (n int, err error)
	close() error
}

// Sink writes deliveries as lines. Its methods are safe for concurrent use, except that
// Close must be the last call.
type Sink struct {
	output  output
	receipt notification.Receipt
	// turn is a lock for output. Unlike with a mutex, a call can stop waiting for it.
	turn   chan struct{}
	closed bool
}

var (
	_ sinks.Batcher       = (*Sink)(nil)
	_ sinks.Collector     = (*Sink)(nil)
	_ sinks.Opener        = (*Sink)(nil)
	_ sinks.HealthChecker = (*Sink)(nil)
	_ sinks.Closer        = (*Sink)(nil)
)

// New makes a sink from c with defaults for zero fields. It opens nothing. Its error
// joins all mistakes of c.
func New(c Config) (*Sink, error) {
	c.SetDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &Sink{turn: make(chan struct{}, 1)}
	if c.Path == Output {
		s.output, s.receipt = &stream{to: os.Stdout}, "jsonlines stdout"
		return s, nil
	}
	s.output = &file{path: c.Path, fsync: c.Fsync}
	s.receipt = notification.Receipt("jsonlines " + c.Path)
	return s, nil
}

// Open checks whether the file can be written or created, as [Sink.CheckHealth] does,
// and returns an error if not. The first delivery creates the file.
func (s *Sink) Open(ctx context.Context) error { return s.CheckHealth(ctx) }

// CheckHealth checks whether the file can be written or created; its folder must exist.
// It does not change the file, so another program may be writing it.
func (s *Sink) CheckHealth(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.output.check()
}

// Deliver writes one line, and returns a receipt such as "jsonlines orders.jsonl". For
// its errors see [Sink.DeliverBatch].
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	r := s.DeliverBatch(ctx, []*notification.Delivery{d})[0]
	return r.Receipt, r.Err
}

// BatchLimits implements [sinks.Batcher].
func (s *Sink) BatchLimits() sinks.BatchLimits {
	return sinks.BatchLimits{Size: maxBatch, Ordered: true}
}

// DeliverBatch writes a line for each delivery, in order. A notification that cannot be
// written as a line is invalid with ErrLine, and later ones of its key fail with
// ErrBehind. If the file cannot be written, the remaining deliveries are unavailable.
//
// It checks ctx before it writes anything, and waits for a write that has begun.
func (s *Sink) DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	if err := s.begin(ctx); err != nil {
		return sinks.Failed(batch, err)
	}
	defer s.unlock()
	w := &writing{sink: s, results: make([]sinks.Result, len(batch)), failed: make(map[string]bool)}
	for i, d := range batch {
		w.add(i, d)
	}
	w.flush()
	return w.results
}

// CollectionSize returns 0: a line can have any number of members.
func (s *Sink) CollectionSize() int { return 0 }

// DeliverCollection writes one line for all members, a [CollectionLine]. Receipt and errors are those
// of a batch of one.
func (s *Sink) DeliverCollection(ctx context.Context, c *sinks.Collection) (notification.Receipt, error) {
	if err := s.begin(ctx); err != nil {
		return "", err
	}
	defer s.unlock()
	line, err := encode(collectionLineOf(c))
	if err != nil {
		return "", sinks.Invalid(err)
	}
	if _, err := s.output.write(line); err != nil {
		return "", sinks.Unavailable(err)
	}
	return s.receipt, nil
}

// Close closes the file, after a write that is running. If ctx ends first, it returns the
// context's error.
func (s *Sink) Close(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}: // even if ctx has already ended
	default:
		if err := s.lock(ctx); err != nil {
			return err
		}
	}
	defer s.unlock()
	s.closed = true
	return s.output.close()
}

// begin locks and opens the output, or returns the error of all deliveries.
func (s *Sink) begin(ctx context.Context) error {
	err := s.lock(ctx)
	if err != nil {
		return err
	}
	if err = ErrClosed; !s.closed {
		err = s.output.open()
	}
	if err != nil {
		s.unlock()
		return sinks.Unavailable(err)
	}
	return nil
}

// lock waits until no other call uses the output, or returns ctx's error.
func (s *Sink) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Sink) unlock() { <-s.turn }

// chunk is how many bytes are gathered for one write.
const chunk = 1 << 20

// writing is a batch that is being written.
type writing struct {
	sink    *Sink
	results []sinks.Result
	failed  map[string]bool // keys with a failed delivery
	broken  error           // why nothing more can be written

	lines []byte // gathered for the next write
	ends  []int  // the ends of the deliveries' lines in lines
	which []int  // the indexes of these deliveries
}

// add adds a delivery's line to the gathered ones, or sets the delivery's error.
func (w *writing) add(i int, d *notification.Delivery) {
	switch {
	case w.broken != nil:
		w.results[i].Err = w.broken
		return
	case d.Key != "" && w.failed[d.Key]:
		w.results[i].Err = ErrBehind
		return
	}
	line, err := encode(LineOf(d.Envelope))
	if err != nil {
		w.results[i].Err = sinks.Invalid(err)
		w.failed[d.Key] = true
		return
	}
	if len(w.lines)+len(line) > chunk {
		if w.flush(); w.broken != nil {
			w.results[i].Err = w.broken
			return
		}
	}
	w.lines = append(w.lines, line...)
	w.ends, w.which = append(w.ends, len(w.lines)), append(w.which, i)
}

// flush writes the gathered lines and sets their results.
func (w *writing) flush() {
	if len(w.lines) == 0 {
		return
	}
	n, err := w.sink.output.write(w.lines)
	if err != nil {
		w.broken = sinks.Unavailable(err)
	}
	for at, i := range w.which {
		if err == nil || w.ends[at] <= n {
			w.results[i].Receipt = w.sink.receipt
		} else {
			w.results[i].Err = w.broken
		}
	}
	w.lines, w.ends, w.which = w.lines[:0], w.ends[:0], w.which[:0]
}
