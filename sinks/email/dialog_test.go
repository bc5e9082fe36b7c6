package email_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/mailserver"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// odd is a server whose replies, byte for byte, the test chooses.
type odd struct {
	// say returns the reply to a command of a connection, which counts from 1. The command of
	// the greeting is "", that of the end of a mail ".". If it returns "", the usual one is given.
	say func(connection int, command string) string

	address     string
	mails       atomic.Int32
	connections atomic.Int32
	mu          sync.Mutex
	commands    []string // of all connections
}

func startOdd(t *testing.T, say func(connection int, command string) string) *odd {
	t.Helper()
	s := &odd{say: say}
	s.address = servertest.Serve(t, func(conn net.Conn) { s.converse(conn, int(s.connections.Add(1))) })
	return s
}

func (s *odd) converse(conn net.Conn, number int) {
	in := bufio.NewReader(conn)
	s.reply(conn, number, "")
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		command := strings.TrimRight(line, "\r\n")
		s.mu.Lock()
		s.commands = append(s.commands, command)
		s.mu.Unlock()
		if !strings.HasPrefix(s.reply(conn, number, command), "354") {
			continue
		}
		for line != ".\r\n" {
			if line, err = in.ReadString('\n'); err != nil {
				return
			}
		}
		if strings.HasPrefix(s.reply(conn, number, "."), "250") {
			s.mails.Add(1)
		}
	}
}

func (s *odd) reply(conn net.Conn, number int, command string) string {
	reply := s.say(number, command)
	if reply == "" {
		reply = map[string]string{"": "220 ready\r\n", "DATA": "354 go on\r\n", "QUIT": "221 bye\r\n"}[command]
	}
	if reply == "" {
		reply = "250 fine\r\n"
	}
	_, _ = io.WriteString(conn, reply)
	return reply
}

// received returns the commands of all connections so far.
func (s *odd) received() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.commands)
}

func (s *odd) url(user string) string { return "smtp://" + user + s.address }

// verb returns the first word of a command.
func verb(command string) string {
	word, _, _ := strings.Cut(command, " ")
	return word
}

func TestAReplyMayHaveAnyFormThatItsCodeLeavesClear(t *testing.T) {
	codes := map[string]string{"": "220", "EHLO": "250", "MAIL": "250", "RCPT": "250", "DATA": "354", ".": "250", "QUIT": "221"}
	forms := map[string]func(code string) string{
		"the code alone":               func(code string) string { return code + "\r\n" },
		"the code and a space":         func(code string) string { return code + " \r\n" },
		"a line feed alone":            func(code string) string { return code + " ok\n" },
		"two lines, the code alone":    func(code string) string { return code + "-a\r\n" + code + "\r\n" },
		"a line without a code inside": func(code string) string { return code + "-a\r\nb\r\n" + code + " c\r\n" },
		"no UTF-8":                     func(code string) string { return code + " \xe4\xf6\r\n" },
		"a line of 3,000 bytes":        func(code string) string { return code + " " + strings.Repeat("x", 3000) + "\r\n" },
		"a line of 70,000 bytes":       func(code string) string { return code + " " + strings.Repeat("x", 70000) + "\r\n" },
		"500 lines":                    func(code string) string { return strings.Repeat(code+"-x\r\n", 499) + code + " x\r\n" },
	}
	for name, form := range forms {
		for at, code := range codes {
			t.Run(name+" at "+at, func(t *testing.T) {
				t.Parallel()
				server := startOdd(t, func(_ int, command string) string {
					if verb(command) == at {
						return form(code)
					}
					return ""
				})
				sink := newSink(t, email.Config{SMTP: server.url("")})
				_, err := sink.Deliver(within(t), delivery(jane))
				require.NoError(t, err)
				require.NoError(t, sink.Close(within(t)))
				assert.EqualValues(t, 1, server.mails.Load())
			})
		}
	}
}

func TestAReplyOfAnotherProtocolOrWithTwoCodesIsAnError(t *testing.T) {
	for name, reply := range map[string]string{
		"two codes":        "250-a\r\n550 b\r\n",
		"no code":          "hello\r\n",
		"a short line":     "25\r\n",
		"an empty line":    "\r\n",
		"no space":         "250ok\r\n",
		"a small code":     "099 ok\r\n",
		"1,001 lines":      strings.Repeat("250-x\r\n", 1000) + "250 x\r\n",
		"too many bytes":   "250 " + strings.Repeat("x", 200_000) + "\r\n",
		"control sequence": "\x1b[31mred\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startOdd(t, func(_ int, command string) string {
				if verb(command) == "RCPT" {
					return reply
				}
				return ""
			})
			_, err := newSink(t, email.Config{SMTP: server.url("")}).Deliver(within(t), delivery(jane))
			assert.Equal(t, sinks.ClassTransient, sinktest.Class(err), "%v", err)
			require.ErrorIs(t, err, mailserver.ErrReply)
			assert.NotContains(t, err.Error(), "\x1b")
			assert.Zero(t, server.mails.Load())
		})
	}
}

