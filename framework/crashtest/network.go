package crashtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/internal/pace"
)

// The ports of links are below those that systems use for outgoing connections, because a link
// that was cut needs the same port again.
const (
	firstPort = 12000
	lastPort  = 20000
	portTries = 50
)

// condition is how a link treats what its ends send.
type condition int

const (
	works  condition = iota
	slow             // answers arrive late
	silent           // everything is dropped, and no end notices that the other has closed
	cut              // connections are closed, and new ones refused
)

// lateness is the mean delay of a chunk of an answer on a slow link. Each differs by up to two thirds.
const lateness = 150 * time.Millisecond

// link is a network link between a forwarder and the database or the sink: a proxy that can fail.
type link struct {
	address, to string

	mu        sync.Mutex
	condition condition
	listener  net.Listener
	ends      []net.Conn
	work      sync.WaitGroup
}

func newLink(to string) (*link, error) {
	for range portTries {
		port := strconv.Itoa(firstPort + rand.IntN(lastPort-firstPort))
		l := &link{address: net.JoinHostPort("127.0.0.1", port), to: to}
		if l.open() == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no free port between %d and %d in %d tries", firstPort, lastPort, portTries)
}

// fail puts the link into a condition for some time. Then it closes the connections, like a firewall
// that no longer knows them, and works again.
func (l *link) fail(ctx context.Context, how condition, length time.Duration) error {
	if how == cut {
		l.close()
	} else {
		l.set(how)
	}
	pace.Sleep(ctx, length)
	l.close()
	return l.open()
}

func (l *link) open() error {
	listener, err := net.Listen("tcp", l.address)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.condition, l.listener = works, listener
	l.work.Go(func() { l.accept(listener) })
	return nil
}

// close closes all connections and refuses new ones. It may be called again.
func (l *link) close() {
	l.mu.Lock()
	l.condition = cut
	_ = l.listener.Close()
	for _, end := range l.ends {
		_ = end.Close()
	}
	l.ends = nil
	l.mu.Unlock()
	l.work.Wait()
}

func (l *link) set(c condition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.condition = c
}

func (l *link) now() condition {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.condition
}

func (l *link) accept(listener net.Listener) {
	for {
		near, err := listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", l.to)
		if err != nil {
			_ = near.Close()
			continue
		}
		l.connect(near, far)
	}
}

func (l *link) connect(near, far net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.condition == cut {
		_ = near.Close()
		_ = far.Close()
		return
	}
	l.ends = append(l.ends, near, far)
	l.work.Go(func() { l.pump(near, far, 0) })
	l.work.Go(func() { l.pump(far, near, lateness) })
}

// pump forwards what one end sends to the other. While the link is slow, each chunk is late.
func (l *link) pump(from, to net.Conn, late time.Duration) {
	chunk := make([]byte, 32<<10)
	for {
		n, ended := from.Read(chunk)
		switch l.now() {
		case silent:
			if ended != nil {
				return
			}
			continue
		case slow:
			time.Sleep(late/3 + rand.N(late*4/3+1))
		}
		if n > 0 {
			if _, err := to.Write(chunk[:n]); err != nil {
				ended = err
			}
		}
		if ended != nil {
			_ = from.Close()
			_ = to.Close()
			return
		}
	}
}
