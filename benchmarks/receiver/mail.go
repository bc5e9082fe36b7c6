package receiver

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/sinks/email/smtptest"
)

// mailDomain is the domain of all recipients.
const mailDomain = "@customers.example"

// MailAddress returns the recipient of an order's mail, by which the server recognizes the order.
func MailAddress(id string) string { return id + mailDomain }

// mailServer is an SMTP server.
type mailServer struct {
	*Tally
	to   Destination
	smtp *smtptest.Server
}

func newMailServer(c Config) (*mailServer, error) {
	s := &mailServer{Tally: NewTally(c.Capacity)}
	var err error
	s.smtp, err = smtptest.Start(smtptest.Config{CountOnly: true, OnMessage: func(_ context.Context, m smtptest.Message) error {
		if c.Delay > 0 {
			time.Sleep(c.Delay)
		}
		for _, to := range m.To {
			id, found := strings.CutSuffix(to, mailDomain)
			number, err := strconv.Atoi(id)
			s.note(number, found && err == nil && number >= 0)
		}
		return nil
	}})
	if err != nil {
		return nil, err
	}
	s.to = Destination{Kind: Mail, InFlight: c.InFlight, Orders: c.Orders, SMTP: s.smtp.Address()}
	return s, nil
}

func (s *mailServer) Destination() Destination                 { return s.to }
func (s *mailServer) Arrived() int                             { return int(s.distinct.n.Load()) }
func (s *mailServer) Expect(count int) <-chan struct{}         { return s.distinct.expect(count) }
func (s *mailServer) Verdict(context.Context) (Verdict, error) { return s.Tally.Verdict(), nil }
func (s *mailServer) Close() error                             { return s.smtp.Close() }