// flood writes a text to a connection, without end, after the lines of prelude have been answered.
func flood(t *testing.T, prelude []string, text string) (address string) {
	t.Helper()
	return servertest.Serve(t, func(conn net.Conn) {
		in := bufio.NewReader(conn)
		for _, line := range prelude {
			_, _ = io.WriteString(conn, line)
			if _, err := in.ReadString('\n'); err != nil {
				return
			}
		}
		var err error
		for block := bytes.Repeat([]byte(text), 1+32<<10/len(text)); err == nil; {
			_, err = conn.Write(block)
		}
	})
}

// counting counts the bytes that are read from a connection.
type counting struct {
	net.Conn
	read *atomic.Int64
}

func (c counting) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

func TestAReplyWithoutEndIsReadToABound(t *testing.T) {
	hello := []string{"220 ready\r\n"}
	mail := append(hello, "250 hello\r\n")
	for name, c := range map[string]struct {
		prelude []string
		text    string
	}{
		"a line in the greeting":      {nil, "2"},
		"lines in the greeting":       {nil, "220-" + strings.Repeat("x", 70) + "\r\n"},
		"empty lines in the greeting": {nil, "220-\r\n"},
		"a line after EHLO":           {hello, "250-x"},
		"lines after EHLO":            {hello, "250-SIZE\r\n"},
		"a line after MAIL":           {mail, "250 x"},
		"lines after MAIL":            {mail, "550-x\r\n"},
		"lines without a code":        {mail, "250-x\r\nx\r\nx\r\n"},
		"NULs":                        {mail, "\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, read := flood(t, c.prelude, c.text), new(atomic.Int64)
			sink, err := email.New(sinks.Instance{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, address)
				return counting{conn, read}, err
			}}, email.Config{SMTP: "smtp://" + address, From: "a@example.com", FS: signedUp})
			require.NoError(t, err)
			_, err = sink.Deliver(within(t), delivery(jane))
			require.ErrorIs(t, err, mailserver.ErrReply)
			assert.Less(t, len(err.Error()), 1000)
			require.NoError(t, sink.Close(within(t)))
			assert.Less(t, read.Load(), int64(256<<10))
		})
	}
}

func TestKeywordsOfEHLOCountInAnyCase(t *testing.T) {
	server := startOdd(t, func(_ int, command string) string {
		switch verb(command) {
		case "EHLO":
			return "250-me\r\n250-starttls\r\n250 size 10\r\n"
		case "STARTTLS":
			return "454 not now\r\n"
		}
		return ""
	})
	_, err := newSink(t, email.Config{SMTP: server.url("")}).Deliver(within(t), delivery(jane))
	assert.Equal(t, sinks.ClassUnavailable, sinktest.Class(err))
	require.ErrorContains(t, err, "454: not now", "the mail is not sent in clear text")

	_, err = newSink(t, email.Config{SMTP: server.url(""), TLS: mailserver.TLSNone}).Deliver(within(t), delivery(jane))
	require.ErrorIs(t, err, mailserver.ErrTooLarge)
	assert.ErrorContains(t, err, "the server accepts 10")
}

func TestNothingThatComesBeforeTLSCountsAfterIt(t *testing.T) {
	server := startOdd(t, func(_ int, command string) string {
		switch verb(command) {
		case "EHLO":
			return "250-me\r\n250 STARTTLS\r\n"
		case "STARTTLS":
			return "220 go\r\n250-injected\r\n250 AUTH PLAIN\r\n"
		}
		return ""
	})
	_, err := newSink(t, email.Config{SMTP: server.url("")}).Deliver(within(t), delivery(jane))
	require.ErrorIs(t, err, mailserver.ErrReply)
	assert.ErrorContains(t, err, "someone on the network path")
}

func TestAServerWithoutEHLOGetsHELO(t *testing.T) {
	for _, code := range []int{500, 502, 550} {
		server := startOdd(t, func(_ int, command string) string {
			if verb(command) == "EHLO" {
				return fmt.Sprintf("%d no\r\n", code)
			}
			return ""
		})
		_, err := newSink(t, email.Config{SMTP: server.url("")}).Deliver(within(t), delivery(jane))
		require.NoError(t, err)
	}
}

