package email_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/mailserver"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func refuse(code int) func(context.Context, string) error { return saying(code, "no\tthanks") }

func saying(code int, text string) func(context.Context, string) error {
	return func(context.Context, string) error { return smtptest.Reply(code, text) }
}

func messageSaying(code int, text string) func(context.Context, smtptest.Message) error {
	return func(context.Context, smtptest.Message) error { return smtptest.Reply(code, text) }
}

func TestTheServersReplyDeterminesTheClass(t *testing.T) {
	for _, c := range []struct {
		name  string
		at    smtptest.Config
		class sinks.Class
		step  mailserver.Step
		says  string
	}{
		{"4xx for the sender", smtptest.Config{OnFrom: refuse(451)}, sinks.ClassUnavailable, mailserver.StepFrom, "451"},
		{"5xx for the sender", smtptest.Config{OnFrom: refuse(554)}, sinks.ClassUnavailable, mailserver.StepFrom, "check from"},
		{"unknown sender", smtptest.Config{OnFrom: saying(550, "5.1.0 who")}, sinks.ClassUnavailable, mailserver.StepFrom, "check from"},
		{"authentication required", smtptest.Config{OnFrom: refuse(530)}, sinks.ClassUnavailable, mailserver.StepFrom, "check user and password"},
		{"421 for the sender", smtptest.Config{OnFrom: refuse(421)}, sinks.ClassUnavailable, mailserver.StepFrom, "421"},
		{"the sender's mailbox is full", smtptest.Config{OnFrom: saying(552, "5.2.2 full")}, sinks.ClassUnavailable, mailserver.StepFrom, "552"},
		{"too large, by the code", smtptest.Config{OnFrom: refuse(552)}, sinks.ClassInvalid, mailserver.StepFrom, "552"},
		{"too large, by the status", smtptest.Config{OnFrom: saying(550, "5.3.4 too big")}, sinks.ClassInvalid, mailserver.StepFrom, "5.3.4"},
		{"too large for the account", smtptest.Config{OnFrom: saying(552, "5.2.3 too big")}, sinks.ClassInvalid, mailserver.StepFrom, "5.2.3"},
		{"SMTPUTF8 that was not requested", smtptest.Config{OnFrom: saying(553, "5.6.7 no")}, sinks.ClassUnavailable, mailserver.StepFrom, "5.6.7"},
		{"4xx for the recipient", smtptest.Config{OnRecipient: refuse(450)}, sinks.ClassTransient, mailserver.StepTo, "<jane@example.org> refused: 450"},
		{"5xx for the recipient", smtptest.Config{OnRecipient: refuse(550)}, sinks.ClassPermanent, mailserver.StepTo, "no thanks"},
		{"no such recipient, by the status", smtptest.Config{OnRecipient: saying(550, "5.1.1 rejected")}, sinks.ClassInvalid, mailserver.StepTo, "5.1.1"},
		{"no such recipient, by the text", smtptest.Config{OnRecipient: saying(550, "No such user here")}, sinks.ClassInvalid, mailserver.StepTo, "No such user"},
		{"no such domain of the recipient", smtptest.Config{OnRecipient: saying(556, "5.1.10 null MX")}, sinks.ClassInvalid, mailserver.StepTo, "5.1.10"},
		{"the recipient is elsewhere", smtptest.Config{OnRecipient: refuse(551)}, sinks.ClassInvalid, mailserver.StepTo, "551"},
		{"the recipient's mailbox is full", smtptest.Config{OnRecipient: refuse(552)}, sinks.ClassInvalid, mailserver.StepTo, "552"},
		{"no such recipient, at the end", smtptest.Config{OnMessage: messageSaying(550, "5.1.1 no such user")}, sinks.ClassInvalid, mailserver.StepEnd, "5.1.1"},
		{"too large, at the end", smtptest.Config{OnMessage: messageSaying(552, "5.3.4 too large")}, sinks.ClassInvalid, mailserver.StepEnd, "5.3.4"},
		{"no relaying, by the text alone", smtptest.Config{OnRecipient: saying(550, "relay not permitted for this user")}, sinks.ClassPermanent, mailserver.StepTo, "relay"},
		{"no relaying, as qmail says it", smtptest.Config{OnRecipient: saying(553, "sorry, that domain isn't in my list of allowed rcpthosts")}, sinks.ClassPermanent, mailserver.StepTo, "rcpthosts"},
		{"421 for the recipient", smtptest.Config{OnRecipient: refuse(421)}, sinks.ClassUnavailable, mailserver.StepTo, "421"},
		{"commands out of order", smtptest.Config{OnRecipient: saying(503, "AUTH first")}, sinks.ClassUnavailable, mailserver.StepTo, "AUTH first"},
		{"the sender, refused late", smtptest.Config{OnRecipient: saying(550, "5.1.8 no such domain")}, sinks.ClassUnavailable, mailserver.StepTo, "check from"},
		{"the sender for now, refused late", smtptest.Config{OnRecipient: saying(450, "4.1.8 no such domain")}, sinks.ClassUnavailable, mailserver.StepTo, "check from"},
		{"the sender's null MX", smtptest.Config{OnRecipient: saying(550, "5.7.27 null MX")}, sinks.ClassUnavailable, mailserver.StepTo, "check from"},
		{"credentials, refused late", smtptest.Config{OnRecipient: saying(554, "5.7.8 bad credentials")}, sinks.ClassUnavailable, mailserver.StepTo, "check user and password"},
		{"no such tenant", smtptest.Config{OnRecipient: saying(550, "5.7.64 TenantAttribution; Relay Access Denied")}, sinks.ClassUnavailable, mailserver.StepTo, "5.7.64"},
		{"relaying denied, which may be for this recipient", smtptest.Config{OnRecipient: saying(554, "5.7.1 Relay access denied")}, sinks.ClassPermanent, mailserver.StepTo, "5.7.1"},
		{"4xx for the mail", smtptest.Config{OnMessage: refuseMessage(452)}, sinks.ClassTransient, mailserver.StepEnd, "452"},
		{"5xx for the mail", smtptest.Config{OnMessage: refuseMessage(554)}, sinks.ClassPermanent, mailserver.StepEnd, "554"},
		{"421 for the mail", smtptest.Config{OnMessage: refuseMessage(421)}, sinks.ClassUnavailable, mailserver.StepEnd, "421"},
		{"spam", smtptest.Config{OnMessage: messageSaying(550, "5.7.1 spam")}, sinks.ClassPermanent, mailserver.StepEnd, "5.7.1"},
		{"sender not allowed, refused at the end", smtptest.Config{OnMessage: messageSaying(550, "5.7.60 cannot send as this sender")}, sinks.ClassUnavailable, mailserver.StepEnd, "check from"},
		{"sender denied, refused at the end", smtptest.Config{OnMessage: messageSaying(554, "5.2.252 SendAsDenied")}, sinks.ClassUnavailable, mailserver.StepEnd, "check from"},
		{"daily limit of Gmail", smtptest.Config{OnMessage: messageSaying(550, "5.4.5 Daily user sending quota exceeded")}, sinks.ClassUnavailable, mailserver.StepEnd, "5.4.5"},
		{"daily limit of Office 365", smtptest.Config{OnMessage: messageSaying(550, "5.1.90 daily limit for message recipients")}, sinks.ClassUnavailable, mailserver.StepEnd, "5.1.90"},
		{"5xx for the client", smtptest.Config{OnHello: func(context.Context) error { return smtptest.Reply(554, "go away") }},
			sinks.ClassUnavailable, mailserver.StepConnect, "go away"},
		{"5xx for the user", smtptest.Config{Username: "shop", Password: "right", OnAuth: func(context.Context, string, string) error {
			return smtptest.Reply(550, "5.7.13 account disabled")
		}}, sinks.ClassUnavailable, mailserver.StepConnect, "5.7.13"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := startServer(t, c.at)
			sink := newSink(t, email.Config{SMTP: server.URL()})
			_, err := sink.Deliver(within(t), delivery(jane))
			assert.Equal(t, c.class, sinktest.Class(err), "%v", err)
			var failed *mailserver.ServerError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, c.step, failed.Step)
			assert.Equal(t, server.Address(), failed.Server)
			assert.ErrorContains(t, err, c.says)
			assert.NotContains(t, err.Error(), "\t")
			assert.Zero(t, server.Count())
		})
	}
}

