package nats_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers/internal/kindtest"
	"github.com/waybill-go/waybill/sinks/brokers/nats"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// Answers of a stream, without the reply's subject.
const (
	ack          = `{"stream":"SHOP","seq":1}`
	unavailable  = `{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}`
	noResponders = "NATS/1.0 503\r\n\r\n"
	silence      = ""
	violation    = "-ERR 'Permissions Violation for Publish to \"hunter22\"'\r\n"
)

// cluster has a server inside the process for each connection.
type cluster struct {
	// answer returns the answer of the n-th connection, counted from 1, to a message. It may block.
	answer func(n int, subject string) string

	deaf chan struct{} // closed when the servers end that read nothing after a message for shop.unread

	opened, closed atomic.Int64
}

func (c *cluster) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	n := int(c.opened.Add(1))
	go func() {
		defer c.closed.Add(1)
		defer ours.Close()
		c.serve(ours, n)
	}()
	return theirs, nil
}

// serve speaks the protocol of NATS, as far as the sink needs it.
func (c *cluster) serve(conn net.Conn, n int) {
	var (
		writing sync.Mutex
		inbox   string // number of the client's subscription for answers
	)
	write := func(format string, a ...any) {
		writing.Lock()
		defer writing.Unlock()
		_, _ = fmt.Fprintf(conn, format, a...)
	}
	write("INFO {\"server_id\":\"%d\",\"proto\":1,\"headers\":true,\"max_payload\":1048576}\r\n", n)
	for in := bufio.NewReader(conn); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Fields(line)
		switch words[0] {
		case "PING":
			write("PONG\r\n")
		case "SUB":
			inbox = words[len(words)-1]
		case "HPUB": // subject, reply, bytes of headers, bytes of all
			var size int
			_, _ = fmt.Sscan(words[4], &size)
			if _, err := io.CopyN(io.Discard, in, int64(size)+2); err != nil {
				return
			}
			if words[1] == "shop.unread" {
				<-c.deaf
				return
			}
			go func() {
				switch answer := c.answer(n, words[1]); answer {
				case silence:
				case violation:
					write("%s", answer)
				case noResponders:
					write("HMSG %s %s %d %d\r\n%s\r\n", words[2], inbox, len(answer), len(answer), answer)
				default:
					write("MSG %s %s %d\r\n%s\r\n", words[2], inbox, len(answer), answer)
				}
			}()
		}
	}
}

func (c *cluster) sink(t *testing.T, settings string) sinks.Sink {
	t.Helper()
	return kindtest.New(t, nats.Kind(), sinks.Instance{Dial: c.dial}, "servers: ['nats://nats.example']\ntopic: 'shop.{{.Key}}'\n"+settings)
}

func deliver(t *testing.T, sink sinks.Sink, key string) error {
	t.Helper()
	d := sinktest.NewDelivery(1)
	d.Key = key
	_, err := sink.Deliver(t.Context(), d)
	return err
}

// timeoutFor returns a timeout that only silence reaches.
func timeoutFor(answer string) string {
	if answer == silence {
		return "10s"
	}
	return "1m"
}

func TestAServerThatCannotBeUsedIsLeft(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{"503 of JetStream": unavailable, "no responders": noResponders, "silence": silence} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var broken atomic.Bool
			c := &cluster{}
			c.answer = func(n int, _ string) string {
				if n == 1 && broken.Load() {
					return answer
				}
				return ack
			}
			sink := c.sink(t, "timeout: "+timeoutFor(answer))
			require.NoError(t, deliver(t, sink, "one"))
			broken.Store(true)
			err := deliver(t, sink, "one")
			require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
			for range 3 {
				require.NoError(t, deliver(t, sink, "one"))
			}
			require.EqualValues(t, 2, c.opened.Load(), "one new connection was enough")
			require.Eventually(t, func() bool { return c.closed.Load() == 1 }, kindtest.Patience, time.Millisecond)
		})
	}
}

func TestAServerThatFailsFromTheStartIsLeft(t *testing.T) {
	t.Parallel()
	c := &cluster{answer: func(n int, _ string) string {
		if n < 3 {
			return unavailable
		}
		return ack
	}}
	sink := c.sink(t, "")
	require.ErrorContains(t, deliver(t, sink, "one"), "temporarily unavailable")
	require.ErrorContains(t, deliver(t, sink, "two"), "temporarily unavailable")
	require.NoError(t, deliver(t, sink, "three"))
}

