package httpsink

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// bad is the id or the type of an event that a picky receiver refuses.
const bad = "i.am.bad"

func (r received) refused() bool {
	return strings.Contains(r.Body+r.Header.Get("Ce-Type"), bad)
}

// newPicky returns a receiver that refuses requests with a bad event with the status.
func newPicky(t *testing.T, status int) *receiver {
	return newReceiver(t, func(w http.ResponseWriter, req *http.Request) {
		if body, _ := io.ReadAll(req.Body); (received{req, string(body)}).refused() {
			w.WriteHeader(status)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	})
}

// taken lists the ids that a picky receiver has accepted, in order.
func (r *receiver) taken(t *testing.T) (ids []string) {
	for _, request := range r.all() {
		if request.refused() {
			continue
		}
		for _, e := range readEvents(t, request) {
			ids = append(ids, e.ID())
		}
	}
	return ids
}

func (r *receiver) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = nil
}

func batching(c Config) Config {
	c.Format, c.Source = FormatBatch, source
	return c
}

// newBatch makes n events with the ids "0", "1" and so on. The events at the indexes badAt are bad.
func newBatch(n int, badAt ...int) []*notification.Delivery {
	batch := make([]*notification.Delivery, n)
	for i := range batch {
		batch[i] = sinktest.NewDelivery(i)
		batch[i].ID = fmt.Sprint(i)
		if slices.Contains(badAt, i) {
			batch[i].ID += bad
		}
	}
	return batch
}

// goodIDs lists the ids of the events that are not bad.
func goodIDs(batch []*notification.Delivery) (ids []string) {
	for _, d := range batch {
		if !strings.HasSuffix(d.ID, bad) {
			ids = append(ids, d.ID)
		}
	}
	return ids
}

func TestOnlyTheBadEventsOfABatchAreRefused(t *testing.T) {
	for _, status := range []int{400, 413, 415, 422} {
		for _, badAt := range [][]int{{0}, {99}, {37}, {0, 1}, {49, 50}, {0, 50, 99}, {3, 5, 7, 9, 11, 13, 15}} {
			r := newPicky(t, status)
			batch := newBatch(100, badAt...)

			results := r.sink(t, batching(Config{})).DeliverBatch(t.Context(), batch)

			require.Len(t, results, len(batch))
			for i, result := range results {
				if !slices.Contains(badAt, i) {
					assert.Equal(t, sinks.Result{Receipt: "http 202"}, result, i)
					continue
				}
				assert.Equal(t, sinks.ClassPermanent, sinktest.Class(result.Err), "%d: %v", i, result.Err)
				assert.Empty(t, result.Receipt)
			}
			assert.Equal(t, goodIDs(batch), r.taken(t), "each once, in order")
			assert.LessOrEqual(t, len(r.all()), 16*len(badAt))
		}
	}
}

func TestLaterEventsOfARefusedEventsKeyAreNotSent(t *testing.T) {
	r := newPicky(t, 422)
	batch := newBatch(6, 1)
	for i, key := range []string{"b", "a", "a", "b", "a", ""} {
		batch[i].Key = key
	}

	results := r.sink(t, batching(Config{})).DeliverBatch(t.Context(), batch)

	assert.Equal(t, sinks.ClassPermanent, sinktest.Class(results[1].Err))
	for _, i := range []int{2, 4} {
		assert.ErrorIs(t, results[i].Err, errPreviousFailed)
		assert.Equal(t, sinks.ClassTransient, sinktest.Class(results[i].Err))
	}
	assert.Equal(t, []string{"0", "3", "5"}, r.taken(t))
}

func TestEventsWithoutAKeyDoNotWait(t *testing.T) {
	r := newPicky(t, 422)
	batch := newBatch(4, 1)
	for _, d := range batch {
		d.Key = ""
	}
	results := r.sink(t, batching(Config{})).DeliverBatch(t.Context(), batch)
	assert.Equal(t, sinks.ClassPermanent, sinktest.Class(results[1].Err))
	assert.Equal(t, []string{"0", "2", "3"}, r.taken(t))
}

// If several events in a row are refused, the sink is probably the cause, so the other events do
// not use up attempts.
func TestSeveralRefusedEventsInARowEndABatch(t *testing.T) {
	r := newReceiver(t, status(400))
	results := r.sink(t, batching(Config{})).DeliverBatch(t.Context(), newBatch(100))
	for i, result := range results {
		want := sinks.ClassUnavailable
		if i < maxRefusals {
			want = sinks.ClassPermanent
		}
		assert.Equal(t, want, sinktest.Class(result.Err), "%d: %v", i, result.Err)
	}
	assert.ErrorContains(t, results[99].Err, "3 events in a row were refused, the rest was not sent")
	assert.ErrorContains(t, results[99].Err, "400 Bad Request")
	assert.Less(t, len(r.all()), 15)
}

