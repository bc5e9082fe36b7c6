package email_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	gomail "github.com/wneessen/go-mail"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
)

// BenchmarkDeliver compares the sink, which renders templates and makes its
// mails repeatable, with go-mail sending a ready mail in a loop over one
// connection: to a server on this machine, and to one that is 2 ms away there
// and back.
func BenchmarkDeliver(b *testing.B) {
	server := startServer(b, smtptest.Config{CountOnly: true})
	for _, place := range []struct{ name, address string }{
		{"near", server.Address()}, {"far", farAway(b, server.Address())},
	} {
		b.Run(place.name+"/gomail", func(b *testing.B) { benchmarkGoMail(b, place.address) })
		for _, connections := range []int{1, 4} {
			b.Run(fmt.Sprintf("%s/sink-%d", place.name, connections), func(b *testing.B) {
				benchmarkSink(b, place.address, connections)
			})
		}
	}
}

// farAway passes connections on to address, each packet a millisecond late, and
// returns where to connect to.
func farAway(b *testing.B, address string) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	var group sync.WaitGroup
	carry := func(to, from net.Conn) {
		defer func() { _ = to.Close() }()
		packet := make([]byte, 64<<10)
		for {
			n, err := from.Read(packet)
			if err != nil {
				return
			}
			time.Sleep(time.Millisecond) // the distance, not a wait for something
			if _, err := to.Write(packet[:n]); err != nil {
				return
			}
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

func benchmarkGoMail(b *testing.B, address string) {
	var port int
	_, err := fmt.Sscanf(address, "127.0.0.1:%d", &port)
	require.NoError(b, err)
	client, err := gomail.NewClient("127.0.0.1", gomail.WithPort(port), gomail.WithTLSPolicy(gomail.NoTLS))
	require.NoError(b, err)
	require.NoError(b, client.DialWithContext(context.Background()))
	b.ReportAllocs()
	for b.Loop() {
		m := gomail.NewMsg()
		require.NoError(b, m.From("Shöp <shop@example.com>"))
		require.NoError(b, m.To("Jane <jane@example.org>"))
		m.Subject("Willkommen, Jané — schön!")
		m.SetBodyString(gomail.TypeTextPlain, "Hallo Jané,\n\nKundennummer 9007199254740993.\n")
		m.AddAlternativeString(gomail.TypeTextHTML, "<p>Hallo <b>Jané</b>, Nr. 9007199254740993</p>\n")
		require.NoError(b, client.Send(m))
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "mails/s")
	require.NoError(b, client.Close())
}

func benchmarkSink(b *testing.B, address string, connections int) {
	sink := newSink(b, email.Config{SMTP: "smtp://" + address, TLS: email.TLSNone, Connections: connections})
	deliveries := make(chan *notification.Delivery)
	var group sync.WaitGroup
	for range connections {
		group.Go(func() {
			for d := range deliveries {
				if _, err := sink.Deliver(context.Background(), d); err != nil {
					b.Error(err)
				}
			}
		})
	}
	b.ReportAllocs()
	d := delivery(jane)
	for b.Loop() {
		deliveries <- d
	}
	close(deliveries)
	group.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "mails/s")
	require.NoError(b, sink.Close(context.Background()))
}