func TestALimitOfTheServerThrottlesTheSink(t *testing.T) {
	for _, c := range []struct {
		name  string
		at    smtptest.Config
		pause time.Duration
	}{
		{"SES, rate", smtptest.Config{OnMessage: messageSaying(454, "Throttling failure: Maximum sending rate exceeded.")}, time.Second},
		{"SES, day", smtptest.Config{OnMessage: messageSaying(454, "Throttling failure: Daily message quota exceeded.")}, 10 * time.Minute},
		{"SES, connections", smtptest.Config{OnHello: func(context.Context) error {
			return smtptest.Reply(421, "Too many concurrent SMTP connections; please try again later.")
		}}, 5 * time.Second},
		{"Office 365, connections", smtptest.Config{OnMessage: messageSaying(432, "4.3.2 Concurrent connections limit exceeded. Visit https://aka.ms/concurrent_sending")}, 5 * time.Second},
		{"Office 365, threads", smtptest.Config{OnFrom: saying(432, "4.3.2 STOREDRV.ClientSubmit; sender thread limit exceeded")}, 5 * time.Second},
		{"Office 365, at AUTH", smtptest.Config{Username: "shop", Password: "right", OnAuth: func(context.Context, string, string) error {
			return smtptest.Reply(432, "4.3.2 Concurrent connections limit exceeded")
		}}, 5 * time.Second},
		{"Office 365, busy", smtptest.Config{OnRecipient: saying(451, "4.7.500 Server busy. Please try again later")}, time.Minute},
		{"Office 365, address", smtptest.Config{OnFrom: saying(451, "4.7.650 The mail server has been temporarily rate limited")}, time.Minute},
		{"Gmail, rate", smtptest.Config{OnMessage: messageSaying(421, "4.7.28 unusual rate of unsolicited mail")}, time.Minute},
		{"Gmail, busy", smtptest.Config{OnRecipient: saying(421, "4.4.5 Server busy, try again later.")}, time.Minute},
		{"Gmail, relay", smtptest.Config{OnRecipient: saying(450, "4.2.1 Peak SMTP relay limit exceeded for customer.")}, time.Minute},
		{"Postfix, connections", smtptest.Config{OnHello: func(context.Context) error {
			return smtptest.Reply(421, "4.7.0 mx.example.com Error: too many connections from 192.0.2.1")
		}}, 5 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := startServer(t, c.at)
			sink := newSink(t, email.Config{SMTP: server.URL()})
			before := time.Now()
			_, err := sink.Deliver(within(t), delivery(jane))
			class, until := sinks.Classify(err)
			require.Equal(t, sinks.ClassThrottled, class, "%v", err)
			assert.WithinRange(t, until, before.Add(c.pause), time.Now().Add(c.pause))
		})
	}
}

