package httpsink

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// eachProtocol calls test with a function that starts a receiver and makes a sink for it.
func eachProtocol(t *testing.T, test func(t *testing.T, start func(Config, http.HandlerFunc) (*receiver, *Sink))) {
	for name, configure := range map[string]func(*tls.Config){
		"HTTP/1.1":          nil,
		"HTTP/1.1 over TLS": func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} },
		"HTTP/2":            func(*tls.Config) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, func(c Config, answer http.HandlerFunc) (*receiver, *Sink) {
				if configure == nil {
					r := newReceiver(t, answer)
					return r, r.sink(t, c)
				}
				r, ca := newStrictReceiver(t, configure, answer)
				c.TLS.CAFile = ca
				return r, r.sink(t, c)
			})
		})
	}
}

// requireCount compares a count of connections or requests, in up to three tries with new receivers: net/http gives up
// an HTTP/1.1 connection if it learns over 50 ms after an answer that the request was written, as on a machine that stalls.
func requireCount(t *testing.T, want int64, count func() int64) {
	t.Helper()
	got := count()
	for tries := 1; got != want && tries < 3; tries++ {
		got = count()
	}
	require.Equal(t, want, got)
}

// firstConnection answers with a status on the first connection forever, and with 200 on others.
func firstConnection(status *atomic.Int64) http.HandlerFunc {
	var first atomic.Pointer[string]
	return func(w http.ResponseWriter, r *http.Request) {
		first.CompareAndSwap(nil, &r.RemoteAddr)
		if r.RemoteAddr == *first.Load() {
			w.WriteHeader(int(status.Load()))
		}
	}
}

func TestAConnectionThatRefusesIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, start func(Config, http.HandlerFunc) (*receiver, *Sink)) {
		refusals := []int{404, 421, 500}
		if !strings.Contains(t.Name(), "TLS") && !strings.Contains(t.Name(), "HTTP/2") { // handshakes take long
			refusals = append(refusals, 301, 401, 408, 409, 429, 502, 503)
		}
		for _, refusal := range refusals {
			requireCount(t, 2, func() int64 {
				var status atomic.Int64
				status.Store(200)
				r, sink := start(Config{}, firstConnection(&status))
				_, err := sink.Deliver(t.Context(), newDelivery())
				require.NoError(t, err)
				status.Store(int64(refusal))
				if _, err = sink.Deliver(t.Context(), newDelivery()); err == nil {
					return 0 // it had another connection
				}
				for range 3 {
					_, err = sink.Deliver(t.Context(), newDelivery())
					require.NoError(t, err, refusal)
				}
				return r.connections.Load()
			})
		}
	})
}

func TestARefusalOfTheNotificationKeepsTheConnection(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, start func(Config, http.HandlerFunc) (*receiver, *Sink)) {
		requireCount(t, 1, func() int64 {
			r, sink := start(Config{}, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnprocessableEntity) })
			for range 5 {
				_, err := sink.Deliver(t.Context(), newDelivery())
				requireClass(t, sinks.ClassPermanent, err)
			}
			return r.connections.Load()
		})
	})
}

// A name that moved is resolved again with the next connection. The old server may go on to answer.
func TestAnOldConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, start func(Config, http.HandlerFunc) (*receiver, *Sink)) {
		r, sink := start(Config{}, func(http.ResponseWriter, *http.Request) {})
		ownOf(sink).maxAge = time.Nanosecond
		for range 3 {
			_, err := sink.Deliver(t.Context(), newDelivery())
			require.NoError(t, err)
		}
		assert.Equal(t, int64(3), r.connections.Load())
		assert.Eventually(t, func() bool { return ownOf(sink).dialer.openNow() <= 1 }, time.Minute, time.Millisecond, "the old ones are closed")
	})
}

func TestARefusalDoesNotDisturbOtherRequestsOfItsConnection(t *testing.T) {
	t.Parallel()
	arrived, finish := make(chan struct{}), make(chan struct{})
	r, ca := newTLSReceiver(t, func(w http.ResponseWriter, req *http.Request) {
		switch req.Header.Get(webhook.HeaderKey) {
		case "slow":
			arrived <- struct{}{}
			<-finish
		case "refused":
			w.WriteHeader(503)
		}
	})
	sink := r.sink(t, Config{TLS: TLS{CAFile: ca}})
	deliver := func(key string) error {
		d := newDelivery()
		d.Key = key
		_, err := sink.Deliver(t.Context(), d)
		return err
	}
	require.NoError(t, deliver("first"))
	var slow errgroup.Group
	slow.Go(func() error { return deliver("slow") })
	<-arrived
	require.Error(t, deliver("refused"))
	require.NoError(t, deliver("next"))
	require.Equal(t, int64(2), r.connections.Load())
	close(finish)
	require.NoError(t, slow.Wait())
	require.Eventually(t, func() bool { return ownOf(sink).dialer.openNow() == 1 }, time.Minute, time.Millisecond,
		"the connection that refused is closed after its last request")
}

func TestOneConnectionReplacesAnHTTP2ConnectionHoweverManyWait(t *testing.T) {
	t.Parallel()
	r, ca := newTLSReceiver(t)
	sink := r.sink(t, Config{TLS: TLS{CAFile: ca}})
	deliverAll(t, sink, 1, 1)
	closeIdle(sink)
	deliverAll(t, sink, 200, 64)
	require.Equal(t, int64(2), r.connections.Load())
}

