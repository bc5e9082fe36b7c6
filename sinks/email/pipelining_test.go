package email_test

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/mailserver"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// hangUp, instead of a reply, closes the connection.
const hangUp = ""

// scripted is a server with a list of replies to the commands after EHLO and to the dot that ends a
// mail, in order. After the list it accepts everything. It closes the connection after a 421.
type scripted struct {
	replies []string
	// group is how many commands the server reads before it answers the first of them. Above 1,
	// it offers PIPELINING. With 1, it records whether a command comes before the answer to the
	// previous one.
	group int

	mu       sync.Mutex
	commands [][]string // of each connection
	mails    []string
	early    bool
}

func (s *scripted) converse(conn net.Conn) {
	s.mu.Lock()
	number := len(s.commands)
	s.commands = append(s.commands, nil)
	s.mu.Unlock()
	hello := "250 hello"
	if s.group > 1 {
		hello = "250-hello\r\n250 PIPELINING"
	}
	in := bufio.NewReader(conn)
	_, _ = io.WriteString(conn, "220 ready\r\n")
	if _, err := in.ReadString('\n'); err != nil {
		return
	}
	_, _ = io.WriteString(conn, hello+"\r\n")
	for size := s.group; ; size = 1 {
		group := make([]string, size)
		for i := range group {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			group[i] = strings.Fields(line)[0]
			s.mu.Lock()
			s.commands[number] = append(s.commands[number], group[i])
			s.early = s.early || (s.group == 1 && in.Buffered() > 0)
			s.mu.Unlock()
		}
		for _, command := range group {
			reply := s.answer(conn, command)
			if strings.HasPrefix(reply, "354") {
				var ok bool
				if reply, ok = s.takeMail(conn, in, number); !ok {
					return
				}
			}
			if reply == hangUp || strings.HasPrefix(reply, "421") {
				return
			}
		}
	}
}

// answer sends the reply to a command, and returns it.
func (s *scripted) answer(conn net.Conn, command string) (reply string) {
	s.mu.Lock()
	switch {
	case len(s.replies) > 0:
		reply, s.replies = s.replies[0], s.replies[1:]
	case command == "DATA":
		reply = "354 go on"
	default:
		reply = "250 fine"
	}
	s.mu.Unlock()
	if reply != hangUp {
		_, _ = io.WriteString(conn, reply+"\r\n")
	}
	return reply
}

// takeMail reads a mail and answers its dot. ok is false if the client closes the connection first.
func (s *scripted) takeMail(conn net.Conn, in *bufio.Reader, number int) (reply string, ok bool) {
	var mail strings.Builder
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return "", false
		}
		if line == ".\r\n" {
			break
		}
		mail.WriteString(line)
	}
	s.mu.Lock()
	s.commands[number] = append(s.commands[number], ".")
	s.mails = append(s.mails, mail.String())
	s.mu.Unlock()
	return s.answer(conn, "."), true
}