func TestALimitOfOneMailOrRecipientDoesNotThrottleTheSink(t *testing.T) {
	for name, at := range map[string]smtptest.Config{
		"Gmail, limit of a recipient": {OnRecipient: saying(450, "4.2.1 The user you are trying to contact is receiving mail too quickly.")},
		"too many recipients":         {OnRecipient: saying(452, "4.5.3 Too many recipients")},
		"limit of a recipient's host": {OnRecipient: saying(450, "4.3.2 recipient thread limit exceeded")},
		"relaying is not allowed now": {OnRecipient: saying(454, "4.7.1 Relay access denied")},
	} {
		server := startServer(t, at)
		_, err := newSink(t, email.Config{SMTP: server.URL()}).Deliver(within(t), delivery(jane))
		assert.Equal(t, sinks.ClassTransient, sinktest.Class(err), "%s: %v", name, err)
	}
}

func TestARefusalOfSMTPUTF8IsInvalidUnlessTheSenderNeedsIt(t *testing.T) {
	const beyondASCII = `{"name": "P", "email": "pelé@example.org", "number": 1}`
	for name, c := range map[string]struct {
		at            smtptest.Config
		from, payload string
		class         sinks.Class
	}{
		"refused for a recipient":                      {smtptest.Config{OnFrom: saying(553, "5.6.7 no")}, "shop@example.com", beyondASCII, sinks.ClassInvalid},
		"unknown parameter":                            {smtptest.Config{OnFrom: refuse(555)}, "shop@example.com", beyondASCII, sinks.ClassInvalid},
		"unknown parameter that the sink did not send": {smtptest.Config{OnFrom: refuse(555)}, "shop@example.com", jane, sinks.ClassUnavailable},
		"refused for the sender":                       {smtptest.Config{OnFrom: saying(553, "5.6.7 no")}, "süd@example.com", jane, sinks.ClassUnavailable},
		"not offered, for the sender":                  {smtptest.Config{ASCIIOnly: true}, "süd@example.com", jane, sinks.ClassUnavailable},
	} {
		server := startServer(t, c.at)
		sink := newSink(t, email.Config{SMTP: server.URL(), From: c.from})
		_, err := sink.Deliver(within(t), delivery(c.payload))
		assert.Equal(t, c.class, sinktest.Class(err), "%s: %v", name, err)
	}
}

