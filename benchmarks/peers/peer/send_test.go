package peer

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/benchmarks/peers/receiver"
	"github.com/waybill-go/waybill/benchmarks/peers/workload"
	"github.com/waybill-go/waybill/framework/notification"
)

func TestHomeMadeRequestsHaveHeadersAsLongAsWaybills(t *testing.T) {
	t.Parallel()
	received := make(chan http.Header, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { received <- r.Header }))
	t.Cleanup(server.Close)
	to := receiver.Destination{Kind: receiver.HTTP, InFlight: 1, URL: server.URL}
	const number = 4711
	payload := workload.New(number).JSON()

	sink, err := WaybillForwarder{}.sink(to)
	require.NoError(t, err)
	_, err = sink.Deliver(t.Context(), &notification.Delivery{Attempt: 1, Envelope: &notification.Envelope{
		ID: workload.ID(number), Type: workload.Type, Version: 1, Key: workload.Key(number), Payload: payload,
		OccurredOn: time.Date(2026, 3, 1, 9, 30, 0, 123_456_000, time.UTC), Metadata: notification.Metadata{"content-type": "application/json"},
	}})
	require.NoError(t, err)
	want := <-received

	out, err := newSender(to)
	require.NoError(t, err)
	require.NoError(t, out.send(t.Context(), item{number, workload.Key(number), payload}))
	got := <-received
	require.NoError(t, out.close())
	require.Equal(t, lengths(want), lengths(got))
}

// lengths returns the lengths of the names and values of headers.
func lengths(h http.Header) (pairs [][2]int) {
	for name, values := range h {
		pairs = append(pairs, [2]int{len(name), len(values[0])})
	}
	slices.SortFunc(pairs, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	return pairs
}
