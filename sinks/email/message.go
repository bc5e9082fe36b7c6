package email

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"mime"
	"net/mail"
	"slices"
	"strings"
	"unicode/utf8"

	gomessage "github.com/emersion/go-message"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks/email/mailserver"
	"github.com/waybill-go/waybill/sinks/internal/line"
)

// newMessage encodes a mail. The same arguments give the same bytes.
func newMessage(e *notification.Envelope, from *mail.Address, sink string, l *letter) (*mailserver.Message, error) {
	to, err := recipients(l)
	if err != nil {
		return nil, err
	}
	m := &mailserver.Message{From: bare(from), To: to}
	m.UTF8 = !line.IsASCII(m.From) || slices.ContainsFunc(to, func(a string) bool { return !line.IsASCII(a) })

	_, domain, _ := cutLast(m.From, "@")
	body := l.body(boundary(e, l), atomDomain(domain))
	h := body.header
	// Add puts a field before those that were added earlier.
	for _, field := range slices.Backward(unsubscribeFields(l.unsubscribe)) {
		h.Add(field.name, field.value)
	}
	h.Add("Auto-Submitted", "auto-generated") // prevents automatic replies (RFC 3834, section 5)
	h.Add("Waybill-Id", line.Collapse(e.ID))  // for deduplication and for searching
	h.Add("Message-ID", "<"+messageID(e.ID, sink, m.From)+">")
	h.Add("Date", date(e).Format("Mon, 02 Jan 2006 15:04:05 -0700"))
	h.Add("Subject", encodeText(l.subject))
	setAddresses(&h, "Reply-To", l.replyTo)
	setAddresses(&h, "Cc", l.cc)
	setAddresses(&h, "To", l.to)
	setAddresses(&h, "From", []*mail.Address{from})

	var raw bytes.Buffer
	raw.Grow(2048 + body.size())
	w, err := gomessage.CreateWriter(&raw, h)
	if err == nil {
		err = body.writeTo(w)
	}
	if err != nil {
		return nil, fmt.Errorf("write the mail: %w", err)
	}
	m.Raw = raw.Bytes()
	if !bytes.HasSuffix(m.Raw, []byte("\r\n")) {
		m.Raw = append(m.Raw, "\r\n"...)
	}
	return m, nil
}

// encodeText encodes a text for a header (RFC 2047). It also encodes a text that looks like an
// encoded one, because mail programs would decode it.
func encodeText(text string) string {
	if !strings.Contains(text, "=?") {
		return mime.QEncoding.Encode("utf-8", text)
	}
	const room = 45 // with so many bytes, an encoded word has at most 72
	var words []string
	for len(text) > 0 {
		end := min(room, len(text))
		for end < len(text) && !utf8.RuneStart(text[end]) {
			end--
		}
		words = append(words, "=?utf-8?b?"+base64.StdEncoding.EncodeToString([]byte(text[:end]))+"?=")
		text = text[end:]
	}
	return strings.Join(words, " ")
}

func setAddresses(h *gomessage.Header, name string, list []*mail.Address) {
	if len(list) == 0 {
		return
	}
	texts := make([]string, len(list))
	for i, a := range list {
		texts[i] = a.String()
	}
	h.Add(name, strings.Join(texts, ", "))
}
