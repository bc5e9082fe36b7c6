package email

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// handedOver is a mail that the server took.
type handedOver struct {
	// reply is the server's final word.
	reply string
	// refused are the recipients that it does not take for good; all others get
	// the mail.
	refused []Refusal
}

// receipt is the proof, for instance
//
//	smtp 250 OK: queued as 7F3; <b@example.org> refused: 550 no such user
func (h handedOver) receipt() notification.Receipt {
	text := "smtp 250 " + h.reply
	if len(h.refused) > 0 {
		text += "; " + refusals(h.refused)
	}
	return notification.Receipt(text)
}

// transact is one mail transaction: MAIL FROM, RCPT TO, DATA, the mail.
//
// All recipients are in one transaction, and none is sent anything before the
// server has spoken about each: that alone keeps a retry, which knows nothing of
// the attempt before it, from reaching a recipient twice.
func (c *connection) transact(m *message) (handedOver, *ServerError) {
	if failed := c.fits(m); failed != nil {
		return handedOver{}, failed
	}
	// Behind a single recipient DATA can go along: if the recipient is refused, it
	// is answered with a refusal too, or begins a mail to nobody. With several, it
	// would begin the mail to those who are accepted, and only hanging up would take
	// that back.
	pipelined, _ := c.client.Extension("PIPELINING")
	dataAhead := pipelined && len(m.to) == 1
	sized, _ := c.client.Extension("SIZE")
	commands := m.envelope(sized)
	if dataAhead {
		commands = append(commands, "DATA")
	}
	replies := c.converse(commands, pipelined)
	refused, failed := c.judge(m, replies)
	switch {
	case failed != nil:
		if dataAhead && len(replies) == len(commands) && replies[len(replies)-1] == nil {
			c.takeBack(replies[1])
		}
		return handedOver{}, failed
	case dataAhead:
		replies = replies[len(replies)-1:]
	default:
		replies = c.converse([]string{"DATA"}, false)
	}
	if replies[0] != nil {
		return handedOver{}, c.server.failure(StepData, replies[0])
	}
	reply, failed := c.sendBody(m)
	return handedOver{reply: reply, refused: refused}, failed
}

// fits says what the server told at the beginning that it does not take.
func (c *connection) fits(m *message) *ServerError {
	if offered, _ := c.client.Extension("SMTPUTF8"); m.utf8 && !offered {
		failed := c.server.failure(StepFrom, ErrNoSMTPUTF8)
		failed.ofMail = isASCII(m.from)
		return failed
	}
	_, limit := c.client.Extension("SIZE") // RFC 1870; 0 or nothing is no limit
	if most, err := strconv.Atoi(limit); err == nil && most > 0 && len(m.raw) > most {
		failed := c.server.failure(StepFrom, fmt.Errorf("%w: the mail has %d bytes, the server takes %d", ErrTooLarge, len(m.raw), most))
		failed.ofMail = true
		return failed
	}
	return nil
}

// envelope is the commands that name sender and recipients. With sized the
// server learns how large the mail is, and can refuse it before it is sent.
func (m *message) envelope(sized bool) []string {
	commands := make([]string, 0, len(m.to)+2)
	from := "MAIL FROM:<" + m.from + ">"
	if m.utf8 {
		// Asked for without need, the extension keeps the mail from servers further
		// on that lack it.
		from += " BODY=8BITMIME SMTPUTF8"
	}
	if sized {
		from += " SIZE=" + strconv.Itoa(len(m.raw))
	}
	commands = append(commands, from)
	for _, address := range m.to {
		commands = append(commands, "RCPT TO:<"+address+">")
	}
	return commands
}

// converse sends commands and reads the reply to each; nil is a good one. Where
// the server takes them pipelined (RFC 2920), all go at once: that saves a round
// trip for each. Otherwise it stops where the rest would make no sense. Replies
// also end where the server hung up.
func (c *connection) converse(commands []string, pipelined bool) []error {
	if pipelined {
		for _, command := range commands {
			_, _ = c.client.Text.W.WriteString(command + "\r\n") // Flush returns its error
		}
		if err := c.client.Text.W.Flush(); err != nil {
			return []error{err}
		}
	}
	replies := make([]error, 0, len(commands))
	for i, command := range commands {
		var err error
		if !pipelined {
			err = c.client.Text.PrintfLine("%s", command)
		}
		if err == nil {
			wanted := 25 // 250, 251, 252
			if command == "DATA" {
				wanted = 354
			}
			_, _, err = c.client.Text.ReadResponse(wanted)
		}
		replies = append(replies, without(c.server.credentials, err))
		if hungUp(err) || (err != nil && i == 0 && !pipelined) {
			break
		}
	}
	return replies
}

// judge looks at the replies to an envelope. Recipients refused for good are
// left out of the mail as long as there are others. One that is refused for the
// moment ends the transaction for all: sent to the others now, the mail would
// reach them again with the retry. Of several such refusals the one that says
// most about the sink counts.
func (c *connection) judge(m *message, replies []error) (refused []Refusal, failed *ServerError) {
	if replies[0] != nil {
		failed = c.server.failure(StepFrom, replies[0])
		failed.ofMail = answerIn(replies[0]).refusesWhatIsSaidOf(m)
		return nil, failed
	}
	var decides error
	var worst sinks.Class
	for i, err := range replies[1:min(len(replies), len(m.to)+1)] {
		if err == nil {
			continue
		}
		a := answerIn(err)
		if a.code == 0 {
			return nil, c.server.failure(StepTo, err)
		}
		refused = append(refused, Refusal{Address: m.to[i], Err: err})
		// Transient is the least of the classes, then throttled, then unavailable.
		if class, _ := a.class(StepTo); class != sinks.ClassPermanent && (decides == nil || class > worst) {
			decides, worst = err, class
		}
	}
	if decides == nil && len(refused) == len(m.to) {
		decides = refused[0].Err
	}
	if decides == nil {
		return refused, nil
	}
	failed = c.server.failure(StepTo, decides)
	failed.Refused = refused
	return nil, failed
}

// sendBody sends the mail itself, after the server has answered DATA.
func (c *connection) sendBody(m *message) (reply string, failed *ServerError) {
	w := c.client.Text.W
	_, _ = w.Write(dotStuffed(m.raw))
	_, _ = w.WriteString(".\r\n")
	if err := w.Flush(); err != nil {
		// The last bytes may have gone out, so the server may have all of it.
		return "", c.server.failure(StepEnd, err)
	}
	_, reply, err := c.client.Text.ReadResponse(250)
	if err != nil {
		return "", c.server.failure(StepEnd, err)
	}
	return receiptText(c.server.credentials.Text(reply)), nil
}

// takeBack ends the mail that the server waits for behind a refusal. Where the
// only recipient is refused, that takes a dot alone (RFC 2920, section 3.1): RSET
// would be a line of the mail. Whatever the server says to it, nobody gets
// anything. A recipient that is accepted would get an empty mail; hanging up
// sends none.
func (c *connection) takeBack(recipient error) {
	if answerIn(recipient).code < 400 {
		c.spoilt = true
		return
	}
	if c.client.Text.PrintfLine(".") == nil {
		_, _, _ = c.client.Text.ReadResponse(250) // RSET finds out whether the conversation goes on
	}
}

// dotStuffed doubles a dot at the beginning of a line (RFC 5321, section 4.5.2).
// raw begins with a header and ends with a line end.
func dotStuffed(raw []byte) []byte {
	if !bytes.Contains(raw, []byte("\r\n.")) {
		return raw
	}
	return bytes.ReplaceAll(raw, []byte("\r\n."), []byte("\r\n.."))
}
