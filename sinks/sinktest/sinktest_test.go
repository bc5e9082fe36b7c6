package sinktest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// memory is a sink that keeps copies, together with its destination.
type memory struct {
	mu       sync.Mutex
	received []notification.Envelope
}

func (m *memory) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if d.Type == refused {
		return "", sinks.Permanent(errors.New("refused"))
	}
	e := *d.Envelope
	e.Metadata, e.Payload = maps.Clone(e.Metadata), slices.Clone(e.Payload)
	m.keep(e)
	return notification.Receipt("memory " + d.ID), nil
}

// refused is the type of the notifications that memory refuses.
const refused = "sinktest.refused"

func newRefused(n int) *notification.Delivery {
	d := sinktest.NewDelivery(n)
	d.Type = refused
	return d
}

func (m *memory) snapshot() []notification.Envelope {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.received)
}

func (m *memory) keep(e notification.Envelope) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.received = append(m.received, e)
}

// subject returns a subject with the memory sink. deliver replaces Deliver unless it is nil.
func subject(deliver func(*memory, context.Context, *notification.Delivery) (notification.Receipt, error)) sinktest.Subject {
	var m *memory
	return sinktest.Subject{
		New: func(*testing.T) sinks.Sink {
			m = new(memory)
			if deliver == nil {
				return m
			}
			return sinkFunc(func(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
				return deliver(m, ctx, d)
			})
		},
		Received: func(*testing.T) []notification.Envelope { return m.received },
		Refused:  newRefused,
		Broken: map[sinks.Class]func(*testing.T) sinks.Sink{
			sinks.ClassPermanent: func(*testing.T) sinks.Sink { return failing(sinks.Permanent(errors.New("no"))) },
		},
		Stuck: func(*testing.T) sinks.Sink {
			return sinkFunc(func(ctx context.Context, _ *notification.Delivery) (notification.Receipt, error) {
				<-ctx.Done()
				return "", ctx.Err()
			})
		},
		Receipts: true,
	}
}

type sinkFunc func(context.Context, *notification.Delivery) (notification.Receipt, error)

func (f sinkFunc) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	return f(ctx, d)
}

func failing(err error) sinks.Sink {
	return sinkFunc(func(context.Context, *notification.Delivery) (notification.Receipt, error) { return "", err })
}

// batches is a memory sink that makes batches.
type batches struct {
	*memory
	ordered bool
	// deliver replaces DeliverBatch unless it is nil.
	deliver func(b *batches, ctx context.Context, batch []*notification.Delivery) []sinks.Result
}

func (b *batches) BatchLimits() sinks.BatchLimits {
	return sinks.BatchLimits{Size: 10, Ordered: b.ordered}
}

func (b *batches) DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	if b.deliver != nil {
		return b.deliver(b, ctx, batch)
	}
	results := make([]sinks.Result, len(batch))
	failed := make(map[string]bool)
	for i, d := range batch {
		if failed[d.Key] {
			results[i].Err = errors.New("not tried, because an earlier one of the key failed")
			continue
		}
		results[i].Receipt, results[i].Err = b.Deliver(ctx, d)
		failed[d.Key] = results[i].Err != nil
	}
	return results
}

// batchSubject returns a subject with the batches sink. deliver replaces DeliverBatch unless
// it is nil.
func batchSubject(deliver func(*batches, context.Context, []*notification.Delivery) []sinks.Result) sinktest.Subject {
	s := subject(nil)
	var m *memory
	s.New = func(*testing.T) sinks.Sink {
		m = new(memory)
		return &batches{m, true, deliver}
	}
	s.Received = func(*testing.T) []notification.Envelope { return m.received }
	return s
}

// collections is a memory sink that takes collections.
type collections struct {
	*memory
	collected []sinktest.Collected
	// deliver replaces DeliverCollection unless it is nil.
	deliver func(*collections, context.Context, *sinks.Collection) (notification.Receipt, error)
}

func (s *collections) CollectionSize() int { return 0 }

func (s *collections) DeliverCollection(ctx context.Context, c *sinks.Collection) (notification.Receipt, error) {
	if s.deliver != nil {
		return s.deliver(s, ctx, c)
	}
	return s.take(ctx, c, "")
}

// take keeps a collection; about is part of what arrived.
func (s *collections) take(ctx context.Context, c *sinks.Collection, about string) (notification.Receipt, error) {
	arrived := sinktest.Collected{ID: c.ID, Raw: []byte(c.ID + about)}
	one := new(memory)
	for _, d := range c.Members {
		if _, err := one.Deliver(ctx, d); err != nil {
			return "", err
		}
	}
	arrived.Members = one.received
	s.mu.Lock()
	defer s.mu.Unlock()
	s.collected = append(s.collected, arrived)
	return "memory", nil
}

