package email

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	gomail "github.com/wneessen/go-mail"

	"github.com/waybill-go/waybill/sinks"
)

func TestAPasswordIsEncryptedUnlessTheConfigurationAllowsClearText(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   gomail.TLSPolicy
	}{
		{Config{SMTP: "smtp://shop:secret@mail.example.com"}, gomail.TLSMandatory},
		{Config{SMTP: "smtp://shop:secret@192.0.2.1:25"}, gomail.TLSMandatory},
		{Config{SMTP: "smtp://shop:secret@localhost.example.com"}, gomail.TLSMandatory},
		{Config{SMTP: "smtp://shop@mail.example.com", TokenFile: "token"}, gomail.TLSMandatory},
		{Config{SMTP: "smtp://shop:token@mail.example.com", Auth: AuthXOAUTH2}, gomail.TLSMandatory},
		{Config{SMTP: "smtp://shop:secret@mail.example.com", TLS: TLSNone}, gomail.NoTLS},
		{Config{SMTP: "smtp://shop:secret@mail.example.com", TLS: TLSOpportunistic}, gomail.TLSOpportunistic},
		{Config{SMTP: "smtp://shop:secret@localhost"}, gomail.TLSOpportunistic},
		{Config{SMTP: "smtp://shop:secret@127.0.0.2:1025"}, gomail.TLSOpportunistic},
		{Config{SMTP: "smtp://shop:secret@[::1]:1025"}, gomail.TLSOpportunistic},
		{Config{SMTP: "smtp://shop:secret@localhost", TLS: TLSMandatory}, gomail.TLSMandatory},
		{Config{SMTP: "smtp://mail.example.com"}, gomail.TLSOpportunistic},
		{Config{SMTP: "smtp://mail.example.com", TLS: TLSMandatory}, gomail.TLSMandatory},
		{Config{SMTP: "smtps://shop:secret@mail.example.com"}, gomail.NoTLS}, // the connection uses TLS from the first byte
	} {
		c.config.From, c.config.Templates = "a@example.com", "x"
		c.config.SetDefaults()
		require.NoError(t, c.config.Validate())
		s, err := newServer(c.config, sinks.Instance{})
		require.NoError(t, err)
		client, err := gomail.NewClient("mail.example.com", s.options...)
		require.NoError(t, err)
		assert.Equal(t, c.want.String(), client.TLSPolicy(), "%s, tls %q", c.config.SMTP, c.config.TLS)
	}
}
