package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers"
	"github.com/waybill-go/waybill/sinks/internal/redact"
)

// maxConnections is the most deliveries that a sink may have in flight. Connections are opened as
// needed.
const maxConnections = 1024

// streams publishes over the connections of a client. After an answer that says that this server cannot be
// used, it replaces the client: all its connections may lead to that server, such as the former primary
// behind an address that now leads to another one. New calls use new connections, and the old ones are
// closed when their calls have ended. Its methods are safe for concurrent use.
type streams struct {
	open        func() (*connections, error)
	credentials redact.Credentials // removed from all errors

	mu      sync.Mutex
	current *connections
}

// connections are those of one client, which connects as needed. The client sets no name, because that
// requires a permission that nothing else needs.
type connections struct {
	publisher *redisstream.Publisher
	client    *redis.Client
	inFlight  int // calls
	retired   bool
}

var (
	_ message.Publisher   = (*streams)(nil)
	_ sinks.HealthChecker = (*streams)(nil)
)

func newStreams(in sinks.Instance, c Config) (message.Publisher, error) {
	u, err := brokers.ParseURL(c.URL, c.User, c.Password, schemes...)
	if err != nil {
		return nil, err
	}
	s := &streams{open: func() (*connections, error) { return c.open(in) }, credentials: redact.New(brokers.Secret(u.User))}
	clientLog.sink.Store(&sinkLog{in.Logger, s.credentials})
	s.current, err = s.open()
	return s, err
}

// open makes a client. It does not connect.
func (c *Config) open(in sinks.Instance) (*connections, error) {
	options, err := c.options()
	if err != nil {
		return nil, err
	}
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = c.Timeout, c.Timeout, c.Timeout
	options.ContextTimeoutEnabled = true
	// The client does not retry an XADD whose answer was lost, because only the engine knows
	// the order of deliveries.
	options.MaxRetries, options.DialerRetries = -1, 1
	options.PoolSize = maxConnections
	options.ConnMaxLifetime = c.MaxConnectionAge
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if in.Dial != nil {
		options.Dialer = encrypted(in.Dial, options.TLSConfig)
	}
	client := redis.NewClient(options)
	p, err := redisstream.NewPublisher(redisstream.PublisherConfig{
		Client:        client,
		Marshaller:    Marshaler{MaxBytes: c.MaxMessageBytes},
		DefaultMaxlen: c.MaxLength,
	}, watermill.NopLogger{})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &connections{publisher: p, client: client}, nil
}

// Publish returns when the server has answered, or when the messages' context ends.
func (s *streams) Publish(stream string, messages ...*message.Message) error {
	for _, m := range messages {
		err := s.use(func(c *connections) error {
			if err := c.publisher.Publish(stream, m); err != nil {
				return c.explain(withoutPayload(err, m), m)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// use makes a call with the current connections, and replaces them if the server cannot be used.
func (s *streams) use(call func(*connections) error) error {
	s.mu.Lock()
	c := s.current
	c.inFlight++
	s.mu.Unlock()
	err := call(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	c.inFlight--
	if c == s.current && isAboutServer(err) {
		if fresh, err := s.open(); err == nil {
			c.retired, s.current = true, fresh
		}
	}
	if c.retired && c.inFlight == 0 {
		_ = c.client.Close()
	}
	return s.credentials.Error(err)
}

// smallestLimit is the smallest value of proto-max-bulk-len.
const smallestLimit = 1 << 20

// explain finds out why the server closed the connection after a large message. The server sends an
// error for a message that is too large, but the connection usually ends before the client reads
// it.
func (c *connections) explain(err error, m *message.Message) error {
	size := len(m.Payload)
	for _, text := range m.Metadata {
		size = max(size, len(text))
	}
	if size < smallestLimit || !hungUp(err) {
		return err
	}
	const setting = "proto-max-bulk-len"
	settings, unknown := c.client.ConfigGet(m.Context(), setting).Result()
	limit, notANumber := strconv.Atoi(settings[setting])
	switch {
	case unknown != nil || notANumber != nil:
		return fmt.Errorf("%w; it has %d bytes, and may be above the server's %s, which this user may not read", err, size, setting)
	case size > limit:
		return sinks.Permanent(fmt.Errorf("%w; it has %d bytes, the server's %s is %d", err, size, setting, limit))
	}
	return err
}

// Close closes the client. It does not call Close of the publisher, which must not be concurrent
// with Publish.
func (s *streams) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current.client.Close()
}

// CheckHealth pings the server.
func (s *streams) CheckHealth(ctx context.Context) error {
	return s.use(func(c *connections) error { return c.client.Ping(ctx).Err() })
}