// collectionSubject returns a subject with the collections sink. deliver replaces DeliverCollection
// unless it is nil.
func collectionSubject(deliver func(*collections, context.Context, *sinks.Collection) (notification.Receipt, error)) sinktest.Subject {
	s := subject(nil)
	var current *collections
	s.New = func(*testing.T) sinks.Sink {
		current = &collections{memory: new(memory), deliver: deliver}
		return current
	}
	s.Received = func(*testing.T) []notification.Envelope { return current.received }
	s.Collected = func(*testing.T) []sinktest.Collected { return current.collected }
	return s
}

func TestACorrectSinkPasses(t *testing.T) {
	t.Run("in collections", func(t *testing.T) { sinktest.Run(t, collectionSubject(nil)) })
	t.Run("without batches", func(t *testing.T) { sinktest.Run(t, subject(nil)) })
	t.Run("in ordered batches", func(t *testing.T) { sinktest.Run(t, batchSubject(nil)) })
	t.Run("in unordered batches", func(t *testing.T) {
		s := batchSubject(nil)
		var m *memory
		s.New = func(*testing.T) sinks.Sink {
			m = new(memory)
			return &batches{memory: m}
		}
		s.Received = func(*testing.T) []notification.Envelope { return m.received }
		sinktest.Run(t, s)
	})
	t.Run("with Close", func(t *testing.T) {
		s := subject(nil)
		var m *memory
		s.New = func(*testing.T) sinks.Sink {
			m = new(memory)
			return &closable{memory: m, afterwards: sinks.Unavailable(errors.New("closed"))}
		}
		s.Received = func(*testing.T) []notification.Envelope { return m.received }
		sinktest.Run(t, s)
	})
	t.Run("with New only", func(t *testing.T) {
		s := subject(nil)
		sinktest.Run(t, sinktest.Subject{New: s.New, Receipts: true})
	})
}

