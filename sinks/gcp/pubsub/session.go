package pubsub

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	apiv1 "cloud.google.com/go/pubsub/v2/apiv1"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/waybill-go/waybill/sinks"
)

// connections is how many connections a client has. Google's own client has up to four.
const connections = 4

// session is a client of the service. Calls wait until it is ready.
type session struct {
	ready   chan struct{}
	err     error // why there is no client
	client  *apiv1.TopicAdminClient
	project string // of topics that are ids; "" is unknown
	calls   sync.WaitGroup
}

// session returns the current session, or begins one, and counts a call. Beginning one is not part of a call, because
// looking for credentials takes no context.
func (s *Sink) session(ctx context.Context) (*session, error) {
	if ctx.Err() != nil {
		return nil, late(ctx)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, sinks.Unavailable(ErrClosed)
	}
	c := s.current
	if c == nil {
		c = &session{ready: make(chan struct{})}
		s.current = c
		s.running.Go(func() { s.connect(c) })
	}
	c.calls.Add(1)
	s.mu.Unlock()
	var err error
	select {
	case <-c.ready:
		if c.err == nil {
			return c, nil
		}
		err = sinks.Unavailable(c.err)
	case <-ctx.Done():
		err = late(ctx)
	}
	c.calls.Done()
	return nil, err
}

// connect makes the client of a session. Its connections are made by the first calls.
func (s *Sink) connect(c *session) {
	defer close(c.ready)
	ctx, cancel := context.WithTimeout(s.life, s.config.Timeout)
	defer cancel()
	options, err := s.options(ctx, c)
	if err == nil {
		c.client, err = apiv1.NewTopicAdminClient(s.life, options...)
	}
	if err != nil {
		c.err = fmt.Errorf("%w: %w", ErrCredentials, err)
		s.mu.Lock()
		if s.current == c {
			s.current = nil // the next call tries again
		}
		s.mu.Unlock()
		return
	}
	c.client.CallOptions = &apiv1.TopicAdminCallOptions{} // without retries: they are for the engine
}

func (s *Sink) options(ctx context.Context, c *session) ([]option.ClientOption, error) {
	// After an outage, connections are made again soon. The service closes connections on which pings come more often.
	redial := grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
		MinConnectTimeout: s.config.Timeout,
	}
	options := []option.ClientOption{
		option.WithTelemetryDisabled(),
		option.WithLogger(slog.New(slog.DiscardHandler)), // it would log payloads
		option.WithUserAgent("waybill"),
		option.WithGRPCConnectionPool(connections),
		option.WithGRPCDialOption(grpc.WithConnectParams(redial)),
		option.WithGRPCDialOption(grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 5 * time.Minute})),
	}
	if s.in.Dial != nil {
		options = append(options, option.WithGRPCDialOption(grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return s.in.Dial(ctx, "tcp", address)
		})))
	}
	address, plain, err := s.config.address()
	if err != nil {
		return nil, err
	}
	if address != "" {
		options = append(options, option.WithEndpoint(address))
	}
	c.project = s.config.Project
	if plain {
		return append(options, option.WithoutAuthentication(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials()))), nil
	}
	who, err := s.config.account().Credentials(s.in, "https://www.googleapis.com/auth/pubsub")
	if err != nil {
		return nil, err
	}
	if c.project == "" && !strings.HasPrefix(s.config.Topic, "projects/") {
		if c.project, err = who.ProjectID(ctx); err != nil {
			return nil, err
		}
	}
	return append(options, option.WithAuthCredentials(who)), nil
}

// replace ends a session when its calls have ended. The next call begins another, which reads the credentials again.
func (s *Sink) replace(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == c {
		s.current = nil
		s.running.Go(c.close)
	}
}

// close closes the client after the calls in flight.
func (c *session) close() {
	<-c.ready
	c.calls.Wait()
	if c.client != nil {
		_ = c.client.Close() // nothing is in flight
	}
}
