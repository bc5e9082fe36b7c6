package kafka

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// network is how clients reach the brokers. TLS is spoken here, and not by the clients, so
// that each handshake sees the certificates of the moment.
type network struct {
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	encrypt func(host string) *tls.Config // nil without TLS
	timeout time.Duration                 // of connecting, the handshake included
}

func (n network) connect(ctx context.Context, protocol, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	conn, err := n.dial(ctx, protocol, address)
	if err != nil || n.encrypt == nil {
		return conn, err
	}
	host, _, _ := net.SplitHostPort(address) // it was dialled, so it can be split
	encrypted := tls.Client(conn, n.encrypt(host))
	if err := encrypted.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return encrypted, nil
}
