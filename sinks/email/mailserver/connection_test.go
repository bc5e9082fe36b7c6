package mailserver

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/wneessen/go-mail/smtp"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
)

func TestAPasswordIsEncryptedUnlessTheConfigurationAllowsClearText(t *testing.T) {
	for _, c := range []struct {
		settings Settings
		want     string
	}{
		{Settings{URL: "smtp://shop:secret@mail.example.com"}, TLSMandatory},
		{Settings{URL: "smtp://shop:secret@192.0.2.1:25"}, TLSMandatory},
		{Settings{URL: "smtp://shop:secret@localhost.example.com"}, TLSMandatory},
		{Settings{URL: "smtp://shop@mail.example.com", TokenFile: "token"}, TLSMandatory},
		{Settings{URL: "smtp://shop:token@mail.example.com", Auth: AuthXOAUTH2}, TLSMandatory},
		{Settings{URL: "smtp://shop:secret@mail.example.com", TLS: TLSNone}, TLSNone},
		{Settings{URL: "smtp://shop:secret@mail.example.com", TLS: TLSOpportunistic}, TLSOpportunistic},
		{Settings{URL: "smtp://shop:secret@localhost"}, TLSOpportunistic},
		{Settings{URL: "smtp://shop:secret@127.0.0.2:1025"}, TLSOpportunistic},
		{Settings{URL: "smtp://shop:secret@[::1]:1025"}, TLSOpportunistic},
		{Settings{URL: "smtp://shop:secret@localhost", TLS: TLSMandatory}, TLSMandatory},
		{Settings{URL: "smtp://mail.example.com"}, TLSOpportunistic},
		{Settings{URL: "smtp://mail.example.com", TLS: TLSMandatory}, TLSMandatory},
		{Settings{URL: "smtps://shop:secret@mail.example.com"}, TLSNone}, // the connection uses TLS from the first byte
	} {
		s, err := newServer(c.settings, sinks.Instance{})
		require.NoError(t, err)
		assert.Equal(t, c.want, s.startTLS, "%s, tls %q", c.settings.URL, c.settings.TLS)
	}
}

func TestAnOldConnectionCarriesNoNewMail(t *testing.T) {
	server, err := smtptest.Start(smtptest.Config{})
	require.NoError(t, err)
	defer server.Close()
	client, err := New(sinks.Instance{}, Settings{URL: server.URL(), Auth: AuthAuto, Timeout: time.Minute, Connections: 1})
	require.NoError(t, err)
	defer client.Close(t.Context())
	client.server.maxAge = time.Nanosecond
	for range 3 {
		_, err := client.Send(t.Context(), &Message{From: "shop@example.com", To: []string{"jane@example.org"}, Raw: []byte("Subject: hello\r\n\r\n")})
		require.NoError(t, err)
	}
	require.Equal(t, 3, server.Connections())
}

// fixed is a connection from which bytes can be read.
type fixed struct {
	net.Conn
	io.Reader
}

func (f fixed) Read(p []byte) (int, error) { return f.Reader.Read(p) }

func FuzzReplyIsReadWithBounds(f *testing.F) {
	for _, seed := range []string{"250 ok\r\n", "250\r\n", "250-a\r\n250\r\n", "250-a\nb\n250 c\n", "250-a\r\n550 b\r\n", "\r\n", "25", "099 x\r\n", "250-starttls\r\n250 AUTH=LOGIN\r\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		d := newDialog(fixed{Reader: bytes.NewReader(said)})
		code, text, err := d.reply(250)
		if err != nil {
			require.NotEqual(t, 250, answerIn(err).code)
			return
		}
		require.Equal(t, 250, code)
		require.LessOrEqual(t, len(text), len(said))
		require.LessOrEqual(t, strings.Count(text, "\n"), maxLines)
		d.learn(text)
		for _, m := range d.mechanisms {
			require.Equal(t, strings.ToUpper(m), m)
		}
	})
}

func TestATokenIsNotSentInClearText(t *testing.T) {
	offered := []string{"XOAUTH2"}
	for _, c := range []struct {
		server smtp.ServerInfo
		is     error
	}{
		{smtp.ServerInfo{Name: "smtp.example.com", Auth: offered}, smtp.ErrUnencrypted},
		{smtp.ServerInfo{Name: "127.0.0.1.example.com", Auth: offered}, smtp.ErrUnencrypted},
		{smtp.ServerInfo{Name: "smtp.example.com", Auth: offered, TLS: true}, nil},
		{smtp.ServerInfo{Name: "localhost", Auth: offered}, nil},
		{smtp.ServerInfo{Name: "::1", Auth: offered}, nil},
		{smtp.ServerInfo{Name: "smtp.example.com", Auth: []string{"PLAIN"}, TLS: true}, errNoXOAUTH2},
	} {
		_, first, err := newXOAUTH2("me", "token").Start(&c.server)
		require.ErrorIs(t, err, c.is)
		require.Equal(t, c.is == nil, bytes.Contains(first, []byte("token")))
	}
}
