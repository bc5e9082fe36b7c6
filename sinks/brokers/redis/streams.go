package redis

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/waybill-go/waybill/sinks"
)

// maxConnections is as many as a sink may have in flight; they are opened as needed.
const maxConnections = 1024

// streams is a publisher and its client, which connects as needed. The client has no name:
// setting it takes a right that nothing else here needs.
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
	// An XADD whose answer was lost is not sent again by the client: the engine knows what
	// else waits.
	options.MaxRetries, options.DialerRetries = -1, 1
	options.PoolSize = maxConnections
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
		return nil, err
	}
	return &streams{p, client}, nil
}

// Publish returns when the server has answered, or when the messages' context ends.
func (s *streams) Publish(stream string, messages ...*message.Message) error {
	return s.publisher.Publish(stream, messages...)
}

// Close closes the client. That of the publisher must not run beside its Publish.
func (s *streams) Close() error { return s.client.Close() }

// CheckHealth pings the server.
func (s *streams) CheckHealth(ctx context.Context) error { return s.client.Ping(ctx).Err() }