func refuseMessage(code int) func(context.Context, smtptest.Message) error {
	return func(context.Context, smtptest.Message) error { return smtptest.Reply(code, "no thanks") }
}

func TestTheConnectionIsReusedAfterARefusal(t *testing.T) {
	server := startServer(t, smtptest.Config{OnRecipient: func(_ context.Context, to string) error {
		if strings.HasPrefix(to, "bad") {
			return smtptest.Reply(550, "unknown")
		}
		return nil
	}})
	sink := newSink(t, email.Config{SMTP: server.URL(), FS: folder("customer.signed-up", map[string]string{
		"to.tmpl": "{{addresses .Payload.to}}", "subject.tmpl": "s", "text.tmpl": "t",
	})})
	for range 5 {
		_, err := sink.Deliver(within(t), delivery(`{"to": "bad@example.org, bad2@example.org"}`))
		require.Error(t, err)
		_, err = sink.Deliver(within(t), delivery(`{"to": "bad@example.org"}`))
		require.Error(t, err)
		_, err = sink.Deliver(within(t), delivery(`{"to": "jane@example.org"}`))
		require.NoError(t, err)
	}
	assert.Equal(t, 1, server.Connections())
	for _, m := range server.Messages() {
		assert.Equal(t, []string{"jane@example.org"}, m.To)
	}
}

func TestAServerThatCannotBeReachedIsUnavailable(t *testing.T) {
	silent := servertest.Silent(t)
	encrypted := startServer(t, smtptest.Config{TLS: smtptest.StartTLS})
	plain := startServer(t, smtptest.Config{})
	locked := startServer(t, smtptest.Config{Username: "shop", Password: "right"})

	for name, c := range map[string]email.Config{
		"refused":               {SMTP: "smtp://" + servertest.Unused},
		"no such host":          {SMTP: "smtp://nowhere.invalid:25"},
		"silent":                {SMTP: "smtp://" + silent, Timeout: 50 * time.Millisecond},
		"silent TLS":            {SMTP: "smtps://" + silent, Timeout: 50 * time.Millisecond},
		"untrusted certificate": {SMTP: encrypted.URL()},
		"no TLS":                {SMTP: "smtps://" + plain.Address()},
		"STARTTLS not offered":  {SMTP: plain.URL(), TLS: mailserver.TLSMandatory},
		"wrong password":        {SMTP: "smtp://shop:wrong@" + locked.Address()},
		"no password":           {SMTP: "smtp://" + locked.Address()},
		"no authentication":     {SMTP: "smtp://shop:right@" + plain.Address()},
	} {
		t.Run(name, func(t *testing.T) {
			sink := newSink(t, c)
			defer func() { assert.NoError(t, sink.Close(within(t))) }()
			_, err := sink.Deliver(within(t), delivery(jane))
			assert.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
			assert.NotContains(t, err.Error(), "wrong")
			if name != "no password" { // the server requires a password only before the first mail
				assert.Equal(t, sinks.ClassUnavailable, sinktest.Class(sink.CheckHealth(within(t))))
				for _, server := range []*smtptest.Server{encrypted, plain, locked} {
					assert.Eventually(t, func() bool { return server.OpenConnections() == 0 }, time.Minute, time.Millisecond,
						"no connection is left behind")
				}
			}
		})
	}
}

func TestEncryptionAndAuthenticationWork(t *testing.T) {
	for name, c := range map[string]smtptest.Config{
		"clear with password": {Username: "shop", Password: "p@ss:word/1"},
		"STARTTLS":            {TLS: smtptest.StartTLS, Username: "shop", Password: "p@ss:word/1"},
		"smtps":               {TLS: smtptest.Implicit, Username: "shop", Password: "p@ss:word/1"},
		"smtps, no password":  {TLS: smtptest.Implicit},
	} {
		t.Run(name, func(t *testing.T) {
			server := startServer(t, c)
			config := email.Config{SMTP: server.URL(), TLSConfig: server.TLSConfig(), Hello: "shop.example.com"}
			if c.TLS == smtptest.StartTLS {
				config.TLS = mailserver.TLSMandatory
			}
			sink := newSink(t, config)
			require.NoError(t, sink.CheckHealth(within(t)))
			for range 2 {
				_, err := sink.Deliver(within(t), delivery(jane))
				require.NoError(t, err)
			}
			assert.Equal(t, 1, server.Connections())
		})
	}
}

