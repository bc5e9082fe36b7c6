package kafka

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/IBM/sarama"
)

// network is how a client reaches the brokers, in the form that sarama wants, which has
// no context: all of its connections end with life, and none is made after that. TLS is
// spoken here, and not by sarama, so that each handshake sees the certificates of the
// moment.
type network struct {
	life    context.Context
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	encrypt func(host string) *tls.Config // nil without TLS
	timeout time.Duration                 // of connecting, the handshake included
}

func (n *network) Dial(protocol, address string) (net.Conn, error) {
	if n.life.Err() != nil {
		return nil, context.Cause(n.life)
	}
	ctx, cancel := context.WithTimeout(n.life, n.timeout)
	defer cancel()
	conn, err := n.dial(ctx, protocol, address)
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: conn, forget: context.AfterFunc(n.life, func() { _ = conn.Close() })}
	if n.encrypt == nil {
		return c, nil
	}
	host, _, _ := net.SplitHostPort(address) // it was dialled, so it can be split
	encrypted := tls.Client(c, n.encrypt(host))
	if err := encrypted.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return encrypted, nil
}

// connection is one that its network forgets when it is closed.
type connection struct {
	net.Conn
	forget func() bool
}

func (c *connection) Close() error {
	c.forget()
	return c.Conn.Close()
}

// over returns the configuration of a client that reaches the brokers in no other way
// than n, and does not pause once n's life has ended.
func (n network) over(conf *sarama.Config) *sarama.Config {
	mine := *conf
	mine.Net.Proxy.Enable, mine.Net.Proxy.Dialer = true, &n
	mine.Producer.Retry.BackoffFunc = (&backoff{life: n.life}).pause
	mine.Metadata.Retry.BackoffFunc = func(int, int) time.Duration {
		if n.life.Err() != nil {
			return 0
		}
		return conf.Metadata.Retry.Backoff
	}
	return &mine
}
