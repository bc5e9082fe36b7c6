package email

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"

	"github.com/waybill-go/waybill/framework/notification"
)

// Limits of a mail's addresses. The first is what every server must take in one
// transaction (RFC 5321, section 4.5.3.1.8), the second the longest path (RFC
// 5321, section 4.5.3.1.3) without its brackets; the third keeps a header's
// line below the 998 bytes of RFC 5322 whatever the encoding.
const (
	maxRecipients  = 100
	maxAddress     = 254
	maxDisplayName = 200
)

// Headers of our own.
const (
	// headerID is the notification's id, for the receiver's deduplication and
	// for people who search a mailbox.
	headerID gomail.Header = "Waybill-Id"
	// headerAutoSubmitted keeps vacation responders quiet (RFC 3834, section 5).
	headerAutoSubmitted gomail.Header = "Auto-Submitted"
)

// message is a mail ready for the server: the envelope's addresses, without
// brackets, and the bytes.
type message struct {
	from string
	to   []string
	utf8 bool // an address needs SMTPUTF8
	raw  []byte
}

// newMessage puts the mail together. The same arguments give the same bytes.
func newMessage(e *notification.Envelope, from *mail.Address, sink string, l *letter) (*message, error) {
	to, err := recipients(l)
	if err != nil {
		return nil, err
	}
	m := &message{from: bare(from), to: to}
	m.utf8 = !isASCII(m.from) || slices.ContainsFunc(to, func(a string) bool { return !isASCII(a) })

	msg := gomail.NewMsg(
		gomail.WithCharset(gomail.CharsetUTF8),
		gomail.WithEncoding(gomail.EncodingQP),
		gomail.WithBoundary(boundary(e, l)),
		gomail.WithNoDefaultUserAgent(),
	)
	msg.FromMailAddress(from)
	msg.ToMailAddress(l.to...)
	if len(l.cc) > 0 {
		msg.CcMailAddress(l.cc...)
	}
	if len(l.replyTo) > 0 {
		msg.ReplyToMailAddress(l.replyTo...)
	}
	msg.Subject(l.subject)
	msg.SetDateWithValue(date(e))
	msg.SetMessageIDWithValue(messageID(e.ID, sink, m.from))
	msg.SetGenHeader(headerID, collapse(e.ID))
	msg.SetGenHeader(headerAutoSubmitted, "auto-generated")
	setBody(msg, l)

	var raw bytes.Buffer
	if _, err := msg.WriteTo(&raw); err != nil {
		return nil, fmt.Errorf("write the mail: %w", err)
	}
	m.raw = raw.Bytes()
	return m, nil
}

// setBody adds the parts, the plainest first (RFC 2046, section 5.1.4).
func setBody(msg *gomail.Msg, l *letter) {
	switch {
	case l.html == "":
		msg.SetBodyString(gomail.TypeTextPlain, l.text)
	case l.text == "":
		msg.SetBodyString(gomail.TypeTextHTML, l.html)
	default:
		msg.SetBodyString(gomail.TypeTextPlain, l.text)
		msg.AddAlternativeString(gomail.TypeTextHTML, l.html)
	}
}

// recipients lists the envelope's recipients, each once.
func recipients(l *letter) ([]string, error) {
	var list []string
	for _, addresses := range [][]*mail.Address{l.to, l.cc, l.bcc} {
		for _, a := range addresses {
			if address := bare(a); !slices.Contains(list, address) {
				list = append(list, address)
			}
		}
	}
	if len(list) > maxRecipients {
		return nil, fmt.Errorf("%w: %d recipients are more than the %d that every server takes at once; publish a notification for each", ErrAddress, len(list), maxRecipients)
	}
	return list, nil
}

// parseAddresses parses a comma-separated list; an empty text is an empty list.
// Line ends are spaces: a template file ends with one, and none can become a
// header line.
func parseAddresses(text string) ([]*mail.Address, error) {
	text = collapse(text)
	if strings.Trim(text, ", ") == "" {
		return nil, nil
	}
	list, err := mail.ParseAddressList(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAddress, err)
	}
	for _, a := range list {
		if len(a.Address) > maxAddress {
			return nil, fmt.Errorf("%w: an address of %d bytes is too long, the limit is %d", ErrAddress, len(a.Address), maxAddress)
		}
		if len(a.Name) > maxDisplayName {
			return nil, fmt.Errorf("%w: the name of an address is %d bytes long, the limit is %d", ErrAddress, len(a.Name), maxDisplayName)
		}
	}
	return list, nil
}

// bare is the address as it stands in the envelope, without name and brackets.
func bare(a *mail.Address) string {
	quoted := (&mail.Address{Address: a.Address}).String() // quotes odd local parts
	return strings.TrimSuffix(strings.TrimPrefix(quoted, "<"), ">")
}

// date is when the fact happened, or when the application wanted it told: of
// RFC 5322's "when the mail was complete" the nearest that repeats identically.
// The sending time would differ with each attempt, and the date of a mail that
// was held back for days would look like spam. An envelope without either gets
// the present.
func date(e *notification.Envelope) time.Time {
	switch {
	case e.DeliverAt.After(e.OccurredOn):
		return e.DeliverAt.UTC()
	case !e.OccurredOn.IsZero():
		return e.OccurredOn.UTC()
	}
	return time.Now().UTC()
}

// messageID is "id.sink@domain of from". The sink's name is in it because two
// email sinks make two different mails of one notification, and mailboxes show
// only one mail of a Message-ID.
func messageID(id, sink, from string) string {
	local := atom(id)
	if sink != "" {
		local += "." + atom(sink)
	}
	_, domain, _ := cutLast(from, "@")
	return local + "@" + atomDomain(domain)
}

// maxAtom keeps the Message-ID on one header line.
const maxAtom = 200

// atom writes any text as an RFC 5322 atom, different texts differently:
// letters, digits, "-" and "_" stay, other bytes become %XX, and what would be
// too long becomes its hash.
func atom(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	if b.Len() > maxAtom {
		sum := sha256.Sum256([]byte(s))
		return "sha256-" + hex.EncodeToString(sum[:])
	}
	return b.String()
}

// atomDomain keeps the dots of a domain and writes its labels as atoms.
func atomDomain(domain string) string {
	labels := strings.Split(domain, ".")
	for i, label := range labels {
		labels[i] = atom(label)
	}
	return strings.Join(labels, ".")
}

// boundary separates the parts. It is made of what it separates, so a payload
// that contained it would have to contain its own hash; a boundary made of the
// id alone could be foretold, and parts smuggled in.
func boundary(e *notification.Envelope, l *letter) string {
	h := sha256.New()
	for _, s := range []string{e.ID, l.text, l.html} {
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil)[:20])
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 })
}