func TestAConnectionThatTheServerClosedIsReplaced(t *testing.T) {
	server, err := smtptest.Start(smtptest.Config{})
	require.NoError(t, err)
	sink := newSink(t, email.Config{SMTP: server.URL(), Connections: 2})
	_, err = sink.Deliver(within(t), delivery(jane))
	require.NoError(t, err)

	require.NoError(t, server.Close())
	_, err = sink.Deliver(within(t), delivery(jane))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "while the server is down: %v", err)

	server = startServer(t, smtptest.Config{Address: server.Address()})
	_, err = sink.Deliver(within(t), delivery(jane))
	require.NoError(t, err)
	server.Disconnect()
	_, err = sink.Deliver(within(t), delivery(jane))
	require.NoError(t, err)
	server.Disconnect()
	require.NoError(t, sink.CheckHealth(within(t)))
	assert.Equal(t, 2, server.Count(), "each mail once")
	assert.Equal(t, 3, server.Connections())
}

func TestAServerMayCloseAConnectionAfterSomeMails(t *testing.T) {
	var mails atomic.Int32
	server := startServer(t, smtptest.Config{OnFrom: func(context.Context, string) error {
		if mails.Add(1)%3 == 0 {
			return smtptest.Reply(421, "too many mails in this connection")
		}
		return nil
	}})
	sink := newSink(t, email.Config{SMTP: server.URL()})
	for range 10 {
		_, err := sink.Deliver(within(t), delivery(jane))
		require.NoError(t, err)
	}
	assert.Equal(t, 10, server.Count())
}

func TestAConnectionLostDuringAMailIsTransient(t *testing.T) {
	var server *smtptest.Server
	var attempts atomic.Int32
	server = startServer(t, smtptest.Config{OnMessage: func(context.Context, smtptest.Message) error {
		if attempts.Add(1) > 1 {
			server.Disconnect()
		}
		return nil
	}})
	sink := newSink(t, email.Config{SMTP: server.URL()})
	_, err := sink.Deliver(within(t), delivery(jane))
	require.NoError(t, err)
	_, err = sink.Deliver(within(t), delivery(jane)) // uses the connection of the first mail
	assert.Equal(t, sinks.ClassTransient, sinktest.Class(err), "%v", err)
	assert.EqualValues(t, 2, attempts.Load(), "the server may have accepted the mail, so the sink does not repeat it")
}

