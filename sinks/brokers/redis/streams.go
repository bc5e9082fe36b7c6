package redis

import (
	"context"
	"fmt"
	"strconv"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/waybill-go/waybill/sinks"
)

// maxConnections is the most deliveries that a sink may have in flight. Connections are opened as
// needed.
const maxConnections = 1024

// streams is a publisher and its client, which connects as needed. The client sets no name,
// because that requires a permission that nothing else needs.
type streams struct {
	publisher *redisstream.Publisher
	client    *redis.Client
}

var (
	_ message.Publisher   = (*streams)(nil)
	_ sinks.HealthChecker = (*streams)(nil)
)

func newStreams(in sinks.Instance, c Config) (message.Publisher, error) {
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
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if in.Dial != nil {
		options.Dialer = encrypted(in.Dial, options.TLSConfig)
	}
	clientLog.sink.Store(in.Logger)
	client := redis.NewClient(options)
	p, err := redisstream.NewPublisher(redisstream.PublisherConfig{
		Client:        client,
		Marshaller:    Marshaler{MaxBytes: c.MaxMessageBytes},
		DefaultMaxlen: c.MaxLength,
	}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	return &streams{p, client}, nil
}

// Publish returns when the server has answered, or when the messages' context ends.
func (s *streams) Publish(stream string, messages ...*message.Message) error {
	for _, m := range messages {
		if err := s.publisher.Publish(stream, m); err != nil {
			return s.explain(withoutPayload(err, m), m)
		}
	}
	return nil
}

// smallestLimit is the smallest value of proto-max-bulk-len.
const smallestLimit = 1 << 20

// explain finds out why the server closed the connection after a large message. The server sends an
// error for a message that is too large, but the connection usually ends before the client reads
// it.
func (s *streams) explain(err error, m *message.Message) error {
	size := len(m.Payload)
	for _, text := range m.Metadata {
		size = max(size, len(text))
	}
	if size < smallestLimit || !hungUp(err) {
		return err
	}
	const setting = "proto-max-bulk-len"
	settings, unknown := s.client.ConfigGet(m.Context(), setting).Result()
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
func (s *streams) Close() error { return s.client.Close() }

// CheckHealth pings the server.
func (s *streams) CheckHealth(ctx context.Context) error { return s.client.Ping(ctx).Err() }
