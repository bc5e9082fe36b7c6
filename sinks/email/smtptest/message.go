package smtptest

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"strings"
)

// ErrNoPart says that a message has no part of the wanted content type.
var ErrNoPart = errors.New("no such part")

// Message is what the server took: the envelope and the message as it came
// over the wire.
type Message struct {
	// From and To are the envelope's addresses: To has those of Bcc too.
	From string
	To   []string
	// UTF8 says that the client asked for SMTPUTF8.
	UTF8 bool
	// Header is the parsed header of the message.
	Header mail.Header
	// Raw is the whole message, lines ending in CRLF, nothing decoded.
	Raw []byte
}

// Subject is the decoded subject; the raw one where it cannot be decoded.
func (m Message) Subject() string {
	raw := m.Header.Get("Subject")
	decoded, err := new(mime.WordDecoder).DecodeHeader(raw)
	if err != nil {
		return raw
	}
	return decoded
}

// Text is the decoded text/plain part, its lines ending in "\n". A message without one gives ErrNoPart.
func (m Message) Text() (string, error) { return m.part("text/plain") }

// HTML is the decoded text/html part, its lines ending in "\n". A message without one gives ErrNoPart.
func (m Message) HTML() (string, error) { return m.part("text/html") }

// part finds the first part of a content type in the message or in the first
// level of its multipart body.
func (m Message) part(wanted string) (string, error) {
	message, err := mail.ReadMessage(bytes.NewReader(m.Raw))
	if err != nil {
		return "", err
	}
	contentType, params, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil {
		return "", err
	}
	if contentType == wanted {
		return decode(message.Header.Get("Content-Transfer-Encoding"), message.Body)
	}
	if !strings.HasPrefix(contentType, "multipart/") {
		return "", fmt.Errorf("%w: %s", ErrNoPart, wanted)
	}
	parts := multipart.NewReader(message.Body, params["boundary"])
	for {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return "", fmt.Errorf("%w: %s", ErrNoPart, wanted)
		}
		if err != nil {
			return "", err
		}
		contentType, _, err := mime.ParseMediaType(part.Header.Get("Content-Type"))
		if err != nil {
			return "", err
		}
		if contentType == wanted {
			return decode(part.Header.Get("Content-Transfer-Encoding"), part)
		}
	}
}

func decode(encoding string, body io.Reader) (string, error) {
	switch strings.ToLower(encoding) {
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, body)
	}
	decoded, err := io.ReadAll(body)
	return strings.ReplaceAll(string(decoded), "\r\n", "\n"), err
}
