package crashtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// The ports of links are below those that systems use for outgoing connections, and other tests have others,
// because a link that was cut needs the same port again.
const (
	firstPort = 12000
	lastPort  = 15000
	portTries = 50
)

// lateness is the mean delay of a chunk of an answer on a slow link.
const lateness = 150 * time.Millisecond

// link is a network link between a forwarder and the database or the sink.
type link struct{ *postgrestest.Proxy }

// loopback returns a random address of this machine, so that no other run takes the port of a link while it is cut. Only
// Linux has more than one.
func loopback() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.%d.%d.%d", rand.IntN(256), rand.IntN(256), 1+rand.IntN(254))
}

// newLink returns a link to the server of a URL.
func newLink(url string) (*link, error) {
	for range portTries {
		proxy, err := postgrestest.NewProxy(fmt.Sprintf("%s:%d", loopback(), firstPort+rand.IntN(lastPort-firstPort)), url)
		if err == nil {
			return &link{proxy}, nil
		}
	}
	return nil, fmt.Errorf("no free port between %d and %d in %d tries", firstPort, lastPort, portTries)
}

func (l *link) cut() { _ = l.Close() }

func (l *link) slow() { l.Slow(lateness) }

// fail makes the link fail in some way for some time. Then it closes the connections, like a firewall
// that no longer knows them, and works again.
func (l *link) fail(ctx context.Context, how func(), length time.Duration) error {
	how()
	pace.Sleep(ctx, length)
	_ = l.Close()
	return l.Open()
}
