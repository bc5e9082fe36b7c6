package postgrestest

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Proxy is a network between a client and a server that can fail. It forwards until it must
// swallow. Then it reads from its connections and sends nothing, like a network that lost one side:
// neither side notices that the other has closed.
type Proxy struct {
	dsn       *url.URL
	swallowed chan struct{}

	mu         sync.Mutex
	listener   net.Listener // nil after Close
	target     string
	late       time.Duration // mean delay of a chunk of an answer
	swallowing swallowing
	awaited    []byte     // text from a client at which then begins; nil: none
	then       swallowing // begins at awaited
	ends       []net.Conn
	pumps      sync.WaitGroup
}

// swallowing is what a proxy drops.
type swallowing int

const (
	nothing swallowing = iota
	answers
	everything
)

// StartProxy starts a proxy in front of the server of a URL. It ends with the test.
func StartProxy(t testing.TB, dsn string) *Proxy {
	t.Helper()
	p, err := NewProxy("127.0.0.1:0", dsn)
	if err != nil {
		t.Fatalf("postgrestest: %v", err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// NewProxy is StartProxy with an address to listen at and a URL of any kind. Close the proxy in the end.
func NewProxy(address, dsn string) (*Proxy, error) {
	server, err := url.Parse(dsn)
	if err != nil {
		return nil, err
	}
	through := *server
	through.Host = address
	p := &Proxy{dsn: &through, target: server.Host, swallowed: make(chan struct{}, 1)}
	if err := p.Open(); err != nil {
		return nil, err
	}
	through.Host = p.listener.Addr().String()
	return p, nil
}

// Open makes the proxy work again after Close, at the same address.
func (p *Proxy) Open() error {
	listener, err := net.Listen("tcp", p.dsn.Host)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener, p.swallowing, p.awaited, p.late = listener, nothing, nil, 0
	p.pumps.Go(func() { p.run(listener) })
	return nil
}

// DSN returns the URL for connecting through the proxy.
func (p *Proxy) DSN() string { return p.dsn.String() }

// Address returns the host and port at which the proxy listens.
func (p *Proxy) Address() string { return p.dsn.Host }

// Swallow drops everything, on present and new connections.
func (p *Proxy) Swallow() { p.set(everything) }

// SwallowAnswers drops everything that servers send, and forwards what clients send.
func (p *Proxy) SwallowAnswers() { p.set(answers) }

// SwallowAt is Swallow, beginning with the next occurrence of a text in what a client sends, such as
// COMMIT. That text is dropped too.
func (p *Proxy) SwallowAt(text string) { p.await(text, everything) }

// SwallowAnswersAt is SwallowAnswers, beginning with the next occurrence of a text in what a client
// sends. The answer to that text is the first to be dropped.
func (p *Proxy) SwallowAnswersAt(text string) { p.await(text, answers) }

func (p *Proxy) await(text string, then swallowing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awaited, p.then = []byte(text), then
}

// inspect begins the awaited swallowing if a client sent the text.
func (p *Proxy) inspect(sent []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.awaited != nil && bytes.Contains(sent, p.awaited) {
		p.swallowing, p.awaited = p.then, nil
	}
}

// Slow delays what servers send: each chunk by late on average, and by up to two thirds more or less.
func (p *Proxy) Slow(late time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = late
}

func (p *Proxy) delay() {
	p.mu.Lock()
	late := p.late
	p.mu.Unlock()
	time.Sleep(late/3 + rand.N(late*4/3+1))
}

// Forward makes the proxy forward again. What it dropped stays lost, so connections of that time
// are useless.
func (p *Proxy) Forward() { p.set(nothing) }

func (p *Proxy) set(what swallowing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallowing = what
}

// Swallowed receives a value when the proxy drops something. It keeps at most one.
func (p *Proxy) Swallowed() <-chan struct{} { return p.swallowed }

// Retarget connects new connections to the server of another URL, like an address that moves in a
// failover. Existing connections stay where they are.
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

// Sever closes the present connections, which both sides notice.
func (p *Proxy) Sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, end := range p.ends {
		_ = end.Close()
	}
	p.ends = nil
}

// Close ends all connections, refuses new ones and waits for its goroutines. It may be called again.
func (p *Proxy) Close() (err error) {
	p.mu.Lock()
	listener := p.listener
	p.listener = nil
	p.mu.Unlock()
	if listener != nil {
		err = listener.Close()
	}
	p.Sever()
	p.pumps.Wait()
	return err
}

func (p *Proxy) run(listener net.Listener) {
	for {
		near, err := listener.Accept()
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
		p.connect(near, far)
	}
}

func (p *Proxy) connect(near, far net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		_ = near.Close()
		_ = far.Close()
		return
	}
	p.ends = append(p.ends, near, far)
	p.pumps.Go(func() { p.pump(valve{p, far, everything}, near) })
	p.pumps.Go(func() { p.pump(valve{p, near, answers}, far) })
}

func (p *Proxy) pump(to valve, from net.Conn) {
	defer from.Close()
	_, _ = io.Copy(to, from)
	if !to.shut() {
		_ = to.Close()
	}
}

// valve is an end of a connection that can be shut.
type valve struct {
	proxy *Proxy
	net.Conn
	shuts swallowing // the smallest value that shuts it
}

func (v valve) shut() bool {
	v.proxy.mu.Lock()
	defer v.proxy.mu.Unlock()
	return v.proxy.swallowing >= v.shuts
}

func (v valve) Write(b []byte) (int, error) {
	if v.shuts == everything { // this end leads to the server
		v.proxy.inspect(b)
	}
	if !v.shut() {
		if v.shuts == answers {
			v.proxy.delay()
		}
		return v.Conn.Write(b)
	}
	select {
	case v.proxy.swallowed <- struct{}{}:
	default:
	}
	return len(b), nil
}

// ReadFrom prevents io.Copy from bypassing Write.
func (v valve) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{v}, r)
}
