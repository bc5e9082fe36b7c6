package email

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
)

func TestAPasswordIsEncryptedUnlessTheConfigurationAllowsClearText(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{SMTP: "smtp://shop:secret@mail.example.com"}, TLSMandatory},
		{Config{SMTP: "smtp://shop:secret@192.0.2.1:25"}, TLSMandatory},
		{Config{SMTP: "smtp://shop:secret@localhost.example.com"}, TLSMandatory},
		{Config{SMTP: "smtp://shop@mail.example.com", TokenFile: "token"}, TLSMandatory},
		{Config{SMTP: "smtp://shop:token@mail.example.com", Auth: AuthXOAUTH2}, TLSMandatory},
		{Config{SMTP: "smtp://shop:secret@mail.example.com", TLS: TLSNone}, TLSNone},
		{Config{SMTP: "smtp://shop:secret@mail.example.com", TLS: TLSOpportunistic}, TLSOpportunistic},
		{Config{SMTP: "smtp://shop:secret@localhost"}, TLSOpportunistic},
		{Config{SMTP: "smtp://shop:secret@127.0.0.2:1025"}, TLSOpportunistic},
		{Config{SMTP: "smtp://shop:secret@[::1]:1025"}, TLSOpportunistic},
		{Config{SMTP: "smtp://shop:secret@localhost", TLS: TLSMandatory}, TLSMandatory},
		{Config{SMTP: "smtp://mail.example.com"}, TLSOpportunistic},
		{Config{SMTP: "smtp://mail.example.com", TLS: TLSMandatory}, TLSMandatory},
		{Config{SMTP: "smtps://shop:secret@mail.example.com"}, TLSNone}, // the connection uses TLS from the first byte
	} {
		c.config.From, c.config.Templates = "a@example.com", "x"
		c.config.SetDefaults()
		require.NoError(t, c.config.Validate())
		s, err := newServer(c.config, sinks.Instance{})
		require.NoError(t, err)
		assert.Equal(t, c.want, s.startTLS, "%s, tls %q", c.config.SMTP, c.config.TLS)
	}
}
