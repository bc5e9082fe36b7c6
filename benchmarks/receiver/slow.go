package receiver

import (
	"net"
	"slices"
	"sync"
	"time"
)

// listenSlowly returns a listen function whose connections delay each response. As in a network, one
// delayed response does not delay the next.
func listenSlowly(delay time.Duration) func(network, address string) (net.Listener, error) {
	return func(network, address string) (net.Listener, error) {
		listener, err := net.Listen(network, address)
		return slowListener{listener, delay}, err
	}
}

type slowListener struct {
	net.Listener
	delay time.Duration
}

func (l slowListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &slowConn{Conn: conn, delay: l.delay, inTransit: make(chan answer, 1024), closed: make(chan struct{})}
	go c.deliver()
	return c, nil
}

type answer struct {
	due     time.Time
	content []byte
}

type slowConn struct {
	net.Conn
	delay     time.Duration
	inTransit chan answer
	once      sync.Once
	closed    chan struct{}
}

func (c *slowConn) Write(b []byte) (int, error) {
	select {
	case c.inTransit <- answer{time.Now().Add(c.delay), slices.Clone(b)}:
		return len(b), nil
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

func (c *slowConn) deliver() {
	for {
		select {
		case a := <-c.inTransit:
			time.Sleep(time.Until(a.due))
			if _, err := c.Conn.Write(a.content); err != nil {
				_ = c.Close()
				return
			}
		case <-c.closed:
			return
		}
	}
}

func (c *slowConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
