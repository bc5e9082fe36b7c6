package mailserver

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/line"
)

// Message is a mail that can be sent: the envelope's addresses without brackets, and the encoded mail,
// which ends with a line end.
type Message struct {
	From string
	To   []string
	UTF8 bool // an address needs SMTPUTF8
	Raw  []byte
}

// Sent is the outcome of a mail that the server has accepted.
type Sent struct {
	// Reply is the server's final reply.
	Reply string
	// Refused are the recipients that the server refused permanently. The mail was sent to
	// all others.
	Refused []Refusal
}

// Receipt returns the receipt, for example
//
//	smtp 250 OK: queued as 7F3; <b@example.org> refused: 550 no such user
func (s Sent) Receipt() notification.Receipt {
	text := "smtp 250 " + s.Reply
	if len(s.Refused) > 0 {
		text += "; " + Refusals(s.Refused)
	}
	return notification.Receipt(text)
}

// transact makes one mail transaction: MAIL FROM, RCPT TO, DATA, and the mail.
//
// All recipients are in one transaction, and the mail is sent only after the server has replied to
// each. So a retry, which does not know what the previous attempt did, cannot reach a recipient
// twice.
func (c *connection) transact(m *Message) (Sent, *ServerError) {
	if failed := c.fits(m); failed != nil {
		return Sent{}, failed
	}
	// With a single recipient, DATA is pipelined, too. If the recipient is refused, DATA is also
	// refused or begins a mail without recipients. With several recipients, DATA would begin a
	// mail to those that were accepted, and only closing the connection could abort it.
	_, pipelined := c.dialog.offers("PIPELINING")
	dataAhead := pipelined && len(m.To) == 1
	_, sized := c.dialog.offers("SIZE")
	commands := m.envelope(sized)
	if dataAhead {
		commands = append(commands, "DATA")
	}
	replies := c.converse(commands, pipelined)
	refused, failed := c.checkReplies(m, replies)
	switch {
	case failed != nil:
		if dataAhead && len(replies) == len(commands) && replies[len(replies)-1] == nil {
			c.abortData(failed, replies[1])
		}
		return Sent{}, failed
	case dataAhead:
		replies = replies[len(replies)-1:]
	default:
		replies = c.converse([]string{"DATA"}, false)
	}
	if replies[0] != nil {
		return Sent{}, c.server.failure(StepData, replies[0])
	}
	reply, failed := c.sendBody(m)
	return Sent{Reply: reply, Refused: refused}, failed
}

// fits returns an error if the mail exceeds the extensions and limits that the server announced.
func (c *connection) fits(m *Message) *ServerError {
	if _, offered := c.dialog.offers("SMTPUTF8"); m.UTF8 && !offered {
		failed := c.server.failure(StepFrom, ErrNoSMTPUTF8)
		failed.ofMail = line.IsASCII(m.From)
		return failed
	}
	limit, _ := c.dialog.offers("SIZE") // RFC 1870; 0 or nothing means no limit
	if most, err := strconv.Atoi(limit); err == nil && most > 0 && len(m.Raw) > most {
		failed := c.server.failure(StepFrom, fmt.Errorf("%w: the mail has %d bytes, the server accepts %d", ErrTooLarge, len(m.Raw), most))
		failed.ofMail = true
		return failed
	}
	return nil
}

// envelope returns the commands with the sender and the recipients. With sized, MAIL FROM has the
// size of the mail, so that the server can refuse it early.
func (m *Message) envelope(sized bool) []string {
	commands := make([]string, 0, len(m.To)+2)
	from := "MAIL FROM:<" + m.From + ">"
	if m.UTF8 {
		// Used only if needed, because a mail with this extension cannot pass through servers
		// that lack it.
		from += " BODY=8BITMIME SMTPUTF8"
	}
	if sized {
		from += " SIZE=" + strconv.Itoa(len(m.Raw))
	}
	commands = append(commands, from)
	for _, address := range m.To {
		commands = append(commands, "RCPT TO:<"+address+">")
	}
	return commands
}

