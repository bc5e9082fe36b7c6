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
	"net/textproto"
	"slices"
	"strings"
)

// ErrNoPart means that a message has no part with the content type.
var ErrNoPart = errors.New("no such part")

// Message is a message that the server has accepted, with its envelope.
type Message struct {
	// From and To are the envelope's addresses; To includes those of Bcc.
	From string
	To   []string
	// UTF8 reports whether the client used SMTPUTF8.
	UTF8 bool
	// Header is the parsed header of the message.
	Header mail.Header
	// Raw is the whole message as sent, with CRLF at the ends of lines.
	Raw []byte
}

// Subject returns the decoded subject, or the raw one if it cannot be decoded.
func (m Message) Subject() string {
	raw := m.Header.Get("Subject")
	decoded, err := new(mime.WordDecoder).DecodeHeader(raw)
	if err != nil {
		return raw
	}
	return decoded
}

// Text returns the decoded text/plain part, with "\n" at the ends of lines. Without such a
// part it returns ErrNoPart.
func (m Message) Text() (string, error) { return m.text("text/plain") }

// HTML returns the decoded text/html part, with "\n" at the ends of lines. Without such a
// part it returns ErrNoPart.
func (m Message) HTML() (string, error) { return m.text("text/html") }

func (m Message) text(contentType string) (string, error) {
	parts, err := m.Parts()
	if err != nil {
		return "", err
	}
	for _, p := range parts {
		if p.ContentType == contentType && p.Disposition != "attachment" {
			return strings.ReplaceAll(string(p.Body), "\r\n", "\n"), nil
		}
	}
	return "", fmt.Errorf("%w: %s", ErrNoPart, contentType)
}

// Part is a part of a message: text, an image or an attachment.
type Part struct {
	// Within are the subtypes of the multiparts around the part, the outermost first: mixed,
	// related.
	Within []string
	// ContentType is the content type without parameters.
	ContentType string
	// Disposition is inline, attachment, or "" if the part has none.
	Disposition string
	// Name is the file's name, and ContentID its id without brackets.
	Name, ContentID string
	// Body is the decoded content.
	Body []byte
}

// Parts returns all parts in order.
func (m Message) Parts() ([]Part, error) {
	message, err := mail.ReadMessage(bytes.NewReader(m.Raw))
	if err != nil {
		return nil, err
	}
	return readParts(textproto.MIMEHeader(message.Header), message.Body, nil)
}

func readParts(header textproto.MIMEHeader, body io.Reader, within []string) ([]Part, error) {
	contentType, params, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		return nil, err
	}
	if subtype, found := strings.CutPrefix(contentType, "multipart/"); found {
		return readMultipart(multipart.NewReader(body, params["boundary"]), append(slices.Clone(within), subtype))
	}
	p := Part{Within: within, ContentType: contentType, ContentID: strings.Trim(header.Get("Content-Id"), "<>")}
	if text := header.Get("Content-Disposition"); text != "" {
		if p.Disposition, params, err = mime.ParseMediaType(text); err != nil {
			return nil, err
		}
		p.Name = params["filename"]
	}
	p.Body, err = decode(header.Get("Content-Transfer-Encoding"), body)
	return []Part{p}, err
}

func readMultipart(reader *multipart.Reader, within []string) ([]Part, error) {
	var all []Part
	for {
		next, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		parts, err := readParts(next.Header, next, within)
		if err != nil {
			return nil, err
		}
		all = append(all, parts...)
	}
}

func decode(encoding string, body io.Reader) ([]byte, error) {
	switch strings.ToLower(encoding) {
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, body)
	}
	return io.ReadAll(body)
}
