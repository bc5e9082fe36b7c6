package operate

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store"
)

func TestStatusSaysWhatIsAnEstimate(t *testing.T) {
	t.Parallel()
	now := time.Now()
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	var b bytes.Buffer
	printStatus(&b, store.Status{
		LastOffset: 7,
		Cursors: []store.CursorStatus{
			{Sink: "mail", Lane: 1, Pending: 1_237_461, Estimated: true, Owner: "a/1/x", LeaseUntil: now.Add(-time.Second)},
			{Sink: "mail", Lane: 2, Pending: store.PendingLimit - 1},
		},
		Parked: []store.ParkedCount{{Sink: "mail", State: store.StateBlocked, Count: 12}},
		Oldest: &store.Row{Offset: 3, OccurredOn: noon},
		Holders: []store.Holder{
			{Sink: "mail", Row: store.Row{Offset: 5, OccurredOn: noon.Add(time.Hour)}},
			{Sink: "old", Row: store.Row{Offset: 3, OccurredOn: noon}, Reason: "1 of its 2 lanes have a cursor"},
		},
	}, []admin.Trouble{
		{Sink: "mail", What: admin.BreakerOpen, Text: "breaker open since 2026-01-02 12:00:00Z at a/1/x: refused"},
		{Sink: "hooks", What: admin.Throttled, Text: "throttled until 2026-01-02 12:00:00Z at a/1/x", Destination: "https://a.example"},
	}, now)
	require.Equal(t, `last offset: 7
oldest row:  3, of 2026-01-02 12:00:00Z

 SINK  LANE  PENDING      OWNER  LEASE LEFT
 mail     1  ≈ 1,240,000  a/1/x  expired
 mail     2  9,999        -      -

 SINK  PARKED   COUNT
 mail  blocked     12

 SINK  KEEPS FROM  OF                    WHY
 mail           5  2026-01-02 13:00:00Z  not settled
 old            3  2026-01-02 12:00:00Z  1 of its 2 lanes have a cursor

 SINK                        TROUBLE
 mail                        breaker open since 2026-01-02 12:00:00Z at a/1/x: refused
 hooks to https://a.example  throttled until 2026-01-02 12:00:00Z at a/1/x
`, b.String())
}

func TestStatusHasALineForEachForwarderWithTheSumsOverItsSinks(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	printForwarders(&b, []admin.ForwarderStatus{
		{Forwarder: "a/1/x", Running: []store.SinkRunning{
			{Sink: "events", Delivered: 100, Failed: 2, PerSecond: 1.25, InFlight: 3, Threshold: 16, Pending: 7},
			{Sink: "mail", Delivered: 10, Dead: 1, PerSecond: 0.5, BreakerOpen: true, Cause: "refused"},
		}},
		{Forwarder: "b/2/y"},
	})
	require.Equal(t, `
 FORWARDER  DELIVERED  FAILED  DEAD  PER SECOND  IN FLIGHT  PENDING  BREAKERS OPEN
 a/1/x            110       2     1         1.8          3        7              1
 b/2/y              0       0     0         0.0          0        0              0
`, b.String())
}