// offering answers AUTH. accepts maps a mechanism to the answer to its last line.
func offering(offers string, accepts map[string]string) func(int, string) string {
	var mechanism string
	return func(_ int, command string) string {
		words := strings.Fields(command)
		switch {
		case verb(command) == "EHLO":
			return "250-me\r\n250-" + strings.ReplaceAll(offers, "\r\n250 ", "\r\n250-") + "\r\n250 SIZE\r\n"
		case verb(command) == "AUTH":
			mechanism = words[1]
			if mechanism == "LOGIN" && accepts[mechanism] != "" {
				return "334 User Name\r\n"
			}
			return accepts[mechanism] + "\r\n"
		case command == base64.StdEncoding.EncodeToString([]byte("us")):
			return "334 " + base64.StdEncoding.EncodeToString([]byte("Password\x00")) + "\r\n"
		case command == base64.StdEncoding.EncodeToString([]byte("secret")):
			return accepts[mechanism] + "\r\n"
		case command == "*":
			return "501 cancelled\r\n"
		}
		return ""
	}
}

func TestTheBestMechanismThatTheServerAcceptsAuthenticates(t *testing.T) {
	const no, badly, ok = "504 5.5.4 no", "535 5.7.8 bad", "235 ok"
	for name, c := range map[string]struct {
		offers  string
		accepts map[string]string
		uses    string // the mechanisms that are tried
		fails   string
	}{
		"lower case":                      {"auth plain login", map[string]string{"PLAIN": ok}, "PLAIN", ""},
		"the old form":                    {"AUTH=LOGIN", map[string]string{"LOGIN": ok}, "LOGIN", ""},
		"both forms":                      {"AUTH=PLAIN LOGIN\r\n250 AUTH GSSAPI", map[string]string{"PLAIN": ok}, "PLAIN", ""},
		"a reply without text":            {"AUTH PLAIN", map[string]string{"PLAIN": "235"}, "PLAIN", ""},
		"prompts that are not encoded":    {"AUTH LOGIN", map[string]string{"LOGIN": ok}, "LOGIN", ""},
		"SCRAM, not supported":            {"AUTH SCRAM-SHA-256 PLAIN", map[string]string{"SCRAM-SHA-256": no, "PLAIN": ok}, "SCRAM-SHA-256 PLAIN", ""},
		"SCRAM, no verifier":              {"AUTH SCRAM-SHA-256 SCRAM-SHA-1 PLAIN", map[string]string{"SCRAM-SHA-256": badly, "SCRAM-SHA-1": badly, "PLAIN": ok}, "SCRAM-SHA-256 SCRAM-SHA-1 PLAIN", ""},
		"PLAIN, not supported":            {"AUTH PLAIN LOGIN", map[string]string{"PLAIN": no, "LOGIN": ok}, "PLAIN LOGIN", ""},
		"a wrong password":                {"AUTH PLAIN LOGIN", map[string]string{"PLAIN": badly, "LOGIN": ok}, "PLAIN", "check user and password"},
		"a wrong password everywhere":     {"AUTH SCRAM-SHA-1 PLAIN LOGIN", map[string]string{"SCRAM-SHA-1": badly, "PLAIN": badly}, "SCRAM-SHA-1 PLAIN", "535"},
		"later":                           {"AUTH PLAIN LOGIN", map[string]string{"PLAIN": "454 4.7.0 later", "LOGIN": ok}, "PLAIN", "454"},
		"none":                            {"SIZE", nil, "", "offers none"},
		"none for passwords":              {"AUTH GSSAPI", nil, "", "offers GSSAPI"},
		"SCRAM with a billion iterations": {"AUTH SCRAM-SHA-1", map[string]string{"SCRAM-SHA-1": "334 " + base64.StdEncoding.EncodeToString([]byte("r=x,s=eA==,i=1000000000"))}, "SCRAM-SHA-1", "iterations"},
		"challenges without end":          {"AUTH CRAM-MD5", map[string]string{"CRAM-MD5": "334 eA=="}, "CRAM-MD5", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startOdd(t, offering(c.offers, c.accepts))
			sink := newSink(t, email.Config{SMTP: server.url("us:secret@")})
			_, err := sink.Deliver(within(t), delivery(jane))
			switch {
			case name == "challenges without end":
				require.Error(t, err)
			case c.fails != "":
				require.ErrorContains(t, err, c.fails)
				assert.Equal(t, sinks.ClassUnavailable, sinktest.Class(err))
			default:
				require.NoError(t, err)
			}
			var uses []string
			server.mu.Lock()
			defer server.mu.Unlock()
			for _, command := range server.commands {
				if verb(command) == "AUTH" {
					uses = append(uses, strings.Fields(command)[1])
				}
			}
			assert.Equal(t, c.uses, strings.Join(uses, " "))
		})
	}
}

