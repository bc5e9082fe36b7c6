package rabbitmq_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers/internal/kindtest"
	"github.com/waybill-go/waybill/sinks/brokers/rabbitmq"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// stuck is the routing key of messages whose confirmations a deaf connection drops.
const stuck = "stuck"

// deaf is a connection to a broker that drops confirmations, as if one queue were stuck, such as a
// quorum queue without a majority.
type deaf struct {
	net.Conn
	broker *bufio.Reader
	closed atomic.Bool

	mu       sync.Mutex
	sent     bytes.Buffer
	greeted  bool
	channels map[uint16]bool // the channels whose last message went to the stuck queue
	frame    bytes.Buffer    // a frame of the broker that the client still has to read
}

// nextFrame returns the first AMQP frame in b: type, channel, size, payload, end.
func nextFrame(b []byte) (frame []byte, ok bool) {
	if len(b) < 7 {
		return nil, false
	}
	size := 7 + int(binary.BigEndian.Uint32(b[3:])) + 1
	return b[:min(size, len(b))], len(b) >= size
}

// method returns the class and the method of a method frame.
func method(frame []byte) [2]uint16 {
	if frame[0] != 1 {
		return [2]uint16{}
	}
	return [2]uint16{binary.BigEndian.Uint16(frame[7:]), binary.BigEndian.Uint16(frame[9:])}
}

func channelOf(frame []byte) uint16 { return binary.BigEndian.Uint16(frame[1:]) }

func (d *deaf) Write(p []byte) (int, error) {
	d.mu.Lock()
	d.sent.Write(p)
	if !d.greeted && d.sent.Len() >= 8 {
		d.greeted = true
		d.sent.Next(8)
	}
	for d.greeted {
		frame, ok := nextFrame(d.sent.Bytes())
		if !ok {
			break
		}
		if method(frame) == [2]uint16{60, 40} { // basic.publish: reserved, exchange, routing key
			names := frame[13:]
			key := names[1+names[0]:]
			d.channels[channelOf(frame)] = string(key[1:1+key[0]]) == stuck
		}
		d.sent.Next(len(frame))
	}
	d.mu.Unlock()
	return d.Conn.Write(p)
}

func (d *deaf) Read(p []byte) (int, error) {
	for d.frame.Len() == 0 {
		head, err := d.broker.Peek(7)
		if err != nil {
			return 0, err
		}
		frame := make([]byte, 8+binary.BigEndian.Uint32(head[3:]))
		if _, err := io.ReadFull(d.broker, frame); err != nil {
			return 0, err
		}
		d.mu.Lock()
		dropped := method(frame) == [2]uint16{60, 80} && d.channels[channelOf(frame)] // basic.ack
		d.mu.Unlock()
		if !dropped {
			d.frame.Write(frame)
		}
	}
	return d.frame.Read(p)
}

func (d *deaf) Close() error {
	d.closed.Store(true)
	return d.Conn.Close()
}

// deafness dials deaf connections.
type deafness struct {
	mu   sync.Mutex
	made []*deaf
}

func (all *deafness) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d := &deaf{Conn: conn, broker: bufio.NewReader(conn), channels: make(map[uint16]bool)}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.made = append(all.made, d)
	return d, nil
}

// open returns the number of open connections.
func (all *deafness) open() (count int) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, d := range all.made {
		if !d.closed.Load() {
			count++
		}
	}
	return count
}

func (b broker) deafSink(t *testing.T, settings string) (*deafness, func(key string) error) {
	t.Helper()
	b.on(t, func(c *amqp.Channel) {
		for _, name := range []string{"good", stuck} {
			_, err := c.QueueDeclare(name, true, false, false, false, nil)
			require.NoError(t, err)
		}
	})
	all := new(deafness)
	sink := kindtest.New(t, rabbitmq.Kind(), sinks.Instance{Dial: all.dial}, "url: "+b.url+"\ntopic: '{{.Key}}'\n"+settings)
	return all, func(key string) error {
		d := sinktest.NewDelivery(1)
		d.Key = key
		_, err := sink.Deliver(t.Context(), d)
		return err
	}
}

// testStuckQueue has a timeout that a good delivery does not reach, even if the machine stalls.
func (b broker) testStuckQueue(t *testing.T) {
	t.Parallel()
	all, deliver := b.deafSink(t, "timeout: 20s")
	require.NoError(t, deliver("good"))
	var (
		running sync.WaitGroup
		done    atomic.Bool
		good    atomic.Int64
	)
	for range 8 {
		running.Go(func() {
			for !done.Load() {
				if err := deliver("good"); err != nil {
					t.Errorf("a message for another queue: %v", err)
					return
				}
				good.Add(1)
				time.Sleep(time.Millisecond)
			}
		})
	}
	begun, before := time.Now(), good.Load()
	err := deliver(stuck)
	require.ErrorIs(t, err, rabbitmq.ErrNoAnswer)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	require.Less(t, time.Since(begun), time.Minute)
	require.LessOrEqual(t, all.open(), 1, "the connection of an overdue message is closed when its delivery has failed")
	require.Greater(t, good.Load(), before)
	require.NoError(t, deliver("good"))
	done.Store(true)
	running.Wait()
	require.Len(t, all.made, 2)
}

// testGrace has another unconfirmed message that is not overdue yet.
func (b broker) testGrace(t *testing.T) {
	t.Parallel()
	all, deliver := b.deafSink(t, "timeout: 10s")
	const (
		least = 11 * time.Second // the timeout, and a second for the other message
		most  = 15 * time.Second // the other message's own timeout
	)
	var took time.Duration
	for range 3 { // a machine that stalls may spoil the times of a round
		require.NoError(t, deliver("good"))
		begun := time.Now()
		later := make(chan error, 1)
		time.AfterFunc(5*time.Second, func() { later <- deliver(stuck) })
		require.ErrorIs(t, deliver(stuck), rabbitmq.ErrNoAnswer)
		took = time.Since(begun)
		err := <-later
		require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
		require.Zero(t, all.open())
		if least <= took && took < most {
			break
		}
	}
	require.GreaterOrEqual(t, took, least)
	require.Less(t, took, most)
	require.NoError(t, deliver("good"))
}

func (b broker) testCopies(t *testing.T) {
	b.queue(t, "copies", nil)
	d := sinktest.NewDelivery(1)
	for _, name := range []string{"CC", "BCC", "cc", "metadata-CC", "_watermill_message_uuid", "ccc"} {
		d.Metadata[name] = "audit " + name
	}
	_, err := b.sink(t, "exchange: shop").Deliver(t.Context(), d)
	require.NoError(t, err)
	b.on(t, func(c *amqp.Channel) {
		m, ok, err := c.Get("copies", true)
		require.NoError(t, err)
		require.True(t, ok)
		for name, want := range map[string]string{
			"metadata-CC": "audit CC", "metadata-BCC": "audit BCC", "metadata-cc": "audit cc", "metadata-metadata-CC": "audit metadata-CC",
			"metadata-_watermill_message_uuid": "audit _watermill_message_uuid", "_watermill_message_uuid": d.ID, "ccc": "audit ccc",
		} {
			require.Equal(t, want, m.Headers[name], name)
		}
		require.NotContains(t, m.Headers, "CC")
	})
}
