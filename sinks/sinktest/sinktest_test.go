package sinktest_test

import (
	"context"
	"errors"
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

// refused is the type of what memory does not take.
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

// subject is the memory sink, its Deliver replaced by deliver if not nil.
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

// batches is memory as a sink of batches.
type batches struct {
	*memory
	ordered bool
	// deliver, if not nil, takes the place of the usual way.
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
			results[i].Err = errors.New("not tried: one before it failed")
			continue
		}
		results[i].Receipt, results[i].Err = b.Deliver(ctx, d)
		failed[d.Key] = results[i].Err != nil
	}
	return results
}

// batchSubject is the memory sink of batches, its DeliverBatch replaced by
// deliver if not nil.
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

func TestASinkThatKeepsTheContractPasses(t *testing.T) {
	t.Run("one by one", func(t *testing.T) { sinktest.Run(t, subject(nil)) })
	t.Run("in batches", func(t *testing.T) { sinktest.Run(t, batchSubject(nil)) })
	t.Run("in batches in any order", func(t *testing.T) {
		s := batchSubject(nil)
		var m *memory
		s.New = func(*testing.T) sinks.Sink {
			m = new(memory)
			return &batches{memory: m}
		}
		s.Received = func(*testing.T) []notification.Envelope { return m.received }
		sinktest.Run(t, s)
	})
	t.Run("as one that can be closed", func(t *testing.T) {
		s := subject(nil)
		var m *memory
		s.New = func(*testing.T) sinks.Sink {
			m = new(memory)
			return &closable{memory: m, afterwards: sinks.Unavailable(errors.New("closed"))}
		}
		s.Received = func(*testing.T) []notification.Envelope { return m.received }
		sinktest.Run(t, s)
	})
	t.Run("with nothing but New", func(t *testing.T) {
		s := subject(nil)
		sinktest.Run(t, sinktest.Subject{New: s.New, Receipts: true})
	})
}

