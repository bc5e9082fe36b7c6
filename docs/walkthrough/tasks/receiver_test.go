//go:build unix

package tasks

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
)

const secret = "a25vd24gdG8gdGhlIHNob3AgYW5kIHRoZSBwYXJ0bmVy"

// arrival is what a receiver has taken.
type arrival struct {
	ID, Type, Key string
	Payload       struct {
		Order, Product string
		N              int
	}
}

// receiver takes signed webhooks at /hooks, or telegrams.
type receiver struct {
	name   string
	url    string
	mu     sync.Mutex
	all    []arrival
	refuse func(arrival) string // the text with which it refuses one for good, or nothing
}

// receiver starts a receiver of webhooks. Its URL is in the variable.
func (c *trial) receiver(name, variable string, refuse func(arrival) string) *receiver {
	r := &receiver{name: name, refuse: refuse}
	server := httptest.NewServer(http.HandlerFunc(r.take))
	c.Cleanup(server.Close)
	r.url = server.URL + "/hooks"
	c.set(variable, r.url)
	return r
}

func (r *receiver) take(w http.ResponseWriter, request *http.Request) {
	e, err := webhook.Envelope(request, secret)
	if err != nil || request.URL.Path != "/hooks" {
		http.Error(w, fmt.Sprint("not signed, or not /hooks: ", err), http.StatusUnauthorized)
		return
	}
	a := arrival{ID: e.ID, Type: e.Type, Key: e.Key}
	if err := json.Unmarshal(e.Payload, &a.Payload); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.refuse != nil {
		if text := r.refuse(a); text != "" {
			http.Error(w, text, http.StatusUnprocessableEntity)
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, a)
}

func (r *receiver) arrivals() []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

func ids(arrivals []arrival) []string {
	var all []string
	for _, a := range arrivals {
		all = append(all, a.ID)
	}
	return all
}

// got waits until count different notifications have arrived, and checks that those of a key are in
// order. Repeats are allowed if again is true.
func (c *trial) got(r *receiver, count int, again bool) error {
	first := map[string]bool{}
	err := c.until(fmt.Sprintf("%d have arrived at %s", count, r.name), func() (bool, error) {
		for _, a := range r.arrivals() {
			first[a.ID] = true
		}
		return len(first) >= count, nil
	})
	if err != nil {
		return fmt.Errorf("%w: only %v", err, ids(r.arrivals()))
	}
	clear(first)
	last := map[string]int{}
	for _, a := range r.arrivals() {
		switch {
		case first[a.ID] && !again:
			return fmt.Errorf("%s has arrived at %s again", a.ID, r.name)
		case first[a.ID]:
			continue
		case a.Payload.N < last[a.Key]:
			return fmt.Errorf("%s has arrived at %s after %s-%d", a.ID, r.name, a.Key, last[a.Key])
		}
		first[a.ID], last[a.Key] = true, a.Payload.N
	}
	if len(first) != count {
		return fmt.Errorf("%d have arrived at %s, not %d: %v", len(first), r.name, count, ids(r.arrivals()))
	}
	return nil
}

// free returns an address at which nothing listens.
func (c *trial) free() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// office opens the telegraph's office. It has no time for a-2 at first, and never sends b-1.
func (c *trial) office(address string) (*receiver, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	c.Cleanup(func() { _ = listener.Close() })
	r, busy := &receiver{name: "the office"}, true
	answer := func(conn net.Conn) {
		defer func() { _ = conn.Close() }()
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil {
			return
		}
		id, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		a, said := arrival{ID: id}, "OK"
		r.mu.Lock()
		defer r.mu.Unlock()
		switch {
		case id == "b-1" || json.Unmarshal([]byte(text), &a.Payload) != nil:
			said = "NEVER"
		case id == "a-2" && busy:
			said, busy = "LATER", false
		default:
			a.Key = a.Payload.Order
			r.all = append(r.all, a)
		}
		_, _ = fmt.Fprintln(conn, said)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go answer(conn)
		}
	}()
	return r, nil
}
