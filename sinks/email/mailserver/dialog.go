package mailserver

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"strings"

	"github.com/waybill-go/waybill/sinks/internal/line"
)

// Bounds of a reply. They hold for anyone who answers at the server's address, also before TLS and
// authentication.
const (
	// maxLine is how much of a line is kept, in bytes: RFC 5321, section 4.5.3.1.5, allows 512.
	maxLine = 4 << 10
	// maxLines is the largest number of lines of a reply. EHLO has one for each extension.
	maxLines = 1000
	// maxReplyBytes is the largest reply.
	maxReplyBytes = 128 << 10
)

// dialog is a conversation in SMTP (RFC 5321) over a connection: commands and their replies. Only one
// goroutine may use it at a time. After an error that is not a *textproto.Error it cannot go on.
type dialog struct {
	conn net.Conn
	in   *bufio.Reader
	out  *bufio.Writer

	encrypted  bool
	extensions map[string]string // parameters by keyword, which is in upper case
	mechanisms []string          // of AUTH, in upper case
}

func newDialog(conn net.Conn) *dialog {
	d := new(dialog)
	d.use(conn)
	return d
}

// use goes on over a connection.
func (d *dialog) use(conn net.Conn) {
	d.conn, d.in, d.out = conn, bufio.NewReaderSize(conn, maxLine), bufio.NewWriter(conn)
	_, d.encrypted = conn.(*tls.Conn)
}

// ask sends a command and returns the reply, see reply.
func (d *dialog) ask(wanted int, command string) (code int, text string, err error) {
	if err := d.send(command); err != nil {
		return 0, "", err
	}
	return d.reply(wanted)
}

// send sends commands, or answers, at once.
func (d *dialog) send(lines ...string) error {
	for _, line := range lines {
		_, _ = d.out.WriteString(line + "\r\n") // Flush returns its error
	}
	return d.out.Flush()
}

// reply reads a reply. If its code does not begin with the digits of wanted, the reply is the error,
// as *textproto.Error; every code begins with 0. The lines of its text, which may be empty, are
// separated by line feeds.
func (d *dialog) reply(wanted int) (code int, text string, err error) {
	var lines []string
	left := maxReplyBytes
	for more := true; more; {
		read, err := d.line(&left)
		if err != nil {
			return 0, "", err
		}
		given, goesOn, rest := parseReplyLine(read)
		switch {
		case len(lines) == 0 && given == 0:
			return 0, "", fmt.Errorf("%w: %q", ErrReply, line.Of(string(read), maxText))
		case len(lines) == 0:
			code, more = given, goesOn
		case given == 0:
			rest = string(read) // some servers leave out the code inside of a reply, as FTP allows
		case given != code:
			return 0, "", fmt.Errorf("%w: a line with code %d in a reply with code %d", ErrReply, given, code)
		default:
			more = goesOn
		}
		if lines = append(lines, rest); len(lines) > maxLines {
			return 0, "", fmt.Errorf("%w: more than %d lines", ErrReply, maxLines)
		}
	}
	text = strings.Join(lines, "\n")
	if !beginsWith(code, wanted) {
		return code, text, &textproto.Error{Code: code, Msg: text}
	}
	return code, text, nil
}

// line reads a line, takes its length from left, and returns its beginning without the line end.
func (d *dialog) line(left *int) ([]byte, error) {
	part, err := d.in.ReadSlice('\n')
	line := bytes.Clone(part)
	for *left -= len(part); errors.Is(err, bufio.ErrBufferFull) && *left >= 0; *left -= len(part) {
		part, err = d.in.ReadSlice('\n')
	}
	if *left < 0 {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrReply, maxReplyBytes)
	}
	return bytes.TrimRight(line, "\r\n"), err
}

// parseReplyLine parses a line of a reply: RFC 5321, section 4.2. Space and text are optional. The
// code is 0 if there is none.
func parseReplyLine(line []byte) (code int, more bool, text string) {
	if len(line) < 3 {
		return 0, false, ""
	}
	for _, digit := range line[:3] {
		if digit < '0' || digit > '9' {
			return 0, false, ""
		}
		code = code*10 + int(digit-'0')
	}
	switch {
	case code < 100:
		return 0, false, ""
	case len(line) == 3:
		return code, false, ""
	case line[3] != ' ' && line[3] != '-':
		return 0, false, ""
	}
	return code, line[3] == '-', string(line[4:])
}

// beginsWith reports whether a code begins with digits, such as 250 with 25; 0 means any code.
func beginsWith(code, digits int) bool {
	for code > digits {
		code /= 10
	}
	return code == digits
}

// hello introduces this machine with EHLO, or with HELO to a server that refuses EHLO.
func (d *dialog) hello(name string) error {
	d.extensions, d.mechanisms = nil, nil
	_, text, err := d.ask(250, "EHLO "+name)
	if err == nil {
		d.learn(text)
		return nil
	}
	if answerIn(err).code/100 == 5 {
		if _, _, refused := d.ask(250, "HELO "+name); refused == nil {
			return nil
		}
	}
	return err
}

// learn keeps the extensions in the reply to EHLO. Keywords may be in any case (RFC 5321, section
// 4.1.1.1). Old servers offer AUTH=LOGIN, some beside AUTH LOGIN.
func (d *dialog) learn(text string) {
	d.extensions = make(map[string]string)
	_, offered, _ := strings.Cut(text, "\n")
	for line := range strings.Lines(offered) {
		words := strings.Fields(strings.ToUpper(line))
		if len(words) == 0 {
			continue
		}
		if old, ok := strings.CutPrefix(words[0], "AUTH="); ok {
			words = append([]string{"AUTH", old}, words[1:]...)
		}
		if words[0] == "AUTH" {
			d.mechanisms = append(d.mechanisms, words[1:]...)
		}
		d.extensions[words[0]] = strings.Join(words[1:], " ")
	}
}

// offers reports whether the server has an extension, and returns its parameters.
func (d *dialog) offers(extension string) (parameters string, ok bool) {
	parameters, ok = d.extensions[extension]
	return parameters, ok
}

// startTLS encrypts the connection.
func (d *dialog) startTLS(ctx context.Context, config *tls.Config, name string) error {
	if _, _, err := d.ask(220, "STARTTLS"); err != nil {
		return err
	}
	if d.in.Buffered() > 0 {
		return fmt.Errorf("%w: there is more after the reply to STARTTLS, which someone on the network path may have added", ErrReply)
	}
	encrypted := tls.Client(d.conn, config)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		return err
	}
	d.use(encrypted)
	return d.hello(name)
}