// wrong holds subjects that break one clause each, and the case that must
// catch them.
var wrong = map[string]struct {
	caughtBy string
	subject  func() sinktest.Subject
}{
	"loses a delivery": {"in parallel all arrive", func() sinktest.Subject {
		return subject(func(m *memory, ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
			if d.Key == "key-7" {
				return "lost", nil
			}
			return m.Deliver(ctx, d)
		})
	}},
	"mixes up the order": {"one after another arrive in order", func() sinktest.Subject {
		s := subject(nil)
		received := s.Received
		s.Received = func(t *testing.T) []notification.Envelope {
			es := slices.Clone(received(t))
			slices.Reverse(es)
			return es
		}
		return s
	}},
	"keeps the payload": {"in parallel all arrive", func() sinktest.Subject {
		return subject(func(m *memory, _ context.Context, d *notification.Delivery) (notification.Receipt, error) {
			m.keep(*d.Envelope)
			return "kept", nil
		})
	}},
	"changes the delivery": {"one after another arrive in order", func() sinktest.Subject {
		return subject(func(m *memory, ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
			defer func() { d.Attempt++ }()
			return m.Deliver(ctx, d)
		})
	}},
	"gives no receipt": {"one after another arrive in order", func() sinktest.Subject {
		return subject(func(m *memory, ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
			_, err := m.Deliver(ctx, d)
			return "", err
		})
	}},
	"calls a cancelled delivery dead": {"a cancelled delivery ends soon", func() sinktest.Subject {
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
	"takes one class for another": {"broken is permanent", func() sinktest.Subject {
		s := subject(nil)
		s.Broken[sinks.ClassPermanent] = func(*testing.T) sinks.Sink { return failing(errors.New("no")) }
		return s
	}},
	"has undeclared receipts": {"one after another arrive in order", func() sinktest.Subject {
		s := subject(nil)
		s.Receipts = false
		return s
	}},
	"fails for one that it had": {"a delivery that comes again is taken", func() sinktest.Subject {
		return subject(func(m *memory, ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
			if slices.ContainsFunc(m.snapshot(), func(e notification.Envelope) bool { return e.ID == d.ID }) {
				return "", errors.New("duplicate key")
			}
			return m.Deliver(ctx, d)
		})
	}},
	"keeps the metadata": {"in parallel all arrive", func() sinktest.Subject {
		return subject(func(m *memory, _ context.Context, d *notification.Delivery) (notification.Receipt, error) {
			e := *d.Envelope
			e.Payload = slices.Clone(e.Payload)
			m.keep(e)
			return "kept", nil
		})
	}},
	"cuts off what is long": {"odd ones arrive intact or are refused", func() sinktest.Subject {
		return subject(func(m *memory, _ context.Context, d *notification.Delivery) (notification.Receipt, error) {
			e := *d.Envelope
			e.Payload = slices.Clone(e.Payload[:min(len(e.Payload), 1<<20)])
			m.keep(e)
			return "cut", nil
		})
	}},
	"tries a huge one forever": {"odd ones arrive intact or are refused", func() sinktest.Subject {
		return subject(func(m *memory, ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
			if len(d.Payload) > 1<<20 {
				return "", errors.New("too large")
			}
			return m.Deliver(ctx, d)
		})
	}},
	"calls a late delivery dead": {"a delivery out of time ends soon", func() sinktest.Subject {
		return subject(func(m *memory, ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return "", sinks.Permanent(ctx.Err())
			}
			return m.Deliver(ctx, d)
		})
	}},
	"takes what it should refuse": {"a refused delivery is permanent", func() sinktest.Subject {
		s := subject(nil)
		s.Refused = sinktest.NewDelivery
		return s
	}},
	"calls a deadline the engine's doing": {"stuck it ends with its deadline", func() sinktest.Subject {
		s := subject(nil)
		s.Stuck = func(*testing.T) sinks.Sink {
			return sinkFunc(func(ctx context.Context, _ *notification.Delivery) (notification.Receipt, error) {
				<-ctx.Done()
				return "", context.Canceled
			})
		}
		return s
	}},
	"waits on Close for what is stuck": {"stuck it can be closed", func() sinktest.Subject {
		s := subject(nil)
		stuck := s.Stuck
		s.Stuck = func(t *testing.T) sinks.Sink { return &patient{Sink: stuck(t)} }
		return s
	}},
	"calls a delivery dead that meets a closed sink": {"close with calls in flight", func() sinktest.Subject {
		s := subject(nil)
		var m *memory
		s.New = func(*testing.T) sinks.Sink {
			m = new(memory)
			return &closable{memory: m, afterwards: sinks.Permanent(errors.New("closed"))}
		}
		s.Received = func(*testing.T) []notification.Envelope { return m.received }
		return s
	}},
	"loses a result": {"batches/each delivery has its result", func() sinktest.Subject {
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
	"fails a batch for one of it": {"batches/only the refused one fails", func() sinktest.Subject {
		return batchSubject(func(b *batches, ctx context.Context, batch []*notification.Delivery) []sinks.Result {
			for _, d := range batch {
				if d.Type == refused {
					return sinks.Failed(batch, sinks.Permanent(errors.New("refused")))
				}
			}
			return deliverEach(b, ctx, batch)
		})
	}},
	"goes on behind a failure": {"batches/after a refused one its key waits", func() sinktest.Subject {
		return batchSubject(deliverEach)
	}},
	"calls a stuck delivery delivered": {"stuck it can be cancelled", func() sinktest.Subject {
		s := subject(nil)
		s.Stuck = s.New
		return s
	}},
}

// deliverEach breaks the promise of Ordered: it goes on behind a failure.
func deliverEach(b *batches, ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	results := make([]sinks.Result, len(batch))
	for i, d := range batch {
		results[i].Receipt, results[i].Err = b.Deliver(ctx, d)
	}
	return results
}

// closable is memory that can be closed.
type closable struct {
	*memory
	afterwards error // of deliveries after Close

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

// patient is a sink whose Close waits for all calls, whatever its context says.
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

func (unopenable) Open(context.Context) error { return errors.New("cannot reach it") }

// A failing subtest fails its parents, so each wrong sink, or kind, runs in a process of
// its own.
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

// requireCaught runs a test of this program with the wrong one of that name.
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
