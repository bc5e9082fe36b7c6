package redis_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers/brokertest"
	"github.com/waybill-go/waybill/sinks/brokers/internal/kindtest"
	"github.com/waybill-go/waybill/sinks/brokers/redis"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// moving is a server whose address can move: connections that are open then refuse every XADD from now on.
type moving struct {
	sync.Mutex
	refusal string // of connections with a number up to old
	old     int
	opened  int
	closed  int
	all     *sync.Cond // signalled when a connection ends
	hold    chan struct{}
}

// dial returns a connection to the server inside the process.
func (m *moving) dial(context.Context, string, string) (net.Conn, error) {
	client, conn := net.Pipe()
	m.Lock()
	defer m.Unlock()
	m.opened++
	number := m.opened
	go func() {
		m.serve(conn, number)
		_ = conn.Close()
		m.Lock()
		defer m.Unlock()
		m.closed++
		m.all.Broadcast()
	}()
	return client, nil
}

func (m *moving) serve(conn net.Conn, number int) {
	for in := bufio.NewReader(conn); ; {
		command, err := readCommand(in)
		if err != nil {
			return
		}
		line := "-ERR unknown command"
		if strings.EqualFold(command[0], "xadd") {
			line = m.answer(number)
		}
		if _, err := io.WriteString(conn, line+"\r\n"); err != nil {
			return
		}
	}
}

func (m *moving) answer(number int) string {
	m.Lock()
	defer m.Unlock()
	if number <= m.old {
		return m.refusal
	}
	hold := m.hold
	m.Unlock()
	<-hold
	m.Lock()
	return "+1-0"
}

// warm makes deliveries at the same time, so that each opens a connection.
func (m *moving) warm(t *testing.T, sink sinks.Sink, n int) {
	t.Helper()
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(i))
			assert.NoError(t, err)
		})
	}
	require.Eventually(t, func() bool {
		m.Lock()
		defer m.Unlock()
		return m.opened >= n
	}, kindtest.Patience, time.Millisecond)
	close(m.hold)
	running.Wait()
}

func newMoving() *moving {
	m := &moving{hold: make(chan struct{})}
	m.all = sync.NewCond(m)
	return m
}

func TestAfterARefusalOfTheServerAllItsConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{
		"-READONLY You can't write against a read only replica.", "-LOADING Redis is loading the dataset in memory",
		"-MASTERDOWN Link with MASTER is down", "-NOAUTH Authentication required.", "-NOREPLICAS Not enough good replicas to write.",
		"-MOVED 3999 127.0.0.1:6381",
	} {
		t.Run(strings.Fields(refusal)[0], func(t *testing.T) {
			t.Parallel()
			m := newMoving()
			sink := kindtest.New(t, redis.Kind(), sinks.Instance{Dial: m.dial}, settings("redis://redis.example"))
			m.warm(t, sink, 16)
			m.Lock()
			m.refusal, m.old = refusal, m.opened
			m.Unlock()
			_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(100))
			require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
			for i := range 3 {
				_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(101+i))
				require.NoError(t, err)
			}
			m.Lock()
			defer m.Unlock()
			require.Equal(t, m.old+1, m.opened, "one new connection was enough")
			for m.closed < m.old { // the test's time limit ends a wait forever
				m.all.Wait()
			}
		})
	}
}

func TestARefusalOfAnEntryReplacesNoConnection(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{
		"-ERR The stream has exhausted the last possible ID", "-WRONGTYPE Operation against a key", "-NOPERM No permissions to access a key",
	} {
		m := newMoving()
		sink := kindtest.New(t, redis.Kind(), sinks.Instance{Dial: m.dial}, settings("redis://redis.example"))
		m.warm(t, sink, 1)
		m.Lock()
		m.refusal, m.old = refusal, m.opened
		m.Unlock()
		for i := range 3 {
			_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(i))
			require.Error(t, err)
		}
		require.Equal(t, 1, m.opened, refusal)
	}
}

func TestAConnectionIsUsedUpToItsLargestAge(t *testing.T) {
	t.Parallel()
	m := newMoving()
	close(m.hold)
	sink := kindtest.New(t, redis.Kind(), sinks.Instance{Dial: m.dial}, settings("redis://redis.example")+"\nmax_connection_age: 1ns")
	for i := range 3 {
		_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(i))
		require.NoError(t, err)
	}
	require.Equal(t, 3, m.opened)
}

// The address of the primary moves to another server, and the former primary becomes its replica.
func TestAFailoverByAddressCostsOneDelivery(t *testing.T) {
	former, next := brokertest.Start(t, brokertest.StartRedis), brokertest.Start(t, brokertest.StartRedis)
	from, err := url.Parse(former.URL)
	require.NoError(t, err)
	to, err := url.Parse(next.URL)
	require.NoError(t, err)
	var address atomic.Value
	address.Store(from.Host)
	sink := kindtest.New(t, redis.Kind(), sinks.Instance{Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address.Load().(string))
	}}, settings(former.URL))
	deliver := func(first int) (failures int) {
		errs := make([]error, 64)
		var running sync.WaitGroup
		for i := range errs {
			running.Go(func() { _, errs[i] = sink.Deliver(t.Context(), sinktest.NewDelivery(first+i)) })
		}
		running.Wait()
		if err := errors.Join(errs...); err != nil {
			require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
			require.ErrorContains(t, err, "READONLY")
		}
		for _, err := range errs {
			if err != nil {
				failures++
			}
		}
		return failures
	}
	require.Zero(t, deliver(0))
	require.NoError(t, broker{former.URL}.client(t).Do(t.Context(), "REPLICAOF", to.Hostname(), to.Port()).Err())
	address.Store(to.Host)
	_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(100))
	require.ErrorContains(t, err, "READONLY")
	require.Zero(t, deliver(200), "the next ones use new connections")
	require.Len(t, broker{next.URL}.entries(t), 64)
}
