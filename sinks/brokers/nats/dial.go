package nats

import (
	"context"
	"net"
	"sync"
	"time"
)

// dialer opens the sockets of one client, whose interface has no context. end closes all sockets;
// after that, none is opened. A server then drops what it has not read, so that it does not store it after messages of
// the next client.
type dialer struct {
	open    func(ctx context.Context, network, address string) (net.Conn, error)
	timeout time.Duration // for one server

	mu      sync.Mutex
	ended   bool
	cancels map[*socket]context.CancelFunc
}

// socket is an open connection, or one that is being opened.
type socket struct {
	net.Conn
	dialer *dialer
}

// Dial opens a connection within the timeout.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d.timeout)
	defer cancel()
	s := &socket{dialer: d}
	if !d.add(s, cancel) {
		return nil, net.ErrClosed
	}
	conn, err := d.open(ctx, network, address)
	if err != nil {
		d.remove(s)
		return nil, err
	}
	s.Conn = conn
	if !d.add(s, func() { reset(conn) }) {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	return s, nil
}

func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func (d *dialer) add(s *socket, cancel context.CancelFunc) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return false
	}
	if d.cancels == nil {
		d.cancels = make(map[*socket]context.CancelFunc)
	}
	d.cancels[s] = cancel
	return true
}

func (d *dialer) remove(s *socket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.cancels, s)
}

func (d *dialer) end() {
	d.mu.Lock()
	cancels := d.cancels
	d.ended, d.cancels = true, nil
	d.mu.Unlock()
	for _, cancel := range cancels {
		cancel()
	}
}

// Close closes the connection.
func (s *socket) Close() error {
	s.dialer.remove(s)
	return s.Conn.Close()
}