func TestAFailedConnectionFailsAllRequestsThatWaitForIt(t *testing.T) {
	t.Parallel()
	r, ca := newTLSReceiver(t)
	sink := r.sink(t, Config{TLS: TLS{CAFile: ca}})
	deliverAll(t, sink, 1, 1)
	r.Close()
	var workers errgroup.Group
	for range 32 {
		workers.Go(func() error {
			_, err := sink.Deliver(t.Context(), newDelivery())
			if sinktest.Class(err) != sinks.ClassUnavailable && sinktest.Class(err) != sinks.ClassTransient {
				return fmt.Errorf("unexpected: %w", err)
			}
			return nil
		})
	}
	require.NoError(t, workers.Wait())
	_, err := sink.Deliver(t.Context(), newDelivery())
	requireClass(t, sinks.ClassUnavailable, err)
	require.Empty(t, ownOf(sink).hosts)
}

// A receiver that a notification crashes loses all its connections.
func TestALostRequestIsRepeatedOnceHoweverManyConnectionsAreIdle(t *testing.T) {
	t.Parallel()
	requireCount(t, 8+2, func() int64 {
		var crash atomic.Bool
		together := new(sync.WaitGroup)
		together.Add(8)
		r := newReceiver(t, func(http.ResponseWriter, *http.Request) {
			if crash.Load() {
				panic(http.ErrAbortHandler)
			}
			together.Done()
			together.Wait()
		})
		sink := r.sink(t, Config{})
		deliverAll(t, sink, 8, 8)
		crash.Store(true)
		_, err := sink.Deliver(t.Context(), newDelivery())
		requireClass(t, sinks.ClassTransient, err)
		return int64(len(r.all()))
	})
}

func TestFewIdleConnectionsAreKept(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	sink := newSink(t, Config{URL: "http://{{.Metadata.host}}.partner.example", Proxy: r.URL, Guard: Guard{Mode: GuardOff}})
	p := ownOf(sink)
	for i := range 3 {
		_, err := sink.Deliver(t.Context(), hosted(fmt.Sprint("h", i)))
		require.NoError(t, err)
	}
	require.Equal(t, 3, p.idle)
	p.mu.Lock()
	p.idle += maxIdleConnections - 2 // as if there were more
	p.mu.Unlock()
	_, err := sink.Deliver(t.Context(), hosted("h0"))
	require.NoError(t, err)
	require.Len(t, p.hosts, 2)
	require.Equal(t, 2, p.dialer.openNow())

	for _, h := range p.hosts {
		h.free[0].idleSince = time.Time{}
		_, err := sink.Deliver(t.Context(), hosted(h.origin[len("http://"):len("http://h0")]))
		require.NoError(t, err)
	}
}

// goingAway is an HTTP/2 server that processes some requests on each connection. Then it says that it
// does not process those that have come meanwhile, as nginx does (keepalive_requests).
type goingAway struct {
	perConnection int32 // atomic
	processed     atomic.Int64
	refused       atomic.Int64
	refuse        bool // by RST_STREAM, instead of GOAWAY
}

func (g *goingAway) start(t *testing.T) (url, caFile string) {
	secure, ca := newTLSReceiver(t)
	config := secure.TLS.Clone()
	config.NextProtos = []string{"h2"}
	return "https://" + servertest.Serve(t, func(conn net.Conn) { g.serve(tls.Server(conn, config)) }), ca
}

func (g *goingAway) serve(conn net.Conn) {
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	f := http2.NewFramer(conn, conn)
	_ = f.WriteSettings()
	taken, last := int32(0), uint32(0)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			_ = f.WritePing(true, frame.Data)
		case *http2.HeadersFrame:
			if taken++; taken <= atomic.LoadInt32(&g.perConnection) {
				last = frame.StreamID
				continue
			}
			g.refused.Add(1)
			if g.refuse {
				_ = f.WriteRSTStream(frame.StreamID, http2.ErrCodeRefusedStream)
			}
			if taken == atomic.LoadInt32(&g.perConnection)+1 {
				_ = f.WriteGoAway(last, http2.ErrCodeNo, nil)
			}
		case *http2.DataFrame:
			if frame.StreamEnded() && frame.StreamID <= last {
				g.processed.Add(1)
				_ = f.WriteHeaders(http2.HeadersFrameParam{
					StreamID: frame.StreamID, BlockFragment: []byte{0x88}, EndHeaders: true, EndStream: true, // ":status: 200"
				})
			}
		}
	}
}

func TestARequestThatTheServerDidNotProcessSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]bool{"GOAWAY": false, "REFUSED_STREAM": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const deliveries = 100
			server := &goingAway{perConnection: 7, refuse: refuse}
			url, ca := server.start(t)
			sink := newSink(t, Config{URL: url, TLS: TLS{CAFile: ca}, Timeout: time.Minute})
			var workers errgroup.Group
			workers.SetLimit(32)
			for range deliveries {
				workers.Go(func() error {
					_, err := sink.Deliver(context.Background(), newDelivery())
					return err
				})
			}
			require.NoError(t, workers.Wait())
			assert.Equal(t, int64(deliveries), server.processed.Load(), "no request was processed twice")
			assert.NotZero(t, server.refused.Load())
		})
	}
}

func TestAServerThatProcessesNothingIsNotAskedForEver(t *testing.T) {
	t.Parallel()
	server := &goingAway{perConnection: 1}
	url, ca := server.start(t)
	sink := newSink(t, Config{URL: url, TLS: TLS{CAFile: ca}})
	_, err := sink.Deliver(t.Context(), newDelivery())
	require.NoError(t, err)
	atomic.StoreInt32(&server.perConnection, 0)
	sink.client.timeout = 300 * time.Millisecond
	_, err = sink.Deliver(t.Context(), newDelivery())
	require.Error(t, err)
	assert.LessOrEqual(t, server.refused.Load(), int64(10))
}
