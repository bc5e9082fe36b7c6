package email

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

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

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
