package sinktest_test

import (
	"context"
	"errors"
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
	e := *d.Envelope
	e.Payload = slices.Clone(e.Payload)
	m.keep(e)
	return notification.Receipt("memory " + d.ID), nil
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

func TestASinkThatKeepsTheContractPasses(t *testing.T) {
	sinktest.Run(t, subject(nil))
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
	"calls a stuck delivery delivered": {"stuck it can be cancelled", func() sinktest.Subject {
		s := subject(nil)
		s.Stuck = s.New
		return s
	}},
}

type unopenable struct{ sinks.Sink }

func (unopenable) Open(context.Context) error { return errors.New("cannot reach it") }

// A failing subtest fails its parents, so each wrong sink runs in a process of
// its own.
const wrongVariable = "SINKTEST_WRONG"

func TestWrongSinksAreCaught(t *testing.T) {
	if name := os.Getenv(wrongVariable); name != "" {
		sinktest.Run(t, wrong[name].subject())
		return
	}
	for name, w := range wrong {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestWrongSinksAreCaught$", "-test.v")
			cmd.Env = append(os.Environ(), wrongVariable+"="+name)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				t.Fatalf("the suite passes (%v):\n%s", err, out)
			}
			caught := "--- FAIL: TestWrongSinksAreCaught/" + strings.ReplaceAll(w.caughtBy, " ", "_")
			if !strings.Contains(string(out), caught) {
				t.Fatalf("not caught by %q:\n%s", w.caughtBy, out)
			}
		})
	}
}
