package email

import (
	"errors"
	"net/textproto"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/sinks"
)

// answer is a reply of the server that is no good one. What answers mean stands
// in docs/sinks-email.md too.
type answer struct {
	code   int // three digits; 0 where the server gave no answer
	status status
	text   string // in lower case
}

// status is the last two numbers of an enhanced status code (RFC 3463): 5.7.8
// and 4.7.8 are both {7, 8}. Without such a code, and where it says nothing
// (X.0.0), it is zero.
type status struct{ subject, detail int }

// enhancedStatus is the code of RFC 3463 that many servers put before the text
// of a reply.
var enhancedStatus = regexp.MustCompile(`^[245]\.(\d{1,3})\.(\d{1,3})(?:\s|$)`)

// answerIn is the server's answer in err, zero where there is none.
func answerIn(err error) answer {
	var reply *textproto.Error
	if !errors.As(err, &reply) {
		return answer{}
	}
	a := answer{code: reply.Code, text: strings.ToLower(reply.Msg)}
	if numbers := enhancedStatus.FindStringSubmatch(reply.Msg); numbers != nil {
		a.status.subject, _ = strconv.Atoi(numbers[1])
		a.status.detail, _ = strconv.Atoi(numbers[2])
	}
	return a
}

// hungUp says that err ends the conversation: the connection was lost, or the
// server says that it closes it.
func hungUp(err error) bool {
	code := answerIn(err).code
	return err != nil && (code == 0 || code == codeClosing)
}

// Codes that say nothing of the mail.
const (
	codeClosing = 421 // the server hangs up
	// codeNotImplemented is "command not implemented": no mail causes that. Some
	// servers say so to clients that have not authenticated.
	codeNotImplemented = 502
	// codeOutOfOrder is "bad sequence of commands", whose order is always the
	// same. Some servers say so to clients that have not authenticated.
	codeOutOfOrder = 503
)

// Codes about what MAIL FROM tells of the mail.
const (
	codeTooLarge         = 552 // RFC 1870, section 6.1
	codeUnknownParameter = 555 // RFC 5321, section 4.1.1.11
)

// Hints for an operator, by what an answer complains about.
const (
	hintUser   = "check user and password in smtp"
	hintSender = "the server takes no mails from this sender; look at from, and at what the user in smtp may send"
	hintQuota  = "the account has sent what it may; the mails wait"
	hintClient = "the server takes no mails from this account or machine"
)

// aboutSink are the statuses that speak of the sender, the account or the
// machine, never of one mail or recipient. They count at every step: many servers
// complain of the sender only once they know a recipient. Left out is what some
// servers say of a recipient too, such as X.7.1, "not authorized", and X.7.13,
// "account disabled".
var aboutSink = map[status]string{
	{1, 7}:   hintSender, // bad sender's mailbox address syntax (RFC 3463)
	{1, 8}:   hintSender, // bad sender's system address (RFC 3463)
	{7, 27}:  hintSender, // sender address has null MX (RFC 7505)
	{7, 8}:   hintUser,   // authentication credentials invalid (RFC 5248)
	{7, 9}:   hintUser,   // authentication mechanism is too weak (RFC 5248)
	{7, 11}:  hintUser,   // encryption required for the mechanism (RFC 5248)
	{7, 12}:  hintUser,   // a password transition is needed (RFC 5248)
	{4, 5}:   hintQuota,  // congestion (RFC 3463); 5.4.5 is Gmail's daily quota
	{7, 28}:  hintClient, // mail flood detected (IANA registry)
	{1, 90}:  hintQuota,  // Office 365: daily limit for recipients
	{2, 252}: hintSender, // Office 365: SendAsDenied
	{7, 60}:  hintSender, // Exchange: may not send as this sender
	{7, 64}:  hintClient, // Office 365: relaying denied, no connector fits
	{7, 705}: hintClient, // Office 365: tenant has exceeded its threshold
	{7, 708}: hintClient, // Office 365: traffic not accepted from this IP
}

