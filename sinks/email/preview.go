package email

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"mime"
	"path"
	"strings"

	"github.com/emersion/go-message/textproto"

	"github.com/waybill-go/waybill/framework/notification"
)

// Preview is a mail to be looked at.
type Preview struct {
	// From and Recipients are the envelope's addresses; Recipients has those of
	// bcc.tmpl too.
	From       string
	Recipients []string
	// Header is the mail's own, in its order and decoded.
	Header []HeaderField
	// Locale is that of Text and HTML; "" for that of templates without one.
	Locale string
	Text   string
	// HTML has its images as data: URLs, so it needs no other file.
	HTML string
	// Files are images that HTML shows, and attachments.
	Files []PreviewFile
	// Warnings tell what is wrong with the mail, such as that it has no
	// recipient: Deliver may refuse it.
	Warnings []string
	// Mail is the whole mail, byte for byte what Deliver sends.
	Mail []byte
}

// HeaderField is a line of a mail's header.
type HeaderField struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// PreviewFile is an image or an attachment of a mail.
type PreviewFile struct {
	Name      string `json:"name"`
	MediaType string `json:"media_type"`
	Bytes     int    `json:"bytes"`
	// Inline says that it is shown in the mail.
	Inline bool `json:"inline"`
}

// Preview makes the mail for an envelope as Deliver does, without
// sending it. locale stands in for what the type's locale template gives; "" leaves
// it. The errors are those of Deliver, except that a mail may lack a recipient.
func (c *Composer) Preview(e *notification.Envelope, locale string) (*Preview, error) {
	l, err := c.write(e, locale)
	if err != nil {
		return nil, err
	}
	m, err := c.finish(e, l)
	if err != nil {
		return nil, err
	}
	p := &Preview{From: m.from, Recipients: m.to, Locale: l.locale, Text: l.text, HTML: l.html, Mail: m.raw}
	if p.Header, err = headerFields(m.raw); err != nil {
		return nil, fmt.Errorf("read the mail's header: %w", err)
	}
	for _, f := range l.images {
		p.Files = append(p.Files, PreviewFile{f.name, f.mediaType, len(f.data), true})
		p.HTML = replaceImage(p.HTML, f.name, "data:"+f.mediaType+";base64,"+base64.StdEncoding.EncodeToString(f.data))
	}
	for _, f := range l.attachments {
		p.Files = append(p.Files, PreviewFile{f.name, f.mediaType, len(f.data), false})
	}
	p.Warnings = c.warnings(e, l)
	return p, nil
}

func (c *Composer) warnings(e *notification.Envelope, l *letter) []string {
	var list []string
	warn := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if len(l.to) == 0 {
		warn("%s gave no recipient, so the mail would not be sent", path.Join(e.Type, toFile))
	}
	if len(c.templates.folders[e.Type].templates) == 0 {
		warn("%s has no templates of its own, so all of them are those of %s", e.Type, defaultFolder)
	}
	for _, name := range l.unknownImages {
		warn("the html shows cid:%s, but there is no file %s", name, inFolders(e.Type, name))
	}
	if l.html != "" && l.text == "" {
		warn("there is no text beside the html, for mail programs that show none")
	}
	return list
}

// headerFields reads the header of a mail back.
func headerFields(raw []byte) ([]HeaderField, error) {
	header, err := textproto.ReadHeader(bufio.NewReader(bytes.NewReader(raw)))
	if err != nil {
		return nil, err
	}
	var list []HeaderField
	for fields := header.Fields(); fields.Next(); {
		value := strings.ReplaceAll(fields.Value(), "\r\n", "")
		if decoded, err := new(mime.WordDecoder).DecodeHeader(value); err == nil {
			value = decoded
		}
		list = append(list, HeaderField{fields.Key(), value})
	}
	return list, nil
}
