//go:build unix

package email_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	gomail "github.com/wneessen/go-mail"
	"golang.org/x/sync/errgroup"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/mailserver"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
)

// BenchmarkDeliver compares the sink with loops that send with go-mail's client. They take turns, with
// the same number of connections: to a server on this machine, and to one with a round trip of
// 20 ms. Both make each mail from the same parts; the sink renders it from templates.
//
// Ratios are the medians of the pairs. Above 1, the sink is faster or uses less processor time.
// Processor time is that of this process, including the server.
//
// Run: go test -run '^$' -bench Deliver -benchtime 100x ./sinks/email
func BenchmarkDeliver(b *testing.B) {
	server := startServer(b, smtptest.Config{CountOnly: true})
	for _, place := range []struct {
		name, address string
		mails         int // in a turn, for each connection
	}{
		{"near", server.Address(), 64}, {"far", farAway(b, server.Address(), 20*time.Millisecond), 4},
	} {
		for _, connections := range []int{1, 4, 16, 64} {
			b.Run(fmt.Sprintf("%s/%d", place.name, connections), func(b *testing.B) {
				mails := place.mails * connections
				loop, sink := newLoop(b, place.address, connections), newDelivering(b, place.address, connections)
				loop(mails) // opens the connections
				sink(mails)
				var processor, wall, loops, delivered []float64
				for i := 0; b.Loop(); i++ {
					var bare, own cost
					if i%2 == 0 {
						bare, own = measure(b, loop, mails), measure(b, sink, mails)
					} else {
						own, bare = measure(b, sink, mails), measure(b, loop, mails)
					}
					processor = append(processor, bare.processor.Seconds()/own.processor.Seconds())
					wall = append(wall, bare.time.Seconds()/own.time.Seconds())
					loops = append(loops, float64(mails)/bare.time.Seconds())
					delivered = append(delivered, float64(mails)/own.time.Seconds())
				}
				b.ReportMetric(median(loops), "loop-mails/s")
				b.ReportMetric(median(delivered), "sink-mails/s")
				b.ReportMetric(median(wall), "time-ratio")
				b.ReportMetric(median(processor), "processor-ratio")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// cost is the time of a turn.
type cost struct{ time, processor time.Duration }

func measure(b *testing.B, send func(mails int), mails int) cost {
	b.Helper()
	began, used := time.Now(), processorTime(b)
	send(mails)
	return cost{time.Since(began), processorTime(b) - used}
}

// processorTime is the processor time of this process.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// median returns the median of at least one value.
func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// farAway starts a proxy for address that delays each answer by roundTrip, and returns its address.
// As in a network, bytes do not wait for earlier ones to arrive.
func farAway(b *testing.B, address string, roundTrip time.Duration) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	type packet struct {
		due   time.Time
		bytes []byte
	}
	var group sync.WaitGroup
	carry := func(to, from net.Conn) {
		way := make(chan packet, 1024)
		group.Go(func() {
			defer func() { _ = to.Close() }()
			for p := range way {
				time.Sleep(time.Until(p.due)) // simulates the distance
				_, _ = to.Write(p.bytes)      // if it fails, reading fails too
			}
		})
		defer close(way)
		for {
			buffer := make([]byte, 16<<10)
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			way <- packet{time.Now().Add(roundTrip / 2), buffer[:n]}
		}
	}
	group.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", address)
			if err != nil {
				_ = near.Close()
				continue
			}
			group.Go(func() { carry(far, near) })
			group.Go(func() { carry(near, far) })
		}
	})
	b.Cleanup(func() { _ = listener.Close(); group.Wait() })
	return listener.Addr().String()
}

// share splits mails among connections.
func share(b *testing.B, connections int, send func(connection int) error) func(mails int) {
	return func(mails int) {
		var left atomic.Int64
		left.Store(int64(mails))
		var group errgroup.Group
		for i := range connections {
			group.Go(func() error {
				for left.Add(-1) >= 0 {
					if err := send(i); err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(b, group.Wait())
	}
}

// newLoop sends with go-mail.
func newLoop(b *testing.B, address string, connections int) func(mails int) {
	var port int
	_, err := fmt.Sscanf(address, "127.0.0.1:%d", &port)
	require.NoError(b, err)
	clients := make([]*gomail.Client, connections)
	for i := range clients {
		clients[i], err = gomail.NewClient("127.0.0.1", gomail.WithPort(port), gomail.WithTLSPolicy(gomail.NoTLS))
		require.NoError(b, err)
		require.NoError(b, clients[i].DialWithContext(context.Background()))
		b.Cleanup(func() { _ = clients[i].Close() })
	}
	return share(b, connections, func(connection int) error {
		m := gomail.NewMsg()
		if err := m.From("Shöp <shop@example.com>"); err != nil {
			return err
		}
		if err := m.To("Jane <jane@example.org>"); err != nil {
			return err
		}
		m.Subject("Willkommen, Jané — schön!")
		m.SetBodyString(gomail.TypeTextPlain, "Hallo Jané,\n\nKundennummer 9007199254740993.\n")
		m.AddAlternativeString(gomail.TypeTextHTML, "<p>Hallo <b>Jané</b>, Nr. 9007199254740993</p>\n")
		return clients[connection].Send(m)
	})
}

// newDelivering sends with the sink.
func newDelivering(b *testing.B, address string, connections int) func(mails int) {
	sink := newSink(b, email.Config{SMTP: "smtp://" + address, TLS: mailserver.TLSNone, Connections: connections})
	d := delivery(jane)
	return share(b, connections, func(int) error {
		_, err := sink.Deliver(context.Background(), d)
		return err
	})
}
