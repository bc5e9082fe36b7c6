package main

import (
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/examples/internal/readmetest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answering starts a desk and returns an unopened pager for it.
func answering(t *testing.T, answer func(page) string) (*desk, *Pager) {
	t.Helper()
	d, err := openDesk(answer)
	require.NoError(t, err)
	t.Cleanup(d.close)
	return d, &Pager{Config{Address: d.address(), MaxLength: 500}}
}

func always(answer string) func(t *testing.T) sinks.Sink {
	return func(t *testing.T) sinks.Sink {
		_, p := answering(t, func(page) string { return answer })
		return p
	}
}

func TestConformance(t *testing.T) {
	var current *desk
	sinktest.Run(t, sinktest.Subject{
		New: func(t *testing.T) (s sinks.Sink) {
			current, s = answering(t, func(page) string { return "OK" })
			return s
		},
		Received: func(*testing.T) (es []notification.Envelope) {
			for _, p := range current.taken() {
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
			sinks.ClassTransient: always("LATER"),
			sinks.ClassThrottled: always("WAIT 1m"),
			sinks.ClassPermanent: always("NO such person"),
			sinks.ClassUnavailable: func(t *testing.T) sinks.Sink {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				require.NoError(t, err)
				require.NoError(t, l.Close()) // nobody is there any more
				return &Pager{Config{Address: l.Addr().String(), MaxLength: 500}}
			},
		},
		Stuck: func(t *testing.T) sinks.Sink {
			asked := make(chan struct{})
			_, p := answering(t, func(page) string { <-asked; return "OK" })
			t.Cleanup(func() { close(asked) }) // before the desk closes
			return p
		},
		Receipts: true,
	})
}

func TestMistakesAreNamedAsTheUserTypedThem(t *testing.T) {
	build := func(text string) error {
		_, err := Kind().Build(sinks.Instance{}, func(c any) error { return yaml.Unmarshal([]byte(text), c) })
		return err
	}
	require.NoError(t, build(`address: "localhost:70"`))
	err := build("{address: here, max_length: -1}")
	require.ErrorContains(t, err, `address: "here" is not host:port`)
	require.ErrorContains(t, err, "max_length: -1 is less than 1")
}

func TestAlarmsEndAsTheDeskSays(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out))
	pages := regexp.MustCompile(`page \d`) // alarms go at once, in any order
	want := readmetest.Output(t, "go run ./examples/custom-sink")
	require.Equal(t, pages.ReplaceAllString(want, "page"), pages.ReplaceAllString(out.String(), "page"))
}
