package email

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// date returns deliver_at if it is later than occurred_on, and occurred_on otherwise. These are
// the same at each attempt, and close to when the mail was complete (RFC 5322, section 3.6.1); the
// time of sending would differ. For a mail that was scheduled days ahead, the date of occurred_on could
// look like spam. An envelope with neither gets the current time.
func date(e *notification.Envelope) time.Time {
	switch {
	case e.DeliverAt.After(e.OccurredOn):
		return e.DeliverAt.UTC()
	case !e.OccurredOn.IsZero():
		return e.OccurredOn.UTC()
	}
	return time.Now().UTC()
}

// messageID returns the id, the sink's name and the domain of from: id.sink@domain. It contains the
// sink's name because two email sinks make two different mails of one notification, and mailboxes
// show only one mail for a Message-ID.
func messageID(id, sink, from string) string {
	local := atom(id)
	if sink != "" {
		local += "." + atom(sink)
	}
	_, domain, _ := cutLast(from, "@")
	return local + "@" + atomDomain(domain)
}

// maxAtom limits the length of an atom in bytes, so that the Message-ID fits on one header line.
const maxAtom = 200

// atom encodes a text as an RFC 5322 atom. Different texts have different atoms. Letters, digits,
// "-" and "_" are unchanged, other bytes become %XX, and a text whose atom is too long becomes its
// hash.
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

// atomDomain encodes the labels of a domain as atoms.
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
