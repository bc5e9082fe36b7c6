package email_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/mailserver"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// toThree has templates for three recipients.
var toThree = folder("customer.signed-up", map[string]string{
	"to.tmpl": "a@example.org, b@example.org", "cc.tmpl": "c@example.org", "subject.tmpl": "s", "text.tmpl": "t",
})

// replying refuses each recipient in codes with its code.
func replying(codes map[string]int) func(context.Context, string) error {
	return func(_ context.Context, to string) error {
		if code := codes[to]; code != 0 {
			return smtptest.Reply(code, "no "+to)
		}
		return nil
	}
}

func TestTheReceiptNamesPermanentlyRefusedRecipientsAndTheLogCountsThem(t *testing.T) {
	for _, sequential := range []bool{false, true} {
		server := startServer(t, smtptest.Config{Sequential: sequential, OnRecipient: replying(map[string]int{"b@example.org": 550})})
		var log strings.Builder
		sink, err := email.New(sinks.Instance{Name: "mail", Logger: slog.New(slog.NewTextHandler(&log, nil))},
			email.Config{SMTP: server.URL(), From: "shop@example.com", FS: toThree})
		require.NoError(t, err)

		receipt, err := sink.Deliver(within(t), delivery(`{}`))
		require.NoError(t, err)
		require.NoError(t, sink.Close(within(t)))

		assert.EqualValues(t, "smtp 250 OK: queued as 1; <b@example.org> refused: 550 5.0.0", receipt)
		require.Equal(t, 1, server.Count())
		assert.Equal(t, []string{"a@example.org", "c@example.org"}, server.Messages()[0].To)
		assert.Contains(t, log.String(), "level=WARN")
		assert.Contains(t, log.String(), "refused=\"1 recipient refused: 550 5.0.0\"")
		assert.NotContains(t, log.String(), "example.org", "addresses are private data")
		assert.Contains(t, log.String(), "id=0197f3c2")
	}
}

func TestATemporarilyRefusedRecipientDelaysTheMailForAll(t *testing.T) {
	for name, c := range map[string]struct {
		codes map[string]int
		class sinks.Class
		says  []string
	}{
		"one temporarily":         {map[string]int{"b@example.org": 450}, sinks.ClassTransient, []string{"<b@example.org> refused: 450"}},
		"another permanently":     {map[string]int{"a@example.org": 550, "c@example.org": 451}, sinks.ClassTransient, []string{"<a@example.org> refused: 550", "<c@example.org> refused: 451"}},
		"all permanently":         {map[string]int{"a@example.org": 550, "b@example.org": 551, "c@example.org": 550}, sinks.ClassPermanent, []string{"<b@example.org> refused: 551"}},
		"bad sequence":            {map[string]int{"a@example.org": 450, "b@example.org": 503}, sinks.ClassUnavailable, []string{"503"}},
		"not authenticated":       {map[string]int{"b@example.org": 530}, sinks.ClassUnavailable, []string{"check user and password"}},
		"the server is closing":   {map[string]int{"a@example.org": 550, "b@example.org": 421}, sinks.ClassUnavailable, []string{"421"}},
		"closing after a refusal": {map[string]int{"a@example.org": 450, "b@example.org": 421}, sinks.ClassUnavailable, []string{"421"}},
	} {
		for _, sequential := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, sequential %t", name, sequential), func(t *testing.T) {
				server := startServer(t, smtptest.Config{Sequential: sequential, OnRecipient: replying(c.codes)})
				sink := newSink(t, email.Config{SMTP: server.URL(), FS: toThree})
				_, err := sink.Deliver(within(t), delivery(`{}`))
				assert.Equal(t, c.class, sinktest.Class(err), "%v", err)
				for _, want := range append(c.says, "the mail was sent to no recipient") {
					assert.ErrorContains(t, err, want)
				}
				_, err = sink.Deliver(within(t), delivery(`{}`))
				require.Error(t, err)
				assert.Zero(t, server.Count())
			})
		}
	}
}