// converse sends commands and returns the error of each reply; nil if it is positive. If the server
// offers PIPELINING (RFC 2920), all are sent at once, which saves a round trip for each.
// Otherwise, converse stops if MAIL FROM is refused. There are fewer replies if the connection is
// closed.
func (c *connection) converse(commands []string, pipelined bool) []error {
	if pipelined {
		if err := c.dialog.send(commands...); err != nil {
			return []error{err}
		}
	}
	replies := make([]error, 0, len(commands))
	for i, command := range commands {
		var err error
		if !pipelined {
			err = c.dialog.send(command)
		}
		if err == nil {
			wanted := 25 // 250, 251, 252
			if command == "DATA" {
				wanted = 354
			}
			_, _, err = c.dialog.reply(wanted)
		}
		replies = append(replies, redacted(c.server.credentials, err))
		if hungUp(err) || (err != nil && i == 0 && !pipelined) {
			break
		}
	}
	return replies
}

// checkReplies checks the replies to an envelope. Recipients that are refused permanently are left
// out of the mail if there are others. If a recipient is refused temporarily, the transaction fails
// for all: otherwise the retry would reach the others a second time. Of several such refusals, the
// one that most affects the whole sink becomes the error.
func (c *connection) checkReplies(m *Message, replies []error) (refused []Refusal, failed *ServerError) {
	if replies[0] != nil {
		failed = c.server.failure(StepFrom, replies[0])
		failed.ofMail = answerIn(replies[0]).refusesMail(m)
		return nil, failed
	}
	var decides, final error // what delays the mail for all, and what refuses it for good
	var worst sinks.Class
	for i, err := range replies[1:min(len(replies), len(m.To)+1)] {
		if err == nil {
			continue
		}
		a := answerIn(err)
		if a.code == 0 {
			return nil, c.server.failure(StepTo, err)
		}
		refused = append(refused, Refusal{Address: m.To[i], Err: err})
		switch class, _ := a.class(StepTo); {
		case class == sinks.ClassPermanent || (class == sinks.ClassInvalid && final == nil):
			final = err // permanent, if any is: it may be about more than this recipient
		case class == sinks.ClassInvalid:
		case decides == nil || class > worst: // in the order transient, throttled, unavailable
			decides, worst = err, class
		}
	}
	if decides == nil && len(refused) == len(m.To) {
		decides = final
	}
	if decides == nil {
		return refused, nil
	}
	failed = c.server.failure(StepTo, decides)
	failed.Refused = refused
	return nil, failed
}

// sendBody sends the mail itself, after the server has answered DATA.
func (c *connection) sendBody(m *Message) (reply string, failed *ServerError) {
	_, _ = c.dialog.out.Write(dotStuffed(m.Raw)) // send returns its error
	if err := c.dialog.send("."); err != nil {
		// The last bytes may have been sent, so the server may have the whole mail.
		return "", c.server.failure(StepEnd, err)
	}
	_, reply, err := c.dialog.reply(250)
	if err != nil {
		return "", c.server.failure(StepEnd, err)
	}
	return receiptText(c.server.credentials.Text(reply), maxText), nil
}

// abortData ends a mail that the server expects after it has accepted DATA although the envelope
// failed. If the only recipient was refused, abortData sends a single dot (RFC 2920, section 3.1),
// because RSET would become a line of the mail; the mail has no recipients. If the recipient was
// accepted, it would get an empty mail, so the connection is closed instead, and so is one that is
// not used again.
func (c *connection) abortData(failed *ServerError, recipient error) {
	if answerIn(recipient).code < 400 || !failed.keepsConnection() {
		c.broken = true
		return
	}
	_, _, _ = c.dialog.ask(250, ".") // the RSET that follows checks the connection
}

// dotStuffed doubles each dot at the beginning of a line (RFC 5321, section 4.5.2). raw must begin
// with a header and end with a line end.
func dotStuffed(raw []byte) []byte {
	if !bytes.Contains(raw, []byte("\r\n.")) {
		return raw
	}
	return bytes.ReplaceAll(raw, []byte("\r\n."), []byte("\r\n.."))
}
