package crashtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// The ports of proxies are below those that systems use for outgoing connections, because a proxy
// that was cut needs the same port again.
const (
	firstPort = 12000
	lastPort  = 20000
	portTries = 50
)

// obeyTimeout bounds a change of a proxy. toxiproxy waits without end for a connection whose other
// end does not read, such as one of a stopped process, or one that was closed at the wrong moment.
const obeyTimeout = 5 * time.Second

// errStuck means that a proxy waits for a connection.
var errStuck = fmt.Errorf("%w within %s", ErrNetwork, obeyTimeout)

// network makes proxies.
type network struct{ server *toxiproxy.ApiServer }

func newNetwork() network {
	return network{toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())}
}

// link is a network link between a forwarder and the database or the sink.
type link struct {
	address string
	open    func() *toxiproxy.Proxy // a new proxy, with that address
	proxy   *toxiproxy.Proxy
}

func (n network) open(name, to string) (*link, error) {
	for range portTries {
		from := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(lastPort-firstPort)))
		l := &link{address: from, open: func() *toxiproxy.Proxy { return toxiproxy.NewProxy(n.server, name, from, to) }}
		l.proxy = l.open()
		if err := l.proxy.Start(); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("%w: no free port between %d and %d in %d tries", ErrNetwork, firstPort, lastPort, portTries)
}

// cut closes all connections and refuses new ones.
func (l *link) cut() error {
	proxy := l.proxy
	return l.obey(func() error { proxy.Stop(); return nil })
}

// mend accepts connections again.
func (l *link) mend() error { return l.start() }

// start goes on with a new proxy, which has the toxics from its beginning. It needs the port of the one
// before: stop that first.
func (l *link) start(toxics ...string) error {
	proxy := l.open()
	l.proxy = proxy
	return l.obey(func() error {
		if err := add(proxy, toxics); err != nil {
			return err
		}
		for end := time.Now().Add(obeyTimeout); ; time.Sleep(lookEvery) {
			err := proxy.Start()
			if err == nil || time.Now().After(end) {
				return err
			}
		}
	})
}

func add(proxy *toxiproxy.Proxy, toxics []string) error {
	for _, toxic := range toxics {
		if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
			return err
		}
	}
	return nil
}

const (
	slow    = `{"name": "slow", "type": "latency", "stream": "downstream", "attributes": {"latency": 150, "jitter": 100}}`
	deaf    = `{"name": "deaf", "type": "timeout", "stream": "upstream", "attributes": {"timeout": 0}}`
	silence = `{"name": "silence", "type": "timeout", "stream": "downstream", "attributes": {"timeout": 0}}`
)

// poison adds toxics to all connections, or, if the proxy is stuck with one of them, to new ones only.
// heal closes the connections, like a firewall that no longer knows them: toxiproxy cannot remove a
// toxic from a connection that no one reads.
func (l *link) poison(toxics ...string) error {
	proxy := l.proxy
	err := l.obey(func() error { return add(proxy, toxics) })
	if !errors.Is(err, errStuck) {
		return err
	}
	go proxy.Stop() // it closes the port first, then waits
	return l.start(toxics...)
}

func (l *link) heal() error {
	if err := l.cut(); err != nil {
		return err
	}
	return l.mend()
}

// obey bounds the duration of a change.
func (l *link) obey(change func() error) error {
	done := make(chan error, 1)
	go func() { done <- change() }()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNetwork, err)
		}
		return nil
	case <-time.After(obeyTimeout):
		return errStuck
	}
}