func TestAfterAnErrorTheRestOfABatchIsNotSent(t *testing.T) {
	for name, tt := range map[string]struct {
		status int
		want   sinks.Class
	}{
		"asks to wait":     {503, sinks.ClassThrottled},
		"refuses the sink": {401, sinks.ClassUnavailable},
	} {
		r := newReceiver(t, func(w http.ResponseWriter, req *http.Request) {
			switch body, _ := io.ReadAll(req.Body); {
			case strings.Contains(string(body), bad): // a request of all 8, then of the first 4
				w.WriteHeader(422)
			case strings.Contains(string(body), `"id":"0"`):
				w.WriteHeader(202)
			default:
				w.Header().Set("Retry-After", "30")
				w.WriteHeader(tt.status)
			}
		})
		results := r.sink(t, batching(Config{})).DeliverBatch(t.Context(), newBatch(8, 2))
		for i, result := range results {
			if i < 2 {
				assert.NoError(t, result.Err, name)
				continue
			}
			if i == 2 {
				assert.Equal(t, sinks.ClassPermanent, sinktest.Class(result.Err), name)
				continue
			}
			assert.Equal(t, tt.want, sinktest.Class(result.Err), "%s %d: %v", name, i, result.Err)
		}
		assert.Equal(t, "3", readEvents(t, r.all()[len(r.all())-1])[0].ID(), name)
	}
}

// A part that fails with a transient error may itself be the cause, so the other parts are sent.
func TestATransientFailureOfAPartDelaysOnlyItsKeys(t *testing.T) {
	r := newReceiver(t, func(w http.ResponseWriter, req *http.Request) {
		switch body, _ := io.ReadAll(req.Body); {
		case strings.Contains(string(body), bad):
			w.WriteHeader(422)
		case strings.Contains(string(body), `"id":"0"`):
			w.WriteHeader(500)
		default:
			w.WriteHeader(202)
		}
	})
	batch := newBatch(8, 2)
	batch[5].Key = batch[0].Key

	results := r.sink(t, batching(Config{})).DeliverBatch(t.Context(), batch)

	for i, result := range results {
		switch i {
		case 0, 1:
			assert.Equal(t, sinks.ClassTransient, sinktest.Class(result.Err), "%d: %v", i, result.Err)
			assert.ErrorContains(t, result.Err, "500")
		case 2:
			assert.Equal(t, sinks.ClassPermanent, sinktest.Class(result.Err))
		case 5:
			assert.ErrorIs(t, result.Err, errPreviousFailed)
		default:
			assert.NoError(t, result.Err, i)
		}
	}
}

