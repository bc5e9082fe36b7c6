package postgrestest

import (
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// Proxy stands between a client and a server, and is the network that fails. It
// forwards, until it is told to swallow: then it takes all that is said on its
// connections and says nothing, as a network does that lost one side.
type Proxy struct {
	listener  net.Listener
	dsn       *url.URL
	swallowed chan struct{}

	mu         sync.Mutex
	target     string
	swallowing bool
	ends       []net.Conn
	pumps      sync.WaitGroup
}

// StartProxy starts a proxy before the server of a URL. It ends with the test.
func StartProxy(t testing.TB, dsn string) *Proxy {
	t.Helper()
	server, err := url.Parse(dsn)
	if err != nil {
		t.Fatalf("postgrestest: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("postgrestest: %v", err)
	}
	through := *server
	through.Host = listener.Addr().String()
	p := &Proxy{listener: listener, dsn: &through, target: server.Host, swallowed: make(chan struct{}, 1)}
	p.pumps.Go(p.run)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// DSN is the server's URL by way of the proxy.
func (p *Proxy) DSN() string { return p.dsn.String() }

// Address is where the proxy listens: host and port.
func (p *Proxy) Address() string { return p.dsn.Host }

// Swallow has the network go dark, on all connections and on new ones.
func (p *Proxy) Swallow() { p.setSwallowing(true) }

// Forward has it work again. What was swallowed is gone, so the connections of that
// time are of no use any more.
func (p *Proxy) Forward() { p.setSwallowing(false) }

func (p *Proxy) setSwallowing(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallowing = on
}

// Swallowed gets a value when something was swallowed; it keeps one.
func (p *Proxy) Swallowed() <-chan struct{} { return p.swallowed }

// Retarget leads new connections to the server of another URL, as an address that
// moves in a failover does. Those that there are stay where they lead.
func (p *Proxy) Retarget(dsn string) error {
	server, err := url.Parse(dsn)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = server.Host
	return nil
}

// Close ends all connections, refuses new ones and waits for its goroutines.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.mu.Lock()
	for _, end := range p.ends {
		_ = end.Close()
	}
	p.mu.Unlock()
	p.pumps.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (p *Proxy) run() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target := p.target
		p.mu.Unlock()
		far, err := net.Dial("tcp", target)
		if err != nil {
			_ = near.Close()
			continue
		}
		p.mu.Lock()
		p.ends = append(p.ends, near, far)
		p.mu.Unlock()
		p.pumps.Go(func() { p.pump(near, far) })
		p.pumps.Go(func() { p.pump(far, near) })
	}
}

func (p *Proxy) pump(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	_, _ = io.Copy(valve{p, to}, from)
}

// valve is the end of a pipe that may be shut.
type valve struct {
	*Proxy
	to net.Conn
}

func (v valve) Write(b []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.swallowing {
		return v.to.Write(b)
	}
	select {
	case v.swallowed <- struct{}{}:
	default:
	}
	return len(b), nil
}
