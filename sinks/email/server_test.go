package email_test

import (
	"context"
	"errors"
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
	"github.com/waybill-go/waybill/sinks/email/smtptest"
)

func refuse(code int) func(context.Context, string) error {
	return func(context.Context, string) error { return smtptest.Reply(code, "no\tthanks") }
}

func TestTheServersReplyDecidesTheClass(t *testing.T) {
	for _, c := range []struct {
		name  string
		at    smtptest.Config
		class sinks.Class
		step  email.Step
		says  string
	}{
		{"4xx for the sender", smtptest.Config{OnFrom: refuse(451)}, sinks.ClassTransient, email.StepFrom, "451"},
		{"5xx for the sender", smtptest.Config{OnFrom: refuse(553)}, sinks.ClassPermanent, email.StepFrom, "553"},
		{"authentication asked for", smtptest.Config{OnFrom: refuse(530)}, sinks.ClassUnavailable, email.StepFrom, "check user and password"},
		{"421 for the sender", smtptest.Config{OnFrom: refuse(421)}, sinks.ClassUnavailable, email.StepFrom, "421"},
		{"4xx for the recipient", smtptest.Config{OnRecipient: refuse(450)}, sinks.ClassTransient, email.StepTo, "<jane@example.org> refused: 450"},
		{"5xx for the recipient", smtptest.Config{OnRecipient: refuse(550)}, sinks.ClassPermanent, email.StepTo, "no thanks"},
		{"421 for the recipient", smtptest.Config{OnRecipient: refuse(421)}, sinks.ClassUnavailable, email.StepTo, "421"},
		{"4xx for the mail", smtptest.Config{OnMessage: refuseMessage(452)}, sinks.ClassTransient, email.StepEnd, "452"},
		{"5xx for the mail", smtptest.Config{OnMessage: refuseMessage(554)}, sinks.ClassPermanent, email.StepEnd, "554"},
		{"421 for the mail", smtptest.Config{OnMessage: refuseMessage(421)}, sinks.ClassUnavailable, email.StepEnd, "421"},
		{"5xx for the client", smtptest.Config{OnHello: func(context.Context) error { return smtptest.Reply(554, "go away") }},
			sinks.ClassUnavailable, email.StepConnect, "go away"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := startServer(t, c.at)
			sink := newSink(t, email.Config{SMTP: server.URL()})
			_, err := sink.Deliver(within(t), delivery(jane))
			class, _ := sinks.Classify(err)
			assert.Equal(t, c.class, class, "%v", err)
			var failed *email.ServerError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, c.step, failed.Step)
			assert.Equal(t, server.Address(), failed.Server)
			assert.ErrorContains(t, err, c.says)
			assert.NotContains(t, err.Error(), "\t")
			assert.Zero(t, server.Count())
		})
	}
}

func refuseMessage(code int) func(context.Context, smtptest.Message) error {
	return func(context.Context, smtptest.Message) error { return smtptest.Reply(code, "no thanks") }
}