func TestTheTimeoutOfASilentServerDependsOnTheStep(t *testing.T) {
	block := func(ctx context.Context, _ string) error { <-ctx.Done(); return nil }
	for name, c := range map[string]struct {
		at    smtptest.Config
		class sinks.Class
	}{
		"at the sender":    {smtptest.Config{OnFrom: block}, sinks.ClassUnavailable},
		"at the recipient": {smtptest.Config{OnRecipient: block}, sinks.ClassTransient},
		"at the mail":      {smtptest.Config{OnMessage: func(ctx context.Context, _ smtptest.Message) error { <-ctx.Done(); return nil }}, sinks.ClassTransient},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startServer(t, c.at)
			sink := newSink(t, email.Config{SMTP: server.URL(), Timeout: 2 * time.Second})
			var err error
			assert.EventuallyWithT(t, func(tries *assert.CollectT) { // on a busy machine, even the beginning may take longer than the timeout
				_, err = sink.Deliver(within(t), delivery(jane))
				assert.Equal(tries, c.class, sinktest.Class(err))
			}, time.Minute, time.Millisecond)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
}

func TestACancelledDeliveryReturnsAtOnce(t *testing.T) {
	started := make(chan struct{}, 2)
	server := startServer(t, smtptest.Config{OnMessage: func(ctx context.Context, _ smtptest.Message) error {
		started <- struct{}{}
		<-ctx.Done()
		return nil
	}})
	dialled, closed := make(chan struct{}), make(chan struct{})
	silent := servertest.Serve(t, func(conn net.Conn) {
		close(dialled)
		_, _ = io.ReadAll(conn) // ends because the sink has closed its side
		close(closed)
	})

	ctx, cancel := context.WithCancel(within(t))
	sending := newSink(t, email.Config{SMTP: server.URL(), Connections: 1})
	connecting := newSink(t, email.Config{SMTP: "smtp://" + silent})
	var group sync.WaitGroup
	for _, sink := range []*email.Sink{sending, sending, connecting} { // one of the two deliveries of sending waits for the connection
		group.Go(func() {
			_, err := sink.Deliver(ctx, delivery(jane))
			assert.Equal(t, sinks.ClassCancelled, sinktest.Class(err), "%v", err)
			assert.ErrorIs(t, err, context.Canceled)
		})
	}
	<-started
	<-dialled
	cancel()
	group.Wait()
	<-closed
}

func TestWaitingForAConnectionEndsWithTheDeadline(t *testing.T) {
	started := make(chan struct{}, 1)
	server := startServer(t, smtptest.Config{OnMessage: func(ctx context.Context, _ smtptest.Message) error {
		started <- struct{}{}
		<-ctx.Done()
		return nil
	}})
	sink := newSink(t, email.Config{SMTP: server.URL(), Connections: 1})
	ctx, cancel := context.WithCancel(within(t))
	var group sync.WaitGroup
	group.Go(func() { _, _ = sink.Deliver(ctx, delivery(jane)) })
	<-started
	short, stop := context.WithTimeout(ctx, 20*time.Millisecond)
	defer stop()
	_, err := sink.Deliver(short, delivery(jane))
	assert.Equal(t, sinks.ClassUnavailable, sinktest.Class(err))
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	cancel()
	group.Wait()
}

func TestAddressesBeyondASCIIUseSMTPUTF8(t *testing.T) {
	server := startServer(t, smtptest.Config{})
	sink := newSink(t, email.Config{SMTP: server.URL()})
	_, err := sink.Deliver(within(t), delivery(`{"name": "P", "email": "pelé@exämple.org", "number": 1}`))
	require.NoError(t, err)
	_, err = sink.Deliver(within(t), delivery(jane))
	require.NoError(t, err)
	assert.Equal(t, []string{"pelé@exämple.org"}, server.Messages()[0].To)
	assert.True(t, server.Messages()[0].UTF8)
	assert.False(t, server.Messages()[1].UTF8, "later servers may lack the extension")
}

func TestAnInternationalDomainNeedsNoSMTPUTF8(t *testing.T) {
	for given, want := range map[string]string{
		"info@münchen.example":        "info@xn--mnchen-3ya.example",
		"info@MÜNCHEN.example":        "info@xn--mnchen-3ya.example",
		"info@xn--mnchen-3ya.example": "info@xn--mnchen-3ya.example",
		"o'neill@日本.example":          "o'neill@xn--wgv71a.example",
	} {
		server := startServer(t, smtptest.Config{ASCIIOnly: true})
		sink := newSink(t, email.Config{SMTP: server.URL(), From: "shop@bücher.example"})
		_, err := sink.Deliver(within(t), delivery(`{"name": "P", "email": "`+given+`", "number": 1}`))
		require.NoError(t, err)
		m := server.Messages()[0]
		assert.Equal(t, []string{want}, m.To)
		assert.Equal(t, "shop@xn--bcher-kva.example", m.From)
		assert.False(t, m.UTF8)
		for _, b := range m.Raw {
			require.Less(t, b, byte(0x80), "the mail is ASCII")
		}
	}
}

func TestAnAddressThatTheServerDoesNotSupportIsInvalid(t *testing.T) {
	server := startServer(t, smtptest.Config{ASCIIOnly: true})
	sink := newSink(t, email.Config{SMTP: server.URL()})
	for range 2 {
		_, err := sink.Deliver(within(t), delivery(`{"name": "P", "email": "pelé@example.org", "number": 1}`))
		assert.Equal(t, sinks.ClassInvalid, sinktest.Class(err))
		require.ErrorIs(t, err, mailserver.ErrNoSMTPUTF8)
	}
	_, err := sink.Deliver(within(t), delivery(jane))
	require.NoError(t, err)
	assert.Equal(t, 1, server.Connections())
}

func TestTheLogContainsNoPayload(t *testing.T) {
	server := startServer(t, smtptest.Config{})
	var log strings.Builder
	sink, err := email.New(sinks.Instance{Name: "mail", Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))},
		email.Config{SMTP: server.URL(), From: "a@example.com", FS: signedUp})
	require.NoError(t, err)
	_, err = sink.Deliver(within(t), delivery(jane))
	require.NoError(t, err)
	server.Disconnect()
	_, err = sink.Deliver(within(t), delivery(jane))
	require.NoError(t, err)
	require.NoError(t, sink.Close(within(t)))
	assert.Contains(t, log.String(), "stale")
	assert.NotContains(t, log.String(), "jane")
}
