// Package redis publishes notifications to Redis Streams, or to those of a server that
// speaks Redis' protocol, such as Valkey.
//
// A delivery counts as made when the server has answered XADD. The server's configuration
// determines its durability: with appendfsync always, the entry is on disk; with appendfsync
// everysec, the entries of a second may be lost. A failover loses the entries that the replica
// does not have yet.
//
// An entry has the fields id, payload, type, version, key and occurred-on, and one for each
// metadata of the notification, so that consumers in any language can read it. Watermill's Redis
// library consumes it with [Marshaler].
package redis

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers"
	"github.com/waybill-go/waybill/sinks/publisher"
)

// Kind is the sink kind redis.
func Kind() sinks.Kind {
	return sinks.NewKind("redis", "an entry in a stream of Redis for each notification",
		func(in sinks.Instance, c Config) (sinks.Sink, error) { return New(in, c) }, answers...)
}

// New makes a sink from a configuration, and validates it. The first delivery connects. Call
// SetDefaults before you set fields, because a zero Timeout, MaxMessageBytes or MaxConnectionAge is a
// mistake.
func New(in sinks.Instance, c Config) (*publisher.Lazy, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	publishing, err := brokers.Encoded(c.publishing(), in, c.Encoding)
	if err != nil {
		return nil, err
	}
	return publisher.NewLazy(func(context.Context) (message.Publisher, error) {
		return newStreams(in, c)
	}, publishing)
}