func TestARefusalLeavesTheConnectionFitForTheNextMail(t *testing.T) {
	server := startServer(t, smtptest.Config{OnRecipient: func(_ context.Context, to string) error {
		if strings.HasPrefix(to, "bad") {
			return smtptest.Reply(550, "unknown")
		}
		return nil
	}})
	sink := newSink(t, email.Config{SMTP: server.URL(), FS: folder("customer.signed-up", map[string]string{
		"to.tmpl": "{{.Payload.to}}", "subject.tmpl": "s", "text.tmpl": "t",
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
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, never greets
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	encrypted := startServer(t, smtptest.Config{TLS: smtptest.StartTLS})
	plain := startServer(t, smtptest.Config{})
	locked := startServer(t, smtptest.Config{Username: "shop", Password: "right"})

	for name, c := range map[string]email.Config{
		"refused":                 {SMTP: "smtp://" + gone.Addr().String()},
		"no such host":            {SMTP: "smtp://nowhere.invalid:25"},
		"silent":                  {SMTP: "smtp://" + silent.Addr().String(), Timeout: 50 * time.Millisecond},
		"silent TLS":              {SMTP: "smtps://" + silent.Addr().String(), Timeout: 50 * time.Millisecond},
		"untrusted certificate":   {SMTP: encrypted.URL()},
		"TLS where there is none": {SMTP: "smtps://" + plain.Address()},
		"STARTTLS not offered":    {SMTP: plain.URL(), TLS: email.TLSMandatory},
		"wrong password":          {SMTP: "smtp://shop:wrong@" + locked.Address()},
		"no password":             {SMTP: "smtp://" + locked.Address()},
		"password not wanted":     {SMTP: "smtp://shop:right@" + plain.Address()},
	} {
		t.Run(name, func(t *testing.T) {
			sink := newSink(t, c)
			defer func() { assert.NoError(t, sink.Close(within(t))) }()
			_, err := sink.Deliver(within(t), delivery(jane))
			class, _ := sinks.Classify(err)
			assert.Equal(t, sinks.ClassUnavailable, class, "%v", err)
			assert.NotContains(t, err.Error(), "wrong")
			if name != "no password" { // which does not matter before the first mail
				class, _ = sinks.Classify(sink.CheckHealth(within(t)))
				assert.Equal(t, sinks.ClassUnavailable, class)
				for _, server := range []*smtptest.Server{encrypted, plain, locked} {
					assert.Eventually(t, func() bool { return server.OpenConnections() == 0 }, 5*time.Second, time.Millisecond,
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
				config.TLS = email.TLSMandatory
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

func TestAConnectionThatTheServerLeftIsReplacedUnnoticed(t *testing.T) {
	server, err := smtptest.Start(smtptest.Config{})
	require.NoError(t, err)
	sink := newSink(t, email.Config{SMTP: server.URL(), Connections: 2})
	_, err = sink.Deliver(within(t), delivery(jane))
	require.NoError(t, err)

	require.NoError(t, server.Close())
	_, err = sink.Deliver(within(t), delivery(jane))
	class, _ := sinks.Classify(err)
	require.Equal(t, sinks.ClassUnavailable, class, "while the server is down: %v", err)

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

func TestAServerThatEndsAConnectionAfterSomeMailsGetsTheNextOverANewOne(t *testing.T) {
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

func TestAConnectionLostDuringAMailIsTransientAndTheMailNotSentAgain(t *testing.T) {
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
	_, err = sink.Deliver(within(t), delivery(jane)) // over the connection of the first
	class, _ := sinks.Classify(err)
	assert.Equal(t, sinks.ClassTransient, class, "%v", err)
	assert.EqualValues(t, 2, attempts.Load(), "whether the server took it is unknown, so the sink does not repeat it")
}

func TestASilentServerTimesOutByStep(t *testing.T) {
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
			server := startServer(t, c.at)
			sink := newSink(t, email.Config{SMTP: server.URL(), Timeout: 100 * time.Millisecond})
			_, err := sink.Deliver(within(t), delivery(jane))
			class, _ := sinks.Classify(err)
			assert.Equal(t, c.class, class)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
}

func TestACancelledDeliveryReturnsAtOnceWhateverItWaitsFor(t *testing.T) {
	started := make(chan struct{}, 2)
	server := startServer(t, smtptest.Config{OnMessage: func(ctx context.Context, _ smtptest.Message) error {
		started <- struct{}{}
		<-ctx.Done()
		return nil
	}})
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()

	ctx, cancel := context.WithCancel(within(t))
	sending := newSink(t, email.Config{SMTP: server.URL(), Connections: 1})
	connecting := newSink(t, email.Config{SMTP: "smtp://" + silent.Addr().String()})
	var group sync.WaitGroup
	for _, sink := range []*email.Sink{sending, sending, connecting} { // one of the two on sending waits for its turn
		group.Go(func() {
			_, err := sink.Deliver(ctx, delivery(jane))
			class, _ := sinks.Classify(err)
			assert.Equal(t, sinks.ClassCancelled, class, "%v", err)
			assert.ErrorIs(t, err, context.Canceled)
		})
	}
	<-started
	dialled, err := silent.Accept()
	require.NoError(t, err)
	cancel()
	group.Wait()
	_, err = io.ReadAll(dialled) // ends because the sink has closed its side
	assert.True(t, err == nil || errors.Is(err, net.ErrClosed))
	_ = dialled.Close()
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
	class, _ := sinks.Classify(err)
	assert.Equal(t, sinks.ClassUnavailable, class)
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
	assert.False(t, server.Messages()[1].UTF8, "servers further on may lack the extension")
}

func TestAnAddressThatTheServerCannotTakeIsPermanentAndCostsNoConnection(t *testing.T) {
	server := startServer(t, smtptest.Config{ASCIIOnly: true})
	sink := newSink(t, email.Config{SMTP: server.URL()})
	for range 2 {
		_, err := sink.Deliver(within(t), delivery(`{"name": "P", "email": "pelé@example.org", "number": 1}`))
		class, _ := sinks.Classify(err)
		assert.Equal(t, sinks.ClassPermanent, class)
		require.ErrorIs(t, err, email.ErrNoSMTPUTF8)
	}
	_, err := sink.Deliver(within(t), delivery(jane))
	require.NoError(t, err)
	assert.Equal(t, 1, server.Connections())
}

func TestNoPayloadStandsInTheLog(t *testing.T) {
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