func TestAFailureOfOneSubjectKeepsTheConnection(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"503 of JetStream": unavailable, "no responders": noResponders, "silence": silence,
		"a full stream": `{"error":{"code":429,"err_code":10167,"description":"too many requests"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failing := make(chan struct{}, 3)
			c := &cluster{answer: func(_ int, subject string) string {
				if subject != "shop.bad" {
					return ack
				}
				select {
				case failing <- struct{}{}:
				default:
				}
				return answer
			}}
			sink := c.sink(t, "timeout: "+timeoutFor(answer))
			require.NoError(t, deliver(t, sink, "good"))
			failed := make(chan error, 1)
			go func() { failed <- deliver(t, sink, "bad") }()
			<-failing
			require.NoError(t, deliver(t, sink, "good"))
			require.Error(t, <-failed)
			require.NoError(t, deliver(t, sink, "good"))
			require.EqualValues(t, 1, c.opened.Load())
		})
	}
}

func TestCallsOnARetiredConnectionEndUndisturbed(t *testing.T) {
	t.Parallel()
	hold, held := make(chan struct{}), make(chan struct{})
	c := &cluster{answer: func(n int, subject string) string {
		switch {
		case subject == "shop.slow":
			close(held)
			<-hold
		case n == 1:
			return unavailable
		}
		return ack
	}}
	sink := c.sink(t, "timeout: 1m")
	slow := make(chan error, 1)
	go func() { slow <- deliver(t, sink, "slow") }()
	<-held
	require.Error(t, deliver(t, sink, "one"))
	require.NoError(t, deliver(t, sink, "one"))
	require.Zero(t, c.closed.Load())
	close(hold)
	require.NoError(t, <-slow)
	require.Eventually(t, func() bool { return c.closed.Load() == 1 }, kindtest.Patience, time.Millisecond)
	require.EqualValues(t, 2, c.opened.Load())
}

func TestAConnectionIsUsedUpToItsLargestAge(t *testing.T) {
	t.Parallel()
	c := &cluster{answer: func(int, string) string { return ack }}
	sink := c.sink(t, "max_connection_age: 1ns")
	var running sync.WaitGroup
	errs := make(chan error, 16)
	for range cap(errs) {
		running.Go(func() { errs <- deliver(t, sink, "one") })
	}
	running.Wait()
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
	before := c.opened.Load()
	for range 3 {
		require.NoError(t, deliver(t, sink, "one"))
	}
	require.Equal(t, before+3, c.opened.Load())
}

func TestNoErrorRepeatsCredentials(t *testing.T) {
	t.Parallel()
	const secret = "hunter%32%32"
	for _, with := range []string{
		"servers: ['nats://waybill:" + secret + "@host']", "servers: ['nats://" + secret + "@host']",
		"servers: ['nats://host']\nuser: waybill\npassword: hunter22", "servers: ['nats://host']\ntoken: hunter22",
	} {
		c := &cluster{answer: func(int, string) string {
			return `{"error":{"code":503,"err_code":10008,"description":"hunter22 and nats://` + secret + `@host"}}`
		}}
		sink := kindtest.New(t, nats.Kind(), sinks.Instance{Dial: c.dial}, with+"\ntopic: shop")
		err := deliver(t, sink, "one")
		require.ErrorContains(t, err, "*** and nats://***@host")
		require.NotContains(t, err.Error(), "hunter")
		var refused *client.APIError
		require.ErrorAs(t, err, &refused)
	}
}

func TestTheLogHasNoCredentials(t *testing.T) {
	t.Parallel()
	read, write := io.Pipe()
	defer read.Close()
	c := &cluster{answer: func(int, string) string { return violation }}
	in := sinks.Instance{Dial: c.dial, Logger: slog.New(slog.NewTextHandler(write, nil))}
	sink := kindtest.New(t, nats.Kind(), in, "servers: ['nats://hunter22@host']\ntopic: shop\ntimeout: 2s")
	require.Error(t, deliver(t, sink, "one"))
	line, err := bufio.NewReader(read).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "***")
	require.NotContains(t, line, "hunter")
}

func TestAServerThatDoesNotReadIsLeft(t *testing.T) {
	t.Parallel()
	c := &cluster{answer: func(int, string) string { return ack }, deaf: make(chan struct{})}
	defer close(c.deaf)
	sink := c.sink(t, "timeout: 2s")
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			err := deliver(t, sink, "unread")
			assert.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
		})
	}
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(soon):
		t.Fatal("the deliveries take too long")
	}
	require.Eventually(t, func() bool { return deliver(t, sink, "good") == nil }, kindtest.Patience, time.Millisecond)
	require.Contains(t, []int64{2, 3}, c.opened.Load(), "a machine that stalls may cost a connection")
}
