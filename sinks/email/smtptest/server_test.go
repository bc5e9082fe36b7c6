package smtptest_test

import (
	"context"
	"net/smtp"
	"net/textproto"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/sinks/email/smtptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func send(s *smtptest.Server, to ...string) error {
	return smtp.SendMail(s.Address(), nil, "a@example.com", to, []byte("Subject: =?utf-8?q?gr=C3=BC=C3=9Fe?=\r\nContent-Type: text/plain\r\n\r\nhello\r\n.dot\r\n"))
}

func TestAMessageIsKeptUnchanged(t *testing.T) {
	server, err := smtptest.Start(smtptest.Config{})
	require.NoError(t, err)
	require.NoError(t, send(server, "b@example.org", "c@example.org"))
	require.NoError(t, server.Close())
	require.NoError(t, server.Close(), "a second close does nothing")
	require.Len(t, server.Messages(), 1)
	m := server.Messages()[0]
	assert.Equal(t, "a@example.com", m.From)
	assert.Equal(t, []string{"b@example.org", "c@example.org"}, m.To)
	assert.Equal(t, "grüße", m.Subject())
	text, err := m.Text()
	require.NoError(t, err)
	assert.Equal(t, "hello\n.dot\n", text)
	_, err = m.HTML()
	require.ErrorIs(t, err, smtptest.ErrNoPart)
}

func TestWaitReturnsWithTheMessageOrTheContext(t *testing.T) {
	server, err := smtptest.Start(smtptest.Config{CountOnly: true})
	require.NoError(t, err)
	defer func() { assert.NoError(t, server.Close()) }()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	sent := make(chan error, 1)
	go func() { sent <- send(server, "b@example.org") }()
	require.NoError(t, server.Wait(ctx, 1))
	require.NoError(t, <-sent)
	assert.Equal(t, 1, server.Count())
	assert.Empty(t, server.Messages(), "only counted")
	cancel()
	require.ErrorIs(t, server.Wait(ctx, 2), context.Canceled)
}

func TestCloseEndsABlockedHookAndIdleConnections(t *testing.T) {
	started := make(chan struct{})
	server, err := smtptest.Start(smtptest.Config{OnRecipient: func(ctx context.Context, _ string) error {
		close(started)
		<-ctx.Done()
		return ctx.Err()
	}})
	require.NoError(t, err)
	sent := make(chan error, 1)
	go func() { sent <- send(server, "b@example.org") }()
	<-started
	require.NoError(t, server.Close())
	require.Error(t, <-sent)
	assert.Zero(t, server.OpenConnections())
	assert.Equal(t, 1, server.MostConnections())
}

func TestAHooksReplyReachesTheClient(t *testing.T) {
	server, err := smtptest.Start(smtptest.Config{OnRecipient: func(context.Context, string) error { return smtptest.Reply(450, "later") }})
	require.NoError(t, err)
	defer func() { assert.NoError(t, server.Close()) }()
	var reply *textproto.Error
	require.ErrorAs(t, send(server, "b@example.org"), &reply)
	assert.Equal(t, 450, reply.Code)
	assert.Zero(t, server.Count())
}

func TestAReplyKeepsItsEnhancedStatus(t *testing.T) {
	for text, want := range map[string]string{"5.7.8 no": "5.7.8 no", "no": "5.0.0 no", "5.7 no": "5.0.0 5.7 no"} {
		server, err := smtptest.Start(smtptest.Config{OnRecipient: func(context.Context, string) error { return smtptest.Reply(550, text) }})
		require.NoError(t, err)
		var reply *textproto.Error
		require.ErrorAs(t, send(server, "b@example.org"), &reply)
		assert.Equal(t, want, reply.Msg)
		require.NoError(t, server.Close())
	}
}