func TestTheTimeoutLimitsTheWholeBatch(t *testing.T) {
	const timeout = 3 * time.Second
	r := newReceiver(t, func(w http.ResponseWriter, req *http.Request) {
		if body, _ := io.ReadAll(req.Body); strings.Contains(string(body), bad) {
			w.WriteHeader(422)
			return
		}
		<-req.Context().Done()
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	results := r.sink(t, batching(Config{Timeout: timeout})).DeliverBatch(ctx, newBatch(100, 99))
	require.NoError(t, ctx.Err())
	for _, result := range results {
		assert.Equal(t, sinks.ClassTransient, sinktest.Class(result.Err))
		assert.ErrorContains(t, result.Err, "no response within 3s")
	}
	assert.Len(t, r.all(), 2, "all events, then half of them")
}

func TestACancelledBatchSendsNoMore(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := newReceiver(t, func(w http.ResponseWriter, req *http.Request) {
		if body, _ := io.ReadAll(req.Body); strings.Contains(string(body), bad) {
			w.WriteHeader(422)
			return
		}
		cancel()
		<-req.Context().Done()
	})
	results := r.sink(t, batching(Config{})).DeliverBatch(ctx, newBatch(100, 99))
	for _, result := range results {
		assert.Equal(t, sinks.ClassCancelled, sinktest.Class(result.Err))
	}
	assert.Len(t, r.all(), 2, "all events, then half of them")
}

// For any bad events and any keys, the results match the events that arrived, and after a failure no
// later event of the key arrives.
func TestABatchKeepsTheOrderOfItsKeys(t *testing.T) {
	r := newPicky(t, 400)
	small := r.sink(t, batching(Config{Batch: Batch{MaxBytes: 1 << 10}}))
	large := r.sink(t, batching(Config{}))
	rapid.Check(t, func(rt *rapid.T) {
		batch := newBatch(rapid.IntRange(1, 30).Draw(rt, "size"))
		for i, d := range batch {
			d.Key = rapid.SampledFrom([]string{"", "a", "b", "c", "d"}).Draw(rt, "key")
			d.Payload = fmt.Appendf(nil, `"%s"`, strings.Repeat("x", rapid.SampledFrom([]int{0, 100, 2000}).Draw(rt, "payload")))
			if rapid.IntRange(0, 3).Draw(rt, "bad") == 0 {
				batch[i].ID += bad
			}
		}
		sink := large
		if rapid.Bool().Draw(rt, "small requests") {
			sink = small
		}
		r.forget()

		results := sink.DeliverBatch(t.Context(), batch)

		var delivered []string
		failed := make(map[string]bool)
		for i, d := range batch {
			if results[i].Err == nil {
				require.False(rt, failed[d.Key], "%d of key %q", i, d.Key)
				delivered = append(delivered, d.ID)
			} else if d.Key != "" {
				failed[d.Key] = true
			}
			if sinktest.Class(results[i].Err) == sinks.ClassPermanent {
				require.Contains(rt, d.ID, bad)
			}
		}
		require.Equal(rt, delivered, r.taken(t))
	})
}

func TestARequestIsNoLargerThanMaxBytes(t *testing.T) {
	const maxBytes = 2000
	r := newReceiver(t)
	sink := r.sink(t, batching(Config{Batch: Batch{MaxBytes: maxBytes}}))
	batch := newBatch(20)
	batch[7].Payload = fmt.Appendf(nil, `"%s"`, strings.Repeat("x", maxBytes)) // is sent alone

	for _, result := range sink.DeliverBatch(t.Context(), batch) {
		assert.Equal(t, sinks.Result{Receipt: "http 202"}, result)
	}

	assert.Equal(t, goodIDs(batch), r.taken(t))
	ids := make(map[string]bool)
	for i, request := range r.all() {
		events := readEvents(t, request)
		ids[request.Header.Get(webhook.HeaderIdempotencyKey)] = true
		switch {
		case len(events) == 1 && events[0].ID() == "7":
			assert.Greater(t, len(request.Body), maxBytes)
		case events[len(events)-1].ID() == "6", events[len(events)-1].ID() == "19":
			assert.LessOrEqual(t, len(request.Body), maxBytes)
		default: // full
			assert.LessOrEqual(t, len(request.Body), maxBytes, i)
			assert.Greater(t, len(request.Body), maxBytes-400, "%d: another one would have fitted", i)
		}
	}
	assert.Len(t, ids, len(r.all()), "the ids of the requests differ")
}

func TestABatchOfExactlyMaxBytesIsOneRequest(t *testing.T) {
	batch := newBatch(2)
	sink := newSink(t, batching(Config{URL: "https://partner.example"}))
	both, n := sink.appendBatch(nil, batch)
	require.Equal(t, 2, n)
	sink.maxBytes = len(both)
	_, n = sink.appendBatch(nil, batch)
	assert.Equal(t, 2, n)
	sink.maxBytes--
	one, n := sink.appendBatch(nil, batch)
	assert.Equal(t, 1, n)
	alone, _ := sink.appendBatch(nil, batch[:1])
	assert.Equal(t, string(alone), string(one))
}

func TestTheRequestOfABatchIsInTheTraceOfItsContext(t *testing.T) {
	r := newReceiver(t)
	s := newSink(t, batching(Config{URL: r.URL}))
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	batch := newBatch(2)
	batch[0].Metadata = notification.Metadata{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	for _, result := range s.DeliverBatch(trace.ContextWithSpanContext(t.Context(), span), batch) {
		require.NoError(t, result.Err)
	}
	for _, result := range s.DeliverBatch(t.Context(), batch) {
		require.NoError(t, result.Err)
	}
	requests := r.all()
	require.Equal(t, "00-01000000000000000000000000000000-0200000000000000-01", requests[0].Header.Get("Traceparent"))
	require.Empty(t, requests[1].Header.Get("Traceparent"))
	for _, request := range requests {
		require.Equal(t, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", readEvents(t, request)[0].Extensions()["traceparent"])
	}
}
