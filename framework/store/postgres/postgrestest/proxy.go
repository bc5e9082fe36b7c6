package postgrestest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// Proxy stands between a client and a server, and is the network that fails. It
// forwards until it is made to swallow: then it takes all that is said on its
// connections and says nothing, as a network does that lost one side. Neither side
// then hears that the other has closed.
type Proxy struct {
	listener  net.Listener
	dsn       *url.URL
	swallowed chan struct{}

	mu         sync.Mutex
	target     string
	swallowing swallowing
	awaited    []byte     // what a client says before the proxy swallows then; nil: nothing
	then       swallowing // from there on
	ends       []net.Conn
	pumps      sync.WaitGroup
}

// swallowing is what a proxy swallows.
type swallowing int

const (
	nothing swallowing = iota
	answers
	everything
)

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
func (p *Proxy) Swallow() { p.set(everything) }

// SwallowAnswers lets through what clients say, and nothing that servers do.
func (p *Proxy) SwallowAnswers() { p.set(answers) }

// SwallowAt is Swallow from where a client says a text next, such as COMMIT: that is the
// first to be swallowed.
func (p *Proxy) SwallowAt(text string) { p.await(text, everything) }

// SwallowAnswersAt is SwallowAnswers from where a client says a text next: its answer is
// the first to be swallowed.
func (p *Proxy) SwallowAnswersAt(text string) { p.await(text, answers) }

func (p *Proxy) await(text string, then swallowing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awaited, p.then = []byte(text), then
}

// hear begins what was to begin where a client says this.
func (p *Proxy) hear(said []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.awaited != nil && bytes.Contains(said, p.awaited) {
		p.swallowing, p.awaited = p.then, nil
	}
}

// Forward has it work again. What was swallowed is gone, so the connections of that
// time are of no use any more.
func (p *Proxy) Forward() { p.set(nothing) }

func (p *Proxy) set(what swallowing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallowing = what
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

// Sever ends the connections that there are; both sides hear of it.
func (p *Proxy) Sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, end := range p.ends {
		_ = end.Close()
	}
	p.ends = nil
}

// Close ends all connections, refuses new ones and waits for its goroutines.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.Sever()
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
		p.pumps.Go(func() { p.pump(valve{p, far, everything}, near) })
		p.pumps.Go(func() { p.pump(valve{p, near, answers}, far) })
	}
}

func (p *Proxy) pump(to valve, from net.Conn) {
	defer from.Close()
	_, _ = io.Copy(to, from)
	if !to.shut() {
		_ = to.Close()
	}
}

// valve is the end of a pipe that may be shut.
type valve struct {
	proxy *Proxy
	net.Conn
	shuts swallowing // from what on
}

func (v valve) shut() bool {
	v.proxy.mu.Lock()
	defer v.proxy.mu.Unlock()
	return v.proxy.swallowing >= v.shuts
}

func (v valve) Write(b []byte) (int, error) {
	if v.shuts == everything { // it leads to the server
		v.proxy.hear(b)
	}
	if !v.shut() {
		return v.Conn.Write(b)
	}
	select {
	case v.proxy.swallowed <- struct{}{}:
	default:
	}
	return len(b), nil
}

// ReadFrom keeps io.Copy from going around Write.
func (v valve) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{v}, r)
}
