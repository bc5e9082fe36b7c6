package mailserver

import (
	"errors"
	"net/textproto"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/line"
)

// answer is a negative reply of the server. docs/sinks-email.md also explains what answers mean.
type answer struct {
	code   int // three digits; 0 if the server did not reply
	status status
	text   string // in lower case
}

// status has the last two numbers of an enhanced status code (RFC 3463): 5.7.8 and 4.7.8 are both
// {7, 8}. It is zero if there is no such code, and for X.0.0, which has no meaning.
type status struct{ subject, detail int }

// enhancedStatus matches the code of RFC 3463 with which many servers begin the text of a reply.
var enhancedStatus = regexp.MustCompile(`^[245]\.(\d{1,3})\.(\d{1,3})(?:\s|$)`)

// answerIn returns the server's answer in err, or zero if there is none.
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

// hungUp reports whether err ends the connection: it was lost, or the server announced that it
// closes it.
func hungUp(err error) bool {
	code := answerIn(err).code
	return err != nil && (code == 0 || code == codeClosing)
}

// Codes that are not about the mail.
const (
	codeClosing = 421 // the server closes the connection
	// codeNotImplemented is "command not implemented", which does not depend on the mail.
	// Some servers reply with it to clients that have not authenticated.
	codeNotImplemented = 502
	// codeOutOfOrder is "bad sequence of commands"; the sink's sequence is always correct.
	// Some servers reply with it to clients that have not authenticated.
	codeOutOfOrder = 503
)

// Codes of authentication: RFC 4954.
const (
	codeAuthenticated  = 235
	codeChallenge      = 334
	codeBadCredentials = 535
)

// Codes about the mail or its recipient.
const (
	codeNoMailbox        = 550 // RFC 5321, section 4.2.3; also used for policies
	codeNotLocal         = 551 // RFC 5321, section 3.4
	codeTooLarge         = 552 // RFC 1870, section 6.1; at RCPT TO the mailbox is full
	codeMailboxName      = 553 // RFC 5321, section 4.2.3; also used for relaying
	codeUnknownParameter = 555 // RFC 5321, section 4.1.1.11
)

// mailStatuses are about one recipient or one mail, at every server and at every step after MAIL
// FROM. What can also be about everything that the sink sends is left out, such as X.7.1.
var mailStatuses = map[status]bool{
	{1, 1}: true, {1, 2}: true, {1, 3}: true, {1, 4}: true, {1, 6}: true, // the recipient's address (RFC 3463)
	{1, 10}: true,                             // the recipient's domain has a null MX (RFC 7505)
	{2, 1}:  true, {2, 2}: true, {2, 4}: true, // the recipient's mailbox: disabled, full, a list (RFC 3463)
	{2, 3}: true, {3, 4}: true, // the mail is too large (RFC 3463)
	{6, 0}: true, {6, 1}: true, {6, 2}: true, {6, 3}: true, {6, 5}: true, {6, 6}: true, {6, 7}: true, // the content cannot be converted, or an address (RFC 3463, 6531)
}

// recipientText and policyText distinguish a mailbox that does not exist from everything else that
// servers refuse with the codes 550 and 553 and without a status.
var (
	recipientText = regexp.MustCompile(`no such|not exist|unknown|not found|user|mailbox|recipient`)
	policyText    = regexp.MustCompile(`relay|rcpthosts|denied|prohibited|not allowed|authent|sender|client|host|policy|block|spam|\bip\b`)
)

// isAboutMail reports whether the answer is about this mail or its recipient only: other mails may
// be accepted over the same connection.
func (a answer) isAboutMail(step Step) bool {
	if a.status != (status{}) {
		return mailStatuses[a.status]
	}
	switch a.code {
	case codeTooLarge:
		return true
	case codeNotLocal:
		return step == StepTo
	case codeNoMailbox, codeMailboxName:
		return step == StepTo && recipientText.MatchString(a.text) && !policyText.MatchString(a.text)
	}
	return false
}

// Hints for an operator.
const (
	hintUser   = "check user and password in smtp"
	hintSender = "the server accepts no mails from this sender; check from, and which senders the user in smtp may use"
	hintQuota  = "the account has reached its quota; the mails wait"
	hintClient = "the server accepts no mails from this account or machine"
)

// sinkHints has the statuses that are about the sender, the account or the machine, and never
// about one mail or recipient, with their hints. They count at every step, because many servers
// refuse the sender only after they know a recipient. Statuses that some servers also use for a
// recipient are left out, such as X.7.1, "not authorized", and X.7.13, "account disabled".
var sinkHints = map[status]string{
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

// Pauses after an answer that reports a limit. SMTP has no Retry-After.
const (
	pauseRate        = time.Second      // rates are counted per second
	pauseConnections = 5 * time.Second  // enough for some mails to end
	pauseBusy        = time.Minute      // recommended by Microsoft and Google for busy servers
	pauseQuota       = 10 * time.Minute // the longest that Amazon recommends; quotas are freed during the day
)

// limitTexts are the limits that only the text of an answer names.
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

// limit returns how long to pause if the answer reports a limit of this sink, and 0 for all other
// answers. It is 0 for a 5xx: if one mail were the cause of it, it would delay all others
// forever.
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
		// "System not accepting network messages" (RFC 3463). At RCPT TO it may be about the recipient's system,
		// and with code 421 it usually means maintenance. Otherwise Office 365 uses it for too
		// many connections.
		return pauseConnections
	}
	return 0
}

// class returns the class of the answer at a step, and the pause for ClassThrottled.
func (a answer) class(step Step) (sinks.Class, time.Duration) {
	if pause := a.limit(step); pause > 0 {
		return sinks.ClassThrottled, pause
	}
	switch {
	case step.isBeforeRecipients(), a.isAboutSink():
		return sinks.ClassUnavailable, 0
	case a.code >= 500 && a.isAboutMail(step):
		return sinks.ClassInvalid, 0
	case a.code >= 500:
		return sinks.ClassPermanent, 0
	}
	return sinks.ClassTransient, 0
}

// isAboutSink reports whether every mail would get this answer.
func (a answer) isAboutSink() bool {
	switch a.code {
	case codeClosing, codeNotImplemented, codeOutOfOrder:
		return true
	}
	return a.isAboutUser() || sinkHints[a.status] != ""
}

// isAboutUser reports whether the answer is about authentication: RFC 4954, section 6.
func (a answer) isAboutUser() bool {
	switch a.code {
	case 530, 534, 535, 538:
		return true
	}
	return false
}

// hint returns what the operator should check; "" if that is not clear.
func (a answer) hint(step Step) string {
	switch {
	case a.isAboutUser():
		return hintUser
	case a.limit(step) == pauseConnections:
		return "the server accepts fewer connections at once; lower connections"
	case a.limit(step) > 0:
		return ""
	case step == StepFrom && a.code >= 500 && sinkHints[a.status] == "":
		return hintSender
	}
	return sinkHints[a.status]
}

// refusesMail reports whether an answer to MAIL FROM is about this mail: its size, or a
// recipient's address that is not ASCII. The rest of the command is the sender, which comes from
// the configuration.
func (a answer) refusesMail(m *Message) bool {
	switch {
	case a.code < 500:
		return false
	case a.status == status{3, 4}, a.status == status{2, 3}, a.code == codeTooLarge && a.status == status{}:
		return true
	}
	return m.UTF8 && line.IsASCII(m.From) && (a.status == status{6, 7} || a.code == codeUnknownParameter)
}
