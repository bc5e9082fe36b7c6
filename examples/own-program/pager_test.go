package main

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// newPager starts a desk and returns it with a pager for it.
func newPager(t *testing.T, answer func(page) string) (*desk, *pager) {
	t.Helper()
	d, err := openDesk(answer)
	require.NoError(t, err)
	t.Cleanup(d.close)
	return d, makePager(sinks.Instance{}, pagerConfig{Address: d.address(), MaxLength: 500})
}

// pagerAnswered returns a constructor of pagers whose desk always gives the same answer.
func pagerAnswered(answer string) func(t *testing.T) sinks.Sink {
	return func(t *testing.T) sinks.Sink {
		_, p := newPager(t, func(page) string { return answer })
		return p
	}
}

func TestConformance(t *testing.T) {
	var current *desk
	sinktest.Run(t, sinktest.Subject{
		New: func(t *testing.T) (s sinks.Sink) {
			current, s = newPager(t, func(page) string { return "OK" })
			return s
		},
		Received: func(*testing.T) (es []notification.Envelope) {
			for _, p := range current.accepted() {
				es = append(es, notification.Envelope{ID: p.ID, Payload: []byte(p.Text)})
			}
			return es
		},
		Refused: func(n int) *notification.Delivery {
			d := sinktest.NewDelivery(n)
			d.Payload = []byte(strings.Repeat("x", 501))
			return d
		},
		Broken: map[sinks.Class]func(*testing.T) sinks.Sink{
			sinks.ClassTransient: pagerAnswered("LATER"),
			sinks.ClassThrottled: pagerAnswered("WAIT 1m"),
			sinks.ClassPermanent: pagerAnswered("NO such person"),
			sinks.ClassUnavailable: func(t *testing.T) sinks.Sink {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				require.NoError(t, err)
				require.NoError(t, l.Close()) // the address then refuses connections
				return makePager(sinks.Instance{}, pagerConfig{Address: l.Addr().String(), MaxLength: 500})
			},
		},
		Stuck: func(t *testing.T) sinks.Sink {
			asked := make(chan struct{})
			_, p := newPager(t, func(page) string { <-asked; return "OK" })
			t.Cleanup(func() { close(asked) }) // before the desk closes
			return p
		},
		Receipts: true,
	})
}

func TestThePagerConnectsAsTheProgramAsks(t *testing.T) {
	d, _ := newPager(t, func(page) string { return "OK" })
	asked := ""
	s, err := pagerKind().Build(sinks.Instance{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		asked = address
		return new(net.Dialer).DialContext(ctx, network, d.address())
	}}, func(c any) error { return yaml.Unmarshal([]byte(`address: "desk.invalid:70"`), c) })
	require.NoError(t, err)
	_, err = s.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.NoError(t, err)
	require.Equal(t, "desk.invalid:70", asked)
}

func TestMistakesAreReportedWithTheUsersKeys(t *testing.T) {
	build := func(text string) error {
		_, err := pagerKind().Build(sinks.Instance{}, func(c any) error { return yaml.Unmarshal([]byte(text), c) })
		return err
	}
	require.NoError(t, build(`address: "localhost:70"`))
	err := build("{address: here, max_length: -1}")
	require.ErrorContains(t, err, `address: "here" is not host:port`)
	require.ErrorContains(t, err, "max_length: -1 is less than 1")
}

// busyThenFailing returns the answers of a desk that is busy at the first page for Alice, fails at
// the second, and refuses pages for Bob.
func busyThenFailing() func(page) string {
	var forAlice atomic.Int32
	return func(p page) string {
		switch {
		case strings.Contains(p.Text, "bob"):
			return "NO bob has left"
		case strings.Contains(p.Text, "alice"):
			switch forAlice.Add(1) {
			case 1:
				return "WAIT 200ms"
			case 2:
				return "LATER, we are at lunch"
			}
		}
		return "OK"
	}
}

func TestTheDesksAnswerDecidesTheOutcome(t *testing.T) {
	// The third call for Alice succeeds with two attempts allowed: a throttled call spends no attempt.
	s := newShop(t, busyThenFailing(), "WAYBILL_SINKS_PAGER_RETRY_MAX_ATTEMPTS=2", "WAYBILL_SINKS_PAGER_RETRY_INITIAL=50ms")
	s.run(t, "migrate")
	s.publish(t,
		outbox.With(AlarmRaised{"alice", "the cellar is wet"}, outbox.ID("alarm-1")),
		outbox.With(AlarmRaised{"bob", "the roof is dry"}, outbox.ID("alarm-2")),
		outbox.With(AlarmRaised{"carol", "the door is open"}, outbox.ID("alarm-3")))
	s.forward(t, func() bool {
		return len(s.desk.accepted()) == 2 && strings.Contains(s.run(t, "parked", "list"), "bob has left")
	})
	require.ElementsMatch(t, []string{"alarm-1", "alarm-3"}, []string{s.desk.accepted()[0].ID, s.desk.accepted()[1].ID})
	require.Contains(t, s.run(t, "why", "alarm-2"), "dead")
	require.NotContains(t, s.run(t, "parked", "list"), "alarm-1")
}
