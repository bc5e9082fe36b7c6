package receiver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"time"

	"github.com/emersion/go-smtp"
)

// mailID is the header with the notification's id.
const mailID = "Waybill-Id"

// Mailbox is a mail server inside the process. It does not keep mails, so their number is not limited.
type Mailbox struct {
	// URL is its address on the loopback interface.
	URL string

	server   *smtp.Server
	listener net.Listener
	served   chan error
}

// OpenMailbox listens on a free port and calls took, concurrently, with the id of each mail. It accepts
// the mail when took returns.
func OpenMailbox(took func(id string)) (*Mailbox, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a mail server: %w", err)
	}
	m := &Mailbox{URL: "smtp://" + listener.Addr().String(), listener: listener, served: make(chan error, 1)}
	m.server = smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return conversation(took), nil }))
	m.server.Domain = "localhost"
	go func() { m.served <- m.server.Serve(listener) }()
	return m, nil
}

// Close stops the server. It waits at most 5 s for connections that the sink has closed.
func (m *Mailbox) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := m.server.Shutdown(ctx)
	_ = m.listener.Close() // Shutdown does not know it if Serve has not begun yet
	if served := <-m.served; !errors.Is(served, smtp.ErrServerClosed) && !errors.Is(served, net.ErrClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// conversation is the session of a client. The server does not call its methods concurrently.
type conversation func(id string)

func (conversation) Mail(string, *smtp.MailOptions) error { return nil }

func (conversation) Rcpt(string, *smtp.RcptOptions) error { return nil }

func (took conversation) Data(mail io.Reader) error {
	reader := bufio.NewReader(mail)
	header, err := textproto.NewReader(reader).ReadMIMEHeader()
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, reader); err != nil {
		return err
	}
	took(header.Get(mailID))
	return nil
}

func (conversation) Reset() {}

func (conversation) Logout() error { return nil }
