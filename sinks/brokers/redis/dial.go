package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
)

type dial func(ctx context.Context, network, address string) (net.Conn, error)

// encrypted returns a dial function that adds TLS to the connections of the program's dialer,
// because the client does not. With a nil conf, it returns open.
func encrypted(open dial, conf *tls.Config) dial {
	if conf == nil {
		return open
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := open(ctx, network, address)
		if err != nil {
			return nil, err
		}
		secure := tls.Client(conn, conf)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return secure, nil
	}
}
