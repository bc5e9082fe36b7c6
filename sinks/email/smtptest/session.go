package smtptest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/mail"

	"github.com/emersion/go-smtp"
)

// session is the conversation with one client. The library calls its methods one at a time.
type session struct {
	server        *Server
	authenticated bool
	from          string
	utf8          bool
	to            []string
}

var _ smtp.AuthSession = (*session)(nil)

func (s *Server) newSession(*smtp.Conn) (smtp.Session, error) {
	if s.config.OnHello != nil {
		if err := s.config.OnHello(s.ctx); err != nil {
			return nil, err
		}
	}
	return &session{server: s, authenticated: !s.config.authenticates()}, nil
}

func (c *session) Mail(from string, options *smtp.MailOptions) error {
	if c.from != "" {
		return Reply(503, "Nested MAIL command") // RFC 5321, section 4.1.4
	}
	if !c.authenticated {
		return Reply(530, "Authentication required")
	}
	if hook := c.server.config.OnFrom; hook != nil {
		if err := hook(c.server.ctx, from); err != nil {
			return err
		}
	}
	c.from, c.utf8 = from, options.UTF8
	return nil
}

func (c *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	if hook := c.server.config.OnRecipient; hook != nil {
		if err := hook(c.server.ctx, to); err != nil {
			return err
		}
	}
	c.to = append(c.to, to)
	return nil
}

func (c *session) Data(r io.Reader) error {
	m := Message{From: c.from, UTF8: c.utf8, To: append([]string(nil), c.to...)}
	if err := c.receive(r, &m); err != nil {
		return err
	}
	reply := ""
	if hook := c.server.config.OnMessage; hook != nil {
		var answer *smtp.SMTPError
		switch err := hook(c.server.ctx, m); {
		case errors.As(err, &answer) && answer.Code/100 == 2:
			reply = answer.Message
		case err != nil:
			return err
		}
	}
	number := c.server.record(m)
	if reply == "" {
		reply = fmt.Sprintf("OK: queued as %X", number)
	}
	return Reply(250, reply)
}

// receive reads the whole message. With CountOnly it discards it.
func (c *session) receive(r io.Reader, m *Message) error {
	if c.server.config.CountOnly {
		_, err := io.Copy(io.Discard, r)
		return err
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	m.Raw = raw
	parsed, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return Reply(554, "Not a message: "+err.Error())
	}
	m.Header = parsed.Header
	return nil
}

func (c *session) Reset() { c.from, c.utf8, c.to = "", false, nil }

func (c *session) Logout() error { return nil }
