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

// The headers that describe a notification.
const (
	headerID   = "Waybill-Id"
	headerType = "Waybill-Type"
	headerKey  = "Waybill-Key"
	headerTime = "Waybill-Occurred-On"
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
	by, err := strconv.Atoi(path.Base(r.URL.Path))
	all, bodyErr := read(r)
	if err := errors.Join(err, bodyErr); err != nil {
		http.Error(w, "not the endpoint, no id, or not a publisher's payload", http.StatusBadRequest)
		return
	}
	status, delay := s.draw(all[0].id)
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-r.Context().Done(): // the forwarder is gone, but the delivery may be complete
		}
	}
	if status == http.StatusAccepted {
		s.mu.Lock()
		for _, m := range all {
			s.deliveries = append(s.deliveries, delivery{m.id, m.body.Key, m.body.N, by, time.Now()})
			if difference := m.body.changed(m.header); difference != "" {
				s.changed = append(s.changed, Violation{Changed, m.id, difference})
			}
		}
		s.mu.Unlock()
	}
	w.WriteHeader(status)
}

// Envelopes is the query of an endpoint for requests in the format envelope, also of collections.
const Envelopes = "?envelopes"

// received is a notification of a request.
type received struct {
	id     string
	body   payload
	header http.Header
}

// read reads a request: a payload with headers, an envelope, or a collection of envelopes. There is at least one.
func read(r *http.Request) ([]received, error) {
	if r.URL.RawQuery != Envelopes[1:] {
		one := received{header: r.Header}
		id, err := url.PathUnescape(r.Header.Get(headerID))
		if one.id = id; id == "" {
			err = errors.New("no id")
		}
		err = errors.Join(err, json.NewDecoder(r.Body).Decode(&one.body))
		return []received{one}, err
	}
	type envelope struct {
		ID         string          `json:"id"`
		Type       string          `json:"type"`
		Key        string          `json:"key"`
		OccurredOn string          `json:"occurred_on"`
		Payload    json.RawMessage `json:"payload"`
		Encoded    []byte          `json:"payload_base64"`
	}
	var body struct {
		envelope
		Items []envelope `json:"items"`
	}
	err := json.NewDecoder(r.Body).Decode(&body)
	if body.Items == nil {
		body.Items = []envelope{body.envelope}
	}
	all := make([]received, len(body.Items))
	for i, e := range body.Items {
		all[i] = received{id: e.ID, header: http.Header{}}
		for name, value := range map[string]string{headerID: e.ID, headerType: e.Type, headerKey: e.Key, headerTime: e.OccurredOn} {
			all[i].header.Set(name, url.PathEscape(value))
		}
		if e.Payload == nil {
			e.Payload = e.Encoded
		}
		err = errors.Join(err, json.Unmarshal(e.Payload, &all[i].body))
	}
	if len(all) == 0 || all[0].id == "" {
		err = errors.Join(err, errors.New("no items, or one without an id"))
	}
	return all, err
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