// Pauses after an answer that says that too much comes at once. SMTP has no
// Retry-After.
const (
	pauseRate        = time.Second      // rates are counted by the second
	pauseConnections = 5 * time.Second  // some mail ends within it
	pauseBusy        = time.Minute      // what busy servers need, after Microsoft and Google
	pauseQuota       = 10 * time.Minute // what Amazon advises at most; quotas are freed as the day goes on
)

// limitTexts are the limits that only the text of the answer tells.
var limitTexts = []struct {
	code  int
	text  string
	pause time.Duration
}{
	{454, "daily message quota", pauseQuota},           // Amazon SES
	{454, "throttling failure", pauseRate},             // Amazon SES: maximum sending rate
	{450, "peak smtp relay limit exceeded", pauseBusy}, // Gmail; its other 4.2.1 are about a recipient
	{421, "concurrent", pauseConnections},              // Amazon SES, Exchange
	{421, "too many connections", pauseConnections},    // Postfix
}

// limit says how long to pause where the answer is that too much comes at once
// from this sink; 0 for all other answers. Only a 4xx asks for a pause: a mail that
// is the cause of a refusal for good would hold up all others forever.
func (a answer) limit(step Step) time.Duration {
	if a.code/100 != 4 {
		return 0
	}
	for _, l := range limitTexts {
		if a.code == l.code && strings.Contains(a.text, l.text) {
			return l.pause
		}
	}
	switch {
	case a.status == status{4, 5}, a.status == status{7, 28}:
		return pauseBusy
	case a.status.subject == 7 && a.status.detail >= 500 && a.status.detail <= 699:
		return pauseBusy // Office 365: server busy, or this address is limited
	case a.status == status{3, 2} && a.code != codeClosing && step != StepTo:
		// System not accepting messages. At RCPT TO it can be the system of that
		// recipient; a 421 is maintenance mostly. Else Office 365 means connections.
		return pauseConnections
	}
	return 0
}

// class says what the answer means at a step, and for how long to wait with
// ClassThrottled.
func (a answer) class(step Step) (sinks.Class, time.Duration) {
	if pause := a.limit(step); pause > 0 {
		return sinks.ClassThrottled, pause
	}
	switch {
	case step.knowsNoRecipient(), a.isAboutSink():
		return sinks.ClassUnavailable, 0
	case a.code >= 500:
		return sinks.ClassPermanent, 0
	}
	return sinks.ClassTransient, 0
}

// isAboutSink says that every mail would get the answer, whatever its recipients.
func (a answer) isAboutSink() bool {
	switch a.code {
	case codeClosing, codeNotImplemented, codeOutOfOrder:
		return true
	}
	return a.isAboutUser() || aboutSink[a.status] != ""
}

// isAboutUser knows the codes of RFC 4954, section 6.
func (a answer) isAboutUser() bool {
	switch a.code {
	case 530, 534, 535, 538:
		return true
	}
	return false
}

// hint says what an operator should look at; "" where that is not clear.
func (a answer) hint(step Step) string {
	switch {
	case a.isAboutUser():
		return hintUser
	case a.limit(step) == pauseConnections:
		return "the server takes fewer connections at once; lower connections"
	case a.limit(step) > 0:
		return ""
	case step == StepFrom && a.code >= 500 && aboutSink[a.status] == "":
		return hintSender
	}
	return aboutSink[a.status]
}

// refusesWhatIsSaidOf says that an answer to MAIL FROM is about what this command
// tells of the mail: its size, and that a recipient's address is not ASCII.
// All else in the command is the sender, which the configuration has.
func (a answer) refusesWhatIsSaidOf(m *message) bool {
	switch {
	case a.code < 500:
		return false
	case a.status == status{3, 4}, a.status == status{2, 3}, a.code == codeTooLarge && a.status == status{}:
		return true
	}
	return m.utf8 && isASCII(m.from) && (a.status == status{6, 7} || a.code == codeUnknownParameter)
}
