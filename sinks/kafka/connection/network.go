package connection

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// network makes the connections of clients. It also makes the TLS handshakes, instead of the
// clients, so that each uses the current certificates.
type network struct {
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	encrypt func(host string) *tls.Config // nil without TLS
	timeout time.Duration                 // of a connection with its handshake
}

// Connect makes a connection, with its handshake if it is encrypted.
func (n network) Connect(ctx context.Context, protocol, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	conn, err := n.dial(ctx, protocol, address)
	if err != nil || n.encrypt == nil {
		return conn, err
	}
	host, _, _ := net.SplitHostPort(address) // never fails: dial has accepted the address
	encrypted := tls.Client(conn, n.encrypt(host))
	if err := encrypted.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return encrypted, nil
}
