package receiver

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"
)

// server answers 200 to each request.
type server struct {
	*Tally
	to   Destination
	http *http.Server
}

func newServer(c Config) (*server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	to := Destination{Kind: HTTP, InFlight: c.InFlight, Orders: c.Orders, URL: "http://" + listener.Addr().String() + "/orders"}
	s := &server{Tally: NewTally(c.Capacity), to: to}
	s.http = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		payload, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has disconnected
		}
		s.Take(payload)
		if c.Delay > 0 {
			time.Sleep(c.Delay)
		}
		w.WriteHeader(http.StatusOK)
	})}
	go func() { _ = s.http.Serve(listener) }() // until Close
	return s, nil
}

func (s *server) Destination() Destination                 { return s.to }
func (s *server) Arrived() int                             { return int(s.distinct.n.Load()) }
func (s *server) Expect(count int) <-chan struct{}         { return s.distinct.expect(count) }
func (s *server) Verdict(context.Context) (Verdict, error) { return s.Tally.Verdict(), nil }
func (s *server) Close() error                             { return s.http.Close() }