func TestTheAnswersToPipelinedCommands(t *testing.T) {
	const (
		one          = 3 // MAIL, RCPT, DATA
		three        = 4 // MAIL and three RCPT
		noRecipients = "554 no valid recipients"
	)
	for name, c := range map[string]struct {
		group    int
		replies  []string
		class    sinks.Class     // of the error
		step     mailserver.Step // "": it succeeds
		commands string
		reused   bool // the next mail uses the same connection
	}{
		"accepted":        {one, nil, 0, "", "MAIL RCPT DATA .", true},
		"three accepted":  {three, nil, 0, "", "MAIL RCPT RCPT RCPT DATA .", true},
		"one of three is": {three, []string{"250 ok", "550 no", "250 ok", "551 no"}, 0, "", "MAIL RCPT RCPT RCPT DATA .", true},

		"recipient refused":                      {one, []string{"250 ok", "550 no such user", "503 no recipients"}, sinks.ClassInvalid, mailserver.StepTo, "MAIL RCPT DATA RSET", true},
		"recipient refused, perhaps all are":     {one, []string{"250 ok", "550 no relaying", "503 no recipients"}, sinks.ClassPermanent, mailserver.StepTo, "MAIL RCPT DATA", false},
		"a full mailbox":                         {one, []string{"250 ok", "452 4.2.2 full", "503 no recipients"}, sinks.ClassTransient, mailserver.StepTo, "MAIL RCPT DATA RSET", true},
		"recipient refused temporarily":          {one, []string{"250 ok", "450 later", "503 no recipients"}, sinks.ClassTransient, mailserver.StepTo, "MAIL RCPT DATA", false},
		"one of three refused temporarily":       {three, []string{"250 ok", "250 ok", "450 later", "250 ok"}, sinks.ClassTransient, mailserver.StepTo, "MAIL RCPT RCPT RCPT", false},
		"an empty mail":                          {one, []string{"250 ok", "550 no such user", "354 go on", noRecipients}, sinks.ClassInvalid, mailserver.StepTo, "MAIL RCPT DATA . RSET", true},
		"an empty mail is accepted":              {one, []string{"250 ok", "450 later", "354 go on", "250 ok"}, sinks.ClassTransient, mailserver.StepTo, "MAIL RCPT DATA", false},
		"an empty mail, then hang up":            {one, []string{"250 ok", "550 no such user", "354 go on", hangUp}, sinks.ClassInvalid, mailserver.StepTo, "MAIL RCPT DATA .", false},
		"an empty mail, then 421":                {one, []string{"250 ok", "550 no such user", "354 go on", "421 bye"}, sinks.ClassInvalid, mailserver.StepTo, "MAIL RCPT DATA .", false},
		"sender refused":                         {one, []string{"550 no", "503 sender?", "503 no recipients"}, sinks.ClassUnavailable, mailserver.StepFrom, "MAIL RCPT DATA", false},
		"sender refused, an empty mail":          {one, []string{"550 no", "503 sender?", "354 go on", noRecipients}, sinks.ClassUnavailable, mailserver.StepFrom, "MAIL RCPT DATA", false},
		"sender refused, and recipient accepted": {one, []string{"550 no", "250 ok", "354 go on"}, sinks.ClassUnavailable, mailserver.StepFrom, "MAIL RCPT DATA", false},
		"mail refused":                           {one, []string{"250 ok", "250 ok", "554 no"}, sinks.ClassPermanent, mailserver.StepData, "MAIL RCPT DATA", false},

		"closed at the sender":          {one, []string{hangUp}, sinks.ClassUnavailable, mailserver.StepFrom, "MAIL RCPT DATA", false},
		"closed at the recipient":       {one, []string{"250 ok", hangUp}, sinks.ClassTransient, mailserver.StepTo, "MAIL RCPT DATA", false},
		"closed at the second of three": {three, []string{"250 ok", "250 ok", hangUp}, sinks.ClassTransient, mailserver.StepTo, "MAIL RCPT RCPT RCPT", false},
		"closed at the mail":            {one, []string{"250 ok", "250 ok", hangUp}, sinks.ClassTransient, mailserver.StepData, "MAIL RCPT DATA", false},
		"closed at its end":             {one, []string{"250 ok", "250 ok", "354 go on", hangUp}, sinks.ClassTransient, mailserver.StepEnd, "MAIL RCPT DATA .", false},

		"421 at the sender":          {one, []string{"421 bye"}, sinks.ClassUnavailable, mailserver.StepFrom, "MAIL RCPT DATA", false},
		"421 at the recipient":       {one, []string{"250 ok", "421 bye"}, sinks.ClassUnavailable, mailserver.StepTo, "MAIL RCPT DATA", false},
		"421 at the second of three": {three, []string{"250 ok", "250 ok", "421 bye"}, sinks.ClassUnavailable, mailserver.StepTo, "MAIL RCPT RCPT RCPT", false},
		"421 at the mail":            {one, []string{"250 ok", "250 ok", "421 bye"}, sinks.ClassUnavailable, mailserver.StepData, "MAIL RCPT DATA", false},
		"421 at its end":             {one, []string{"250 ok", "250 ok", "354 go on", "421 bye"}, sinks.ClassUnavailable, mailserver.StepEnd, "MAIL RCPT DATA .", false},
		"421 too many connections":   {one, []string{"250 ok", "421 too many connections"}, sinks.ClassThrottled, mailserver.StepTo, "MAIL RCPT DATA", false},

		"one by one":                    {1, nil, 0, "", "MAIL RCPT DATA .", true},
		"one by one, recipient refused": {1, []string{"250 ok", "550 no such user"}, sinks.ClassInvalid, mailserver.StepTo, "MAIL RCPT RSET", true},
		"one by one, sender refused":    {1, []string{"550 no"}, sinks.ClassUnavailable, mailserver.StepFrom, "MAIL", false},
		"one by one, 421":               {1, []string{"250 ok", "421 bye"}, sinks.ClassUnavailable, mailserver.StepTo, "MAIL RCPT", false},
	} {
		t.Run(name, func(t *testing.T) {
			server := &scripted{replies: c.replies, group: c.group}
			config := email.Config{SMTP: "smtp://" + servertest.Serve(t, server.converse), Timeout: 15 * time.Second}
			if c.group == three {
				config.FS = toThree
			}
			sink := newSink(t, config)
			_, err := sink.Deliver(within(t), delivery(jane))
			var failed *mailserver.ServerError
			if c.step == "" {
				require.NoError(t, err)
			} else {
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, c.step, failed.Step)
				assert.Equal(t, c.class, sinktest.Class(err), "%v", err)
			}
			server.mu.Lock()
			assert.Equal(t, c.commands, strings.TrimSuffix(strings.Join(server.commands[0], " "), " QUIT"))
			for i, mail := range server.mails {
				if failed != nil && failed.Step != mailserver.StepEnd {
					assert.Empty(t, mail, "mail %d: no recipient should get one", i)
				}
			}
			before := len(server.mails)
			server.replies = nil
			server.mu.Unlock()

			_, err = sink.Deliver(within(t), delivery(jane))
			require.NoError(t, err)
			server.mu.Lock()
			defer server.mu.Unlock()
			assert.Equal(t, c.reused, len(server.commands) == 1, "connections: %v", server.commands)
			assert.Len(t, server.mails, before+1)
			assert.Contains(t, server.mails[before], "Message-Id: <0197f3c2")
			assert.False(t, server.early, "a command that came too early")
		})
	}
}
