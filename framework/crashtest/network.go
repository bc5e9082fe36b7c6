package crashtest

import (
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

// obeyTimeout bounds a change of a proxy. toxiproxy may wait for a connection whose other end does
// not read, such as a stopped process.
const obeyTimeout = 20 * time.Second

// network makes proxies.
type network struct{ server *toxiproxy.ApiServer }

func newNetwork() network {
	return network{toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())}
}

// link is a network link between a forwarder and the database or the sink.
type link struct{ proxy *toxiproxy.Proxy }

func (n network) open(name, to string) (*link, error) {
	for range portTries {
		from := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(lastPort-firstPort)))
		l := &link{toxiproxy.NewProxy(n.server, name, from, to)}
		if err := l.proxy.Start(); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("%w: no free port between %d and %d in %d tries", ErrNetwork, firstPort, lastPort, portTries)
}

func (l *link) address() string { return l.proxy.Listen }

// cut closes all connections and refuses new ones.
func (l *link) cut() error {
	return l.obey(func() error { l.proxy.Stop(); return nil })
}

// mend makes the proxy accept connections again.
func (l *link) mend() error {
	return l.obey(func() error {
		for end := time.Now().Add(obeyTimeout); ; time.Sleep(lookEvery) {
			err := l.proxy.Start()
			if err == nil || time.Now().After(end) {
				return err
			}
		}
	})
}

const (
	slow    = `{"name": "slow", "type": "latency", "stream": "downstream", "attributes": {"latency": 150, "jitter": 100}}`
	deaf    = `{"name": "deaf", "type": "timeout", "stream": "upstream", "attributes": {"timeout": 0}}`
	silence = `{"name": "silence", "type": "timeout", "stream": "downstream", "attributes": {"timeout": 0}}`
)

// poison adds toxics. heal removes them and closes connections that were silent, like a firewall that
// no longer knows them.
func (l *link) poison(toxics ...string) error {
	return l.obey(func() error {
		for _, toxic := range toxics {
			if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
				return err
			}
		}
		return nil
	})
}

// heal cuts the connections first, because toxiproxy cannot remove a toxic from a connection that no
// one reads.
func (l *link) heal() error {
	if err := l.cut(); err != nil {
		return err
	}
	err := l.obey(func() error {
		l.proxy.Toxics.ResetToxics(zerolog.Nop().WithContext(background))
		return nil
	})
	if err != nil {
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
		return fmt.Errorf("%w within %s", ErrNetwork, obeyTimeout)
	}
}
