package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/benchmarks/result"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/program/internal/connected"
	"github.com/waybill-go/waybill/sinks"
)

func TestLossesFailTheBench(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tamper  func(n int64, took func(string), id string)
		lost    int64
		unknown int64
		repeats int64
		ok      bool
	}{
		"a delivery is dropped": {func(n int64, took func(string), id string) {
			if n != 17 {
				took(id)
			}
		}, 1, 0, 0, false},
		"a delivery that was never published": {func(n int64, took func(string), id string) {
			took(id)
			if n == 17 {
				took("order-1")
			}
		}, 0, 1, 0, false},
		"a delivery of another run comes": {func(n int64, took func(string), id string) {
			took(id)
			if n == 17 {
				took(id + "0000")
			}
		}, 0, 1, 0, false},
		"a delivery comes again": {func(n int64, took func(string), id string) {
			took(id)
			if n == 17 {
				took(id)
			}
		}, 0, 0, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := tiny("drain")
			config.Sinks, config.Delay = []string{httpName}, 0
			var came atomic.Int64
			b := &bench{
				config: config.withDefaults(), progress: quiet(), stalled: time.Minute,
				tamper: func(took func(string)) func(string) {
					return func(id string) { c.tamper(came.Add(1), took, id) }
				},
			}
			r, err := b.measure(t.Context())
			require.NotNil(t, r)
			require.Equal(t, c.ok, r.OK)
			check := r.Scenarios[0].Cases[0].Checks[0]
			require.Equal(t, [3]int64{c.lost, c.unknown, c.repeats}, [3]int64{check.Lost, check.Unknown, check.Repeated})
			var table bytes.Buffer
			Print(&table, r)
			if c.ok {
				require.NoError(t, err)
				require.Contains(t, table.String(), "arrived more than once")
				return
			}
			require.ErrorIs(t, err, ErrLost)
			require.Contains(t, table.String(), "FAILED")
			require.Contains(t, table.String(), fmt.Sprintf("%d were lost at http (received), and %d arrived that were never published", c.lost, c.unknown))
		})
	}
}

func TestABenchWithoutMoreDeliveriesFails(t *testing.T) {
	t.Parallel()
	b := &bench{config: Config{}.withDefaults(), progress: quiet(), stalled: 8 * time.Second}
	var err error
	b.database, err = openDatabase(t.Context(), b.config, t.TempDir())
	require.NoError(t, err)
	defer func() { require.NoError(t, b.database.Close()) }()
	named, err := b.append(t.Context(), 50)
	require.NoError(t, err)
	refuses := destination{name: "partner", counted: countedReceipts, settings: threshold(4), open: func(context.Context, opening) (*connected.Receiver, error) {
		return &connected.Receiver{Sink: sinks.Func(func(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
			if d.ID == named.id(17) {
				return "", sinks.Permanent(errors.New("not this one"))
			}
			return "", nil
		})}, nil
	}}
	_, checks, err := b.deliverAll(t.Context(), named, 50, []destination{refuses}, nil)
	require.ErrorIs(t, err, errStalled)
	require.ErrorContains(t, err, "partner accepted 49 of 50 notifications, and then none for 8s; one failed: ")
	require.ErrorContains(t, err, "not this one")
	require.Equal(t, []result.Check{{Sink: "partner", Counted: countedReceipts, Expected: 50, Arrived: 49, Lost: 1}}, checks)
}
