package crashtest

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// These are fractions of the requests before the calm, except as noted.
const (
	failShare = 0.02 // answered with 500 or 503, at most failTimes for one id
	slowShare = 0.1  // accepted late
	failTimes = 3
	slowest   = 200 * time.Millisecond
)

// The headers with the id and the key of a notification.
const (
	headerID  = "Waybill-Id"
	headerKey = "Waybill-Key"
)

// delivery is a request that the sink accepted.
type delivery struct {
	id, key string
	n       int64
	by      int // number of the forwarder
	at      time.Time
}

// sink is a destination that records the requests it accepts.
type sink struct {
	server http.Server
	host   string
	calm   atomic.Bool
	stop   context.CancelFunc
	served sync.WaitGroup

	mu         sync.Mutex
	random     *rand.Rand
	failed     map[string]int
	failures   int
	deliveries []delivery
	changed    []Violation
}

func newSink(seed uint64) (*sink, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &sink{host: listener.Addr().String(), failed: make(map[string]int), random: rand.New(rand.NewPCG(seed, 3))}
	ctx, stop := context.WithCancel(background)
	s.stop = stop
	s.server.Handler = s
	s.server.BaseContext = func(net.Listener) context.Context { return ctx }
	s.served.Go(func() { _ = s.server.Serve(listener) })
	return s, nil
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body payload
	by, err := strconv.Atoi(path.Base(r.URL.Path))
	id, idErr := url.PathUnescape(r.Header.Get(headerID))
	if err := errors.Join(err, idErr, json.NewDecoder(r.Body).Decode(&body)); err != nil || id == "" {
		http.Error(w, "not the endpoint, no id, or not a publisher's payload", http.StatusBadRequest)
		return
	}
	status, delay := s.draw(id)
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-r.Context().Done(): // the forwarder is gone, but the delivery may be complete
		}
	}
	if status == http.StatusAccepted {
		s.mu.Lock()
		s.deliveries = append(s.deliveries, delivery{id, body.Key, body.N, by, time.Now()})
		if difference := body.changed(r.Header); difference != "" {
			s.changed = append(s.changed, Violation{Changed, id, difference})
		}
		s.mu.Unlock()
	}
	w.WriteHeader(status)
}

// draw chooses the result of a request.
func (s *sink) draw(id string) (status int, delay time.Duration) {
	if s.calm.Load() {
		return http.StatusAccepted, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	chance := s.random.Float64()
	switch {
	case chance < failShare && s.failed[id] < failTimes:
		s.failed[id]++
		s.failures++
		return []int{http.StatusInternalServerError, http.StatusServiceUnavailable}[s.random.IntN(2)], 0
	case chance > 1-slowShare:
		return http.StatusAccepted, time.Duration(s.random.Int64N(int64(slowest)))
	}
	return http.StatusAccepted, 0
}

// taken returns the deliveries in order.
func (s *sink) taken() []delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.deliveries)
}

func (s *sink) close() error {
	s.stop()
	err := s.server.Close()
	s.served.Wait()
	return err
}