// wrong has subjects that break one rule each, and the case that must catch it.
var wrong = map[string]struct {
	caughtBy string
	subject  func() sinktest.Subject
}{
	"loses a delivery": {"parallel deliveries all arrive", func() sinktest.Subject {
		return subject(func(m *memory, ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
			if d.Key == "key-7" {
				return "lost", nil
			}
			return m.Deliver(ctx, d)
		})
	}},
	"mixes up the order": {"sequential deliveries arrive in order", func() sinktest.Subject {
		s := subject(nil)
		received := s.Received
		s.Received = func(t *testing.T) []notification.Envelope {
			es := slices.Clone(received(t))
			slices.Reverse(es)
			return es
		}
		return s
	}},
	"keeps the payload": {"parallel deliveries all arrive", func() sinktest.Subject {
		return subject(func(m *memory, _ context.Context, d *notification.Delivery) (notification.Receipt, error) {
			m.keep(*d.Envelope)
			return "kept", nil
		})
	}},
	"changes the delivery": {"sequential deliveries arrive in order", func() sinktest.Subject {
		return subject(func(m *memory, ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
			defer func() { d.Attempt++ }()
			return m.Deliver(ctx, d)
		})
	}},
	"returns no receipt": {"sequential deliveries arrive in order", func() sinktest.Subject {
		return subject(func(m *memory, ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
			_, err := m.Deliver(ctx, d)
			return "", err
		})
	}},
	"returns a permanent error for a cancelled delivery": {"a cancelled delivery ends soon", func() sinktest.Subject {
		return subject(func(m *memory, ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
			r, err := m.Deliver(ctx, d)
			if err != nil {
				err = sinks.Permanent(err)
			}
			return r, err
		})
	}},
	"leaves a goroutine": {"close leaves nothing running", func() sinktest.Subject {
		return subject(func(m *memory, ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
			go func() { select {} }()
			return m.Deliver(ctx, d)
		})
	}},
	"does not open while its destination is down": {"broken is unavailable", func() sinktest.Subject {
		s := subject(nil)
		s.Broken = map[sinks.Class]func(*testing.T) sinks.Sink{
			sinks.ClassUnavailable: func(*testing.T) sinks.Sink { return unopenable{failing(sinks.Unavailable(errors.New("down")))} },
		}
		return s
	}},
	"returns the wrong class": {"broken is permanent", func() sinktest.Subject {
		s := subject(nil)
		s.Broken[sinks.ClassPermanent] = func(*testing.T) sinks.Sink { return failing(errors.New("no")) }
		return s
	}},
	"returns undeclared receipts": {"sequential deliveries arrive in order", func() sinktest.Subject {
		s := subject(nil)
		s.Receipts = false
		return s
	}},
	"refuses a repeated delivery": {"a repeated delivery succeeds", func() sinktest.Subject {
		return subject(func(m *memory, ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
			if slices.ContainsFunc(m.snapshot(), func(e notification.Envelope) bool { return e.ID == d.ID }) {
				return "", errors.New("duplicate key")
			}
			return m.Deliver(ctx, d)
		})
	}},
	"keeps the metadata": {"parallel deliveries all arrive", func() sinktest.Subject {
		return subject(func(m *memory, _ context.Context, d *notification.Delivery) (notification.Receipt, error) {
			e := *d.Envelope
			e.Payload = slices.Clone(e.Payload)
			m.keep(e)
			return "kept", nil
		})
	}},
	"cuts off long payloads": {"odd deliveries arrive unchanged or are refused", func() sinktest.Subject {
		return subject(func(m *memory, _ context.Context, d *notification.Delivery) (notification.Receipt, error) {
			e := *d.Envelope
			e.Payload = slices.Clone(e.Payload[:min(len(e.Payload), 1<<20)])
			m.keep(e)
			return "cut", nil
		})
	}},
	"retries a huge payload": {"odd deliveries arrive unchanged or are refused", func() sinktest.Subject {
		return subject(func(m *memory, ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
			if len(d.Payload) > 1<<20 {
				return "", errors.New("too large")
			}
			return m.Deliver(ctx, d)
		})
	}},
	"returns a permanent error after the deadline": {"a delivery after its deadline ends soon", func() sinktest.Subject {
		return subject(func(m *memory, ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return "", sinks.Permanent(ctx.Err())
			}
			return m.Deliver(ctx, d)
		})
	}},
	"accepts what it should refuse": {"a refused delivery is permanent", func() sinktest.Subject {
		s := subject(nil)
		s.Refused = sinktest.NewDelivery
		return s
	}},
	"returns a cancelled error at the deadline": {"a stuck delivery ends at its deadline", func() sinktest.Subject {
		s := subject(nil)
		s.Stuck = func(*testing.T) sinks.Sink {
			return sinkFunc(func(ctx context.Context, _ *notification.Delivery) (notification.Receipt, error) {
				<-ctx.Done()
				return "", context.Canceled
			})
		}
		return s
	}},
	"waits in Close for stuck calls": {"a stuck sink can be closed", func() sinktest.Subject {
		s := subject(nil)
		stuck := s.Stuck
		s.Stuck = func(t *testing.T) sinks.Sink { return &patient{Sink: stuck(t)} }
		return s
	}},
	"returns a permanent error after Close": {"close with calls in flight", func() sinktest.Subject {
		s := subject(nil)
		var m *memory
		s.New = func(*testing.T) sinks.Sink {
			m = new(memory)
			return &closable{memory: m, afterwards: sinks.Permanent(errors.New("closed"))}
		}
		s.Received = func(*testing.T) []notification.Envelope { return m.received }
		return s
	}},
	"loses a result": {"batches/each delivery has a result", func() sinktest.Subject {
		return batchSubject(func(b *batches, ctx context.Context, batch []*notification.Delivery) []sinks.Result {
			return deliverEach(b, ctx, batch)[:len(batch)-1]
		})
	}},
	"mixes up a batch": {"batches/a key stays in order", func() sinktest.Subject {
		return batchSubject(func(b *batches, ctx context.Context, batch []*notification.Delivery) []sinks.Result {
			back := slices.Clone(batch)
			slices.Reverse(back)
			return deliverEach(b, ctx, back)
		})
	}},
	"fails a batch for one delivery": {"batches/only the refused delivery fails", func() sinktest.Subject {
		return batchSubject(func(b *batches, ctx context.Context, batch []*notification.Delivery) []sinks.Result {
			for _, d := range batch {
				if d.Type == refused {
					return sinks.Failed(batch, sinks.Permanent(errors.New("refused")))
				}
			}
			return deliverEach(b, ctx, batch)
		})
	}},
	"continues a key after a failure": {"batches/later deliveries of a refused one's key fail", func() sinktest.Subject {
		return batchSubject(deliverEach)
	}},
	"does not pass on the id of a collection": {"collections/all members arrive in order", func() sinktest.Subject {
		return collectionSubject(func(s *collections, ctx context.Context, c *sinks.Collection) (notification.Receipt, error) {
			other := *c
			other.ID = c.Members[0].ID
			return s.take(ctx, &other, "")
		})
	}},
	"loses the last member": {"collections/all members arrive in order", func() sinktest.Subject {
		return collectionSubject(func(s *collections, ctx context.Context, c *sinks.Collection) (notification.Receipt, error) {
			other := *c
			other.Members = c.Members[:len(c.Members)-1]
			return s.take(ctx, &other, "")
		})
	}},
	"repeats a collection differently": {"collections/a repeat is the same", func() sinktest.Subject {
		return collectionSubject(func(s *collections, ctx context.Context, c *sinks.Collection) (notification.Receipt, error) {
			return s.take(ctx, c, fmt.Sprint(c.Attempt))
		})
	}},
	"sorts the members in place": {"collections/all members arrive in order", func() sinktest.Subject {
		return collectionSubject(func(s *collections, ctx context.Context, c *sinks.Collection) (notification.Receipt, error) {
			receipt, err := s.take(ctx, c, "")
			slices.Reverse(c.Members)
			return receipt, err
		})
	}},
	"keeps the members": {"collections/parallel collections all arrive", func() sinktest.Subject {
		return collectionSubject(func(s *collections, _ context.Context, c *sinks.Collection) (notification.Receipt, error) {
			arrived := sinktest.Collected{ID: c.ID}
			for _, d := range c.Members {
				arrived.Members = append(arrived.Members, *d.Envelope)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.collected = append(s.collected, arrived)
			return "kept", nil
		})
	}},
	"skips a refused member": {"collections/a refused member is permanent", func() sinktest.Subject {
		return collectionSubject(func(s *collections, ctx context.Context, c *sinks.Collection) (notification.Receipt, error) {
			other := *c
			other.Members = slices.DeleteFunc(slices.Clone(c.Members), func(d *notification.Delivery) bool { return d.Type == refused })
			return s.take(ctx, &other, "")
		})
	}},
	"ends a cancelled collection with a permanent error": {"collections/a cancelled collection ends soon", func() sinktest.Subject {
		return collectionSubject(func(s *collections, ctx context.Context, c *sinks.Collection) (notification.Receipt, error) {
			receipt, err := s.take(ctx, c, "")
			if err != nil {
				err = sinks.Permanent(err)
			}
			return receipt, err
		})
	}},
	"reports a stuck delivery as delivered": {"a stuck delivery can be cancelled", func() sinktest.Subject {
		s := subject(nil)
		s.Stuck = s.New
		return s
	}},
}

