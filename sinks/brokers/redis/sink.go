// Package redis publishes notifications to Redis Streams, or to those of a server that
// speaks Redis' protocol, such as Valkey.
//
// A delivery counts as made when the server has answered XADD. What that is worth is the
// server's configuration: with appendfsync always the entry is on disk, and with
// appendfsync everysec a second of them may be lost; a failover loses what the replica has
// not got yet.
//
// An entry has the fields id, payload, type, version, key and occurred-on, and one for each of
// the notification's metadata, so that a consumer in any language reads it. Watermill's Redis
// library consumes it with [Marshaler].
package redis

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/publisher"
)

// Kind is the kind redis for the configuration file.
func Kind() sinks.Kind {
	return sinks.NewKind("redis", "Appends each notification to a stream of Redis.",
		func(in sinks.Instance, c Config) (sinks.Sink, error) { return New(in, c) }, answers...)
}

// New returns a sink for the configuration, which it validates. It connects nothing: the
// first delivery does. The zero values of Timeout and MaxMessageBytes are no defaults; start
// from SetDefaults.
func New(in sinks.Instance, c Config) (*publisher.Lazy, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return publisher.NewLazy(func(context.Context) (message.Publisher, error) {
		return newStreams(in, c)
	}, c.publishing())
}
