package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// crowded is a sink with destinations, named by the part of an id before the dash. Each destination
// handles a number of deliveries at once, for a second each. Others wait, or are refused.
type crowded struct {
	script
	refuses  bool
	mu       sync.Mutex
	capacity map[string]int
	works    map[string]int
	calls    map[string]int             // in progress
	waiting  map[string][]chan struct{} // in order; closed when the call may begin
	refused  int
}

func newCrowded(refuses bool, capacity map[string]int) *crowded {
	s := &crowded{refuses: refuses, capacity: capacity, works: make(map[string]int), calls: make(map[string]int), waiting: make(map[string][]chan struct{})}
	s.answer = func(_ context.Context, d *notification.Delivery) error {
		name, _, _ := strings.Cut(d.ID, "-")
		turn, err := s.enter(name)
		if err != nil {
			return err
		}
		<-turn
		time.Sleep(time.Second)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls[name]--
		s.works[name]--
		s.next(name)
		return nil
	}
	return s
}

// enter makes a call wait for its turn, or refuses it.
func (s *crowded) enter(name string) (turn chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuses && s.works[name] >= s.capacity[name] {
		s.refused++
		return nil, sinks.Throttled(time.Now().Add(100*time.Millisecond), errors.New("429"))
	}
	turn = make(chan struct{})
	s.calls[name]++
	s.waiting[name] = append(s.waiting[name], turn)
	s.next(name)
	return turn, nil
}

// next starts waiting calls, in order, up to the capacity.
func (s *crowded) next(name string) {
	for len(s.waiting[name]) > 0 && s.works[name] < s.capacity[name] {
		s.works[name]++
		close(s.waiting[name][0])
		s.waiting[name] = s.waiting[name][1:]
	}
}

func (s *crowded) set(name string, capacity int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.capacity[name] = capacity
	s.next(name)
}

// inProgress returns the number of calls in progress to a destination.
func (s *crowded) inProgress(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[name]
}

// several is a crowded sink with several destinations.
type several struct{ *crowded }

func (s several) Destination(d *notification.Delivery) string {
	name, _, _ := strings.Cut(d.ID, "-")
	return name
}

var adaptive = forwarder.Parallelism{Adaptive: forwarder.Adaptive{Min: 1, Max: 200}}

func (e *engine) threshold() int { return e.Figures().Sinks[0].Threshold }

func TestAnAdaptiveThresholdFollowsTheDestination(t *testing.T) {
	for name, refuses := range map[string]bool{"by its latency": false, "by its refusals": true} {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, o *outbox) {
				const keys = 300
				s := newCrowded(refuses, map[string]int{"a": 4})
				var rows []notification.Envelope
				for i := range 12 {
					for j := range keys {
						rows = append(rows, notification.Envelope{ID: fmt.Sprintf("a-%03d-%02d", j, i), Type: "t", Key: fmt.Sprint(j)})
					}
				}
				for chunk := range slices.Chunk(rows, 1000) {
					o.insert(chunk...)
				}
				f := o.one(forwarder.Sink{Sink: s, Parallelism: adaptive, Timeout: time.Hour})
				f.Wake()
				pass(3 * time.Minute)
				require.InDelta(t, 4, f.threshold(), 4)
				require.LessOrEqual(t, s.inProgress("a"), 8)

				s.set("a", 40)
				for range 90 { // how long it takes to recover depends on how low the last refusals brought it
					if pass(10 * time.Second); f.threshold() >= 15 {
						break
					}
				}
				require.InDelta(t, 45, f.threshold(), 30)

				pass(20 * time.Minute)
				require.Equal(t, int64(12*keys), f.Stats()[0].Delivered)
				require.Zero(t, s.overlaps, "a key is never in flight twice")
				last := make(map[string]string)
				for _, id := range s.given() {
					key := id[:len("a-000")]
					require.LessOrEqual(t, last[key], id, "keys stay in order")
					last[key] = id
				}
				require.LessOrEqual(t, s.refused, 12*keys/50)
			})
		})
	}
}

func TestEachDestinationHasItsOwnAdaptiveThreshold(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := newCrowded(false, map[string]int{"tight": 4, "wide": 50})
		for range 20 {
			o.append("t", "", numbered("tight-", 40)...)
			o.append("t", "", numbered("wide-", 400)...)
		}
		f := o.one(forwarder.Sink{Sink: several{s}, Parallelism: adaptive, Timeout: time.Hour})
		f.Wake()
		pass(150 * time.Second)
		tight, wide := s.inProgress("tight"), s.inProgress("wide")
		require.LessOrEqual(t, tight, 9)
		require.GreaterOrEqual(t, tight, 1)
		require.Greater(t, wide, 25)
		require.LessOrEqual(t, tight+wide, f.threshold())
		pass(20 * time.Minute)
		require.Equal(t, int64(20*440), f.Stats()[0].Delivered)
		require.Equal(t, 200, f.threshold(), "nothing is in flight")
	})
}

func TestParallelismBecomesAdaptiveAndFixedAgain(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{answer: takes(time.Second)}
		o.append("t", "", numbered("", 4000)...)
		f := o.one(forwarder.Sink{Sink: s, Parallelism: forwarder.Parallelism{Threshold: 4}})
		f.Wake()
		time.Sleep(2500 * time.Millisecond)
		require.Equal(t, 4, f.threshold())

		f.adjust(func(s *forwarder.Sink) { s.Parallelism = adaptive })
		synctest.Wait()
		require.Equal(t, forwarder.DefaultThreshold, f.Stats()[0].InFlight)
		pass(time.Minute)
		require.Greater(t, f.Stats()[0].InFlight, 30)

		f.adjust(func(s *forwarder.Sink) { s.Parallelism.Adaptive = forwarder.Adaptive{Min: 5, Max: 10} })
		pass(2 * time.Second)
		require.Equal(t, 10, f.threshold())
		require.LessOrEqual(t, f.Stats()[0].InFlight, 10)

		f.adjust(func(s *forwarder.Sink) { s.Parallelism = forwarder.Parallelism{Threshold: 50} })
		synctest.Wait()
		require.Equal(t, 50, f.Stats()[0].InFlight)
		err := f.Adjust("sink", func(s *forwarder.Sink) { s.Parallelism.Adaptive.Max = 100 })
		require.ErrorIs(t, err, forwarder.ErrConfig, "a fixed and an adaptive threshold exclude each other")
		pass(10 * time.Minute)
		require.ElementsMatch(t, numbered("", 4000), s.given())
	})
}