// deliverEach breaks the promise of Ordered: after a failure it delivers later deliveries of the
// key.
func deliverEach(b *batches, ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	results := make([]sinks.Result, len(batch))
	for i, d := range batch {
		results[i].Receipt, results[i].Err = b.Deliver(ctx, d)
	}
	return results
}

// closable is a memory sink with Close.
type closable struct {
	*memory
	afterwards error // error of deliveries after Close

	mu     sync.Mutex
	closed bool
}

func (c *closable) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed && c.afterwards != nil {
		return "", c.afterwards
	}
	return c.memory.Deliver(ctx, d)
}

func (c *closable) Close(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return nil
}

// patient is a sink whose Close waits for all calls, even after its context has ended.
type patient struct {
	sinks.Sink
	calls sync.WaitGroup
}

func (p *patient) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	p.calls.Add(1)
	defer p.calls.Done()
	return p.Sink.Deliver(ctx, d)
}

func (p *patient) Close(context.Context) error {
	p.calls.Wait()
	return nil
}

type unopenable struct{ sinks.Sink }

func (unopenable) Open(context.Context) error { return errors.New("cannot reach the destination") }

// wrongVariable names the wrong sink or kind that a process tests. Each runs in a separate
// process, because a failing subtest fails its parents.
const wrongVariable = "SINKTEST_WRONG"

func TestWrongSinksAreCaught(t *testing.T) {
	if name := os.Getenv(wrongVariable); name != "" {
		sinktest.Run(t, wrong[name].subject())
		return
	}
	for name, w := range wrong {
		t.Run(name, func(t *testing.T) { requireCaught(t, name, "TestWrongSinksAreCaught", w.caughtBy) })
	}
}

// requireCaught runs a test of this program with the named wrong sink or kind, and requires
// that the case caughtBy fails.
func requireCaught(t *testing.T, name, test, caughtBy string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), wrongVariable+"="+name)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("the suite passes (%v):\n%s", err, out)
	}
	caught := "--- FAIL: " + test + "/" + strings.ReplaceAll(caughtBy, " ", "_")
	if !strings.Contains(string(out), caught) {
		t.Fatalf("not caught by %q:\n%s", caughtBy, out)
	}
}