func TestEachAcceptedRecipientGetsTheMailExactlyOnce(t *testing.T) {
	// answers has the reply to each recipient at each attempt. After the last one all are accepted.
	answers := rapid.SliceOfN(rapid.SliceOfN(rapid.SampledFrom([]int{0, 0, 450, 550}), 3, 3), 0, 4)
	addresses := []string{"a@example.org", "b@example.org", "c@example.org"}
	rapid.Check(t, func(r *rapid.T) {
		script := answers.Draw(r, "answers")
		var mu sync.Mutex
		codes := make(map[string]int)
		server := startServer(t, smtptest.Config{Sequential: rapid.Bool().Draw(r, "sequential"), OnRecipient: func(ctx context.Context, to string) error {
			mu.Lock()
			defer mu.Unlock()
			return replying(codes)(ctx, to)
		}})
		sink := newSink(t, email.Config{SMTP: server.URL(), FS: toThree})
		for attempt := 0; ; attempt++ {
			mu.Lock()
			clear(codes)
			for i, address := range addresses {
				if attempt < len(script) {
					codes[address] = script[attempt][i]
				}
			}
			mu.Unlock()
			_, err := sink.Deliver(within(t), delivery(`{}`))
			if class, _ := sinks.Classify(err); err == nil || class == sinks.ClassPermanent || class == sinks.ClassInvalid {
				break
			}
		}
		got := make(map[string]int)
		for _, m := range server.Messages() {
			for _, to := range m.To {
				got[to]++
			}
		}
		for _, address := range addresses {
			switch {
			case got[address] == 1:
			case got[address] > 1:
				r.Fatalf("%s got the mail %d times", address, got[address])
			case codes[address] != 550:
				r.Fatalf("%s did not get the mail although the server accepted it", address)
			}
		}
	})
}

func TestAMailBeyondTheServersLimitIsInvalidAndNotSent(t *testing.T) {
	server := startOdd(t, func(_ int, command string) string {
		return map[string]string{"EHLO": "250-hello\r\n250 SIZE 500\r\n"}[verb(command)]
	})
	sink := newSink(t, email.Config{SMTP: server.url("")})
	_, err := sink.Deliver(within(t), delivery(jane))
	assert.Equal(t, sinks.ClassInvalid, sinktest.Class(err), "%v", err)
	require.ErrorIs(t, err, mailserver.ErrTooLarge)
	assert.ErrorContains(t, err, "the server accepts 500")
	require.NoError(t, sink.Close(within(t)))
	for _, line := range server.received() {
		assert.NotContains(t, line, "MAIL")
	}
}

func TestMAILFROMHasTheSizeOfTheMail(t *testing.T) {
	for offered, want := range map[string]string{"SIZE": " SIZE=", "SIZE 1000000": " SIZE=", "8BITMIME": ">"} {
		server := startOdd(t, func(_ int, command string) string {
			return map[string]string{"EHLO": "250-hello\r\n250 " + offered + "\r\n", "MAIL": "552 5.3.4 too large\r\n"}[verb(command)]
		})
		sink := newSink(t, email.Config{SMTP: server.url("")})
		_, err := sink.Deliver(within(t), delivery(jane))
		assert.Equal(t, sinks.ClassInvalid, sinktest.Class(err), "%v", err)
		require.NoError(t, sink.Close(within(t)))
		lines := server.received()
		from := lines[slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "MAIL") })]
		assert.Contains(t, from, "<shop@example.com>"+strings.TrimPrefix(want, ">"))
		assert.Equal(t, want != ">", strings.Contains(from, "SIZE"))
	}
}

func TestLinesThatBeginWithADotArriveUnchanged(t *testing.T) {
	server := startServer(t, smtptest.Config{})
	sink := newSink(t, email.Config{SMTP: server.URL(), FS: folder("customer.signed-up", map[string]string{
		"to.tmpl": "a@example.org", "subject.tmpl": "s", "text.tmpl": ".\n..\n.end\n\n.",
	})})
	_, err := sink.Deliver(within(t), delivery(`{}`))
	require.NoError(t, err)
	text, err := server.Messages()[0].Text()
	require.NoError(t, err)
	assert.Equal(t, ".\n..\n.end\n\n.\n", text)
}
