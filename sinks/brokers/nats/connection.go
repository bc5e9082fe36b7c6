package nats

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/waybill-go/waybill/sinks"
)

const (
	// dialing is how long one server may take to answer.
	dialing = 2 * time.Second
	// reconnecting is the pause before a server is tried again.
	reconnecting = 250 * time.Millisecond
	// silence ends a connection after three of these without an answer.
	silence = 10 * time.Second
)

// connection is a publisher and its client, which reconnects by itself.
type connection struct {
	message.Publisher
	client *nats.Conn
	stream string
}

var _ sinks.HealthChecker = (*connection)(nil)

// connect connects to the first server that takes the client.
func connect(ctx context.Context, in sinks.Instance, c Config) (message.Publisher, error) {
	options, err := c.options(ctx, in)
	if err != nil {
		return nil, err
	}
	client, err := nats.Connect(strings.Join(c.Servers, ","), options...)
	if err != nil {
		return nil, err
	}
	acknowledged := []nats.PubOpt{nats.AckWait(c.Timeout)}
	if c.Stream != "" {
		acknowledged = append(acknowledged, nats.ExpectStream(c.Stream))
	}
	p, err := wmnats.NewPublisherWithNatsConn(client, wmnats.PublisherPublishConfig{
		Marshaler:         Marshaler{},
		SubjectCalculator: wmnats.DefaultSubjectCalculator,
		JetStream: wmnats.JetStreamConfig{
			TrackMsgId: true, // Nats-Msg-Id is the notification's id
			// Without room at the end: calls in parallel append to it.
			PublishOptions: acknowledged[:len(acknowledged):len(acknowledged)],
		},
	}, watermill.NopLogger{})
	if err != nil {
		client.Close()
		return nil, err
	}
	return &connection{p, client, c.Stream}, nil
}

func (c *Config) options(ctx context.Context, in sinks.Instance) ([]nats.Option, error) {
	logger := in.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	options := []nats.Option{
		nats.Name("waybill-" + in.Name),
		nats.Timeout(min(dialing, c.Timeout)),
		nats.MaxReconnects(-1), // the default gives up after 60, and stays closed
		nats.ReconnectWait(reconnecting),
		// Else a server that refuses a user twice is not asked again, though the user's rights
		// may be back.
		nats.IgnoreAuthErrorAbort(),
		// What is published without a connection fails at once. By default it is kept and
		// sent after the next one is made, when it has long been reported as failed.
		nats.ReconnectBufSize(-1),
		nats.PingInterval(silence),
		// The default prints to standard error.
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			logger.Warn("NATS reports an error", "error", err)
		}),
	}
	if in.Dial != nil {
		options = append(options, nats.SetCustomDialer(dialer(in.Dial)))
	}
	credentials, err := c.credentials()
	if err != nil {
		return nil, err
	}
	if credentials != nil {
		options = append(options, credentials)
	}
	encryption, err := c.encryption()
	if err != nil {
		return nil, err
	}
	if encryption != nil {
		options = append(options, nats.Secure(encryption))
	}
	return options, ctx.Err()
}

// dialer is the program's own, for the first connection and those after it.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// Dial opens a connection within the time that a server has.
func (d dialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialing)
	defer cancel()
	return d(ctx, network, address)
}

// CheckHealth waits for an answer of the server, and asks for the stream if one is named.
func (c *connection) CheckHealth(ctx context.Context) error {
	if _, bounded := ctx.Deadline(); !bounded { // the client insists
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, dialing)
		defer cancel()
	}
	if err := c.client.FlushWithContext(ctx); err != nil {
		return err
	}
	if c.stream == "" {
		return nil
	}
	js, err := c.client.JetStream(nats.Context(ctx))
	if err != nil {
		return err
	}
	_, err = js.StreamInfo(c.stream)
	return err
}