func TestAConnectionThatRefusesIsNotAskedAgain(t *testing.T) {
	for _, c := range []struct{ at, answer string }{
		{"MAIL", "421 4.7.0 too many messages in this session"}, {"MAIL", "450 4.7.1 reconnect"}, {"MAIL", "451 4.3.0 backend lost"},
		{"MAIL", "452 4.5.3 too many messages in this session"}, {"MAIL", "503 5.5.1 bad sequence"}, {"MAIL", "530 5.7.0 authenticate first"},
		{"RCPT", "421"}, {"RCPT", "450 4.7.1 too many recipients in this session"}, {"RCPT", "451"}, {"RCPT", "503"}, {"RCPT", "530"},
		{"RCPT", "550 5.7.1 too many recipients in this session"},
		{"DATA", "451 4.3.0 backend lost"}, {"DATA", "503 5.5.1 bad sequence"}, {"DATA", "554 no"},
		{".", "451 4.3.0 backend lost"}, {".", "452 4.3.1 disk full"}, {".", "554 no"},
	} {
		t.Run(c.at+" "+c.answer, func(t *testing.T) {
			t.Parallel()
			asked := make(map[int]int)
			server := startOdd(t, func(connection int, command string) string {
				if verb(command) == c.at {
					if asked[connection]++; asked[connection] > 2 {
						return c.answer + "\r\n"
					}
				}
				return ""
			})
			sink := newSink(t, email.Config{SMTP: server.url(""), Connections: 1})
			var failed int
			for server.mails.Load() < 7 {
				if _, err := sink.Deliver(within(t), delivery(jane)); err != nil {
					failed++
				}
				require.LessOrEqual(t, failed, 3, "each refusal costs one attempt: 2 mails for each connection")
			}
			assert.EqualValues(t, 4, server.connections.Load())
		})
	}
}

func TestARefusalByTheDestinationClosesAllIdleConnections(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	var refuses atomic.Bool
	server := startServer(t, smtptest.Config{
		OnMessage: func(context.Context, smtptest.Message) error {
			if !refuses.Load() {
				both.Done()
				both.Wait()
			}
			return nil
		},
		OnFrom: func(context.Context, string) error {
			if refuses.CompareAndSwap(true, false) {
				both.Add(1)
				return smtptest.Reply(451, "4.3.0 backend lost")
			}
			return nil
		},
	})
	sink := newSink(t, email.Config{SMTP: server.URL(), Connections: 2})
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			_, err := sink.Deliver(within(t), delivery(jane))
			assert.NoError(t, err)
		})
	}
	group.Wait()
	require.Equal(t, 2, server.Connections())
	refuses.Store(true)
	_, err := sink.Deliver(within(t), delivery(jane))
	require.Error(t, err)
	_, err = sink.Deliver(within(t), delivery(jane))
	require.NoError(t, err)
	assert.Equal(t, 3, server.Connections(), "neither of the two is used again")
}

func TestTheServersTextsAreCutAndHaveNoControlCharacters(t *testing.T) {
	hostile := "no\x1b[31m \u202ered\x07 " + strings.Repeat("x", 5000)
	for at, code := range map[string]string{"": "554", "EHLO": "554", "MAIL": "554", "RCPT": "550", "DATA": "554", ".": "554"} {
		server := startOdd(t, func(_ int, command string) string {
			if verb(command) == at || (at == "EHLO" && verb(command) == "HELO") {
				return code + " " + hostile + "\r\n"
			}
			return ""
		})
		_, err := newSink(t, email.Config{SMTP: server.url("")}).Deliver(within(t), delivery(jane))
		require.ErrorContains(t, err, code)
		assert.NotContains(t, sinks.Brief(err), "xxx")
		answer := sinks.AnswerOf(err)
		assert.Contains(t, answer, "no [31m red xxx")
		assert.Equal(t, at == "RCPT", strings.HasPrefix(answer, "<jane@example.org> refused: 550; "), answer)
		assert.NotContains(t, sinks.Brief(err), "jane")
		assert.NotContains(t, answer, "\u202e")
		assert.LessOrEqual(t, len(answer), sinks.MaxAnswer)
	}
	server := startOdd(t, func(_ int, command string) string {
		if command == "." {
			return "250 2.0.0 " + hostile + "\r\n"
		}
		return ""
	})
	receipt, err := newSink(t, email.Config{SMTP: server.url("")}).Deliver(within(t), delivery(jane))
	require.NoError(t, err)
	assert.EqualValues(t, "smtp 250 no [31m red "+strings.Repeat("x", 188)+"…", receipt)
}
