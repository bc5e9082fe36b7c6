//go:build unix

package email_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	gomail "github.com/wneessen/go-mail"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/mailserver"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/internal/turns"
)

// BenchmarkDeliver compares the sink with loops that send with go-mail's client, with the same number
// of connections: to a server on this machine, and to one with a round trip of 20 ms. Both make
// each mail from the same parts; the sink renders it from templates.
//
// Run: go test -run '^$' -bench Deliver -benchtime 90x ./sinks/email
func BenchmarkDeliver(b *testing.B) {
	server := startServer(b, smtptest.Config{CountOnly: true})
	for _, place := range []struct {
		name, address string
		mails         int // for each of b.N and each connection
	}{
		{"near", server.Address(), 64}, {"far", farAway(b, server.Address(), 20*time.Millisecond), 4},
	} {
		for _, connections := range []int{1, 4, 16, 64} {
			b.Run(fmt.Sprintf("%s/%d", place.name, connections), func(b *testing.B) {
				turns.Compare(b, place.mails*connections,
					turns.Contender{Name: "loop", Do: turns.Split(b, connections, newLoop(b, place.address, connections))},
					turns.Contender{Name: "sink", Do: turns.Split(b, connections, newDelivering(b, place.address, connections))},
				)
			})
		}
	}
}

// farAway starts a proxy for address that delays each answer by roundTrip, and returns its address.
// As in a network, bytes do not wait for earlier ones to arrive.
func farAway(b *testing.B, address string, roundTrip time.Duration) string {
	type packet struct {
		due   time.Time
		bytes []byte
	}
	carry := func(to, from net.Conn) {
		way := make(chan packet, 1024)
		go func() {
			defer func() { _ = to.Close() }()
			for p := range way {
				time.Sleep(time.Until(p.due)) // simulates the distance
				_, _ = to.Write(p.bytes)      // if it fails, reading fails too
			}
		}()
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
	return servertest.Serve(b, func(near net.Conn) {
		far, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		go carry(far, near)
		carry(near, far)
	})
}

// newLoop sends with go-mail.
func newLoop(b *testing.B, address string, connections int) func(connection int) error {
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
	return func(connection int) error {
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
	}
}

// newDelivering sends with the sink.
func newDelivering(b *testing.B, address string, connections int) func(connection int) error {
	sink := newSink(b, email.Config{SMTP: "smtp://" + address, TLS: mailserver.TLSNone, Connections: connections})
	d := delivery(jane)
	return func(int) error {
		_, err := sink.Deliver(context.Background(), d)
		return err
	}
}
