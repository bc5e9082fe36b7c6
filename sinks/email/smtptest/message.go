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
func (m Message) Text() (string, error) { return m.text("text/plain") }

// HTML is the decoded text/html part, its lines ending in "\n". A message without one gives ErrNoPart.
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

// Part is what a message consists of: text, an image, an attachment.
type Part struct {
	// Within are the multiparts around it, the outermost first, without
	// "multipart/": mixed, related.
	Within []string
	// ContentType is without parameters.
	ContentType string
	// Disposition is inline or attachment; "" where nothing is said.
	Disposition string
	// Name is the file's name, ContentID its id without brackets.
	Name, ContentID string
	// Body is decoded.
	Body []byte
}

// Parts lists all parts in their order.
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
