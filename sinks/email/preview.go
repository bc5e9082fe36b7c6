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
	"github.com/waybill-go/waybill/sinks"
)

// Preview is a mail in a form for display.
type Preview struct {
	// From and Recipients are the envelope's addresses; Recipients includes those of
	// bcc.tmpl.
	From       string
	Recipients []string
	// Header has the decoded fields of the mail's header in order.
	Header []HeaderField
	// Locale is the language of Text and HTML; "" if their templates have no locale and
	// Config.Locale is not set.
	Locale string
	Text   string
	// HTML has its images as data: URLs, so it needs no other file.
	HTML string
	// Files are the images in HTML, and the attachments.
	Files []PreviewFile
	// Warnings are the problems of the mail, such as a missing recipient. Deliver may refuse
	// such a mail.
	Warnings []string
	// Mail is the whole mail, byte for byte as Deliver sends it.
	Mail []byte
}

// HeaderField is a field of a mail's header.
type HeaderField struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// PreviewFile is an image or an attachment of a mail.
type PreviewFile struct {
	Name      string `json:"name"`
	MediaType string `json:"media_type"`
	Bytes     int    `json:"bytes"`
	// Inline reports whether the file is an image in the HTML.
	Inline bool `json:"inline"`
}

// Preview makes the mail of an envelope as Deliver does, without sending it. A locale other than ""
// replaces the result of the type's locale template. The errors are those of Deliver, without their
// classes; a missing recipient is only a warning.
func (c *Composer) Preview(e *notification.Envelope, locale string) (*Preview, error) {
	d, err := c.draft(e)
	if err != nil {
		return nil, err
	}
	return c.preview(d, locale)
}

// PreviewCollection makes the mail of a collection as DeliverCollection does; see Preview.
func (c *Composer) PreviewCollection(all *sinks.Collection, locale string) (*Preview, error) {
	d, err := c.draftAll(all)
	if err != nil {
		return nil, err
	}
	return c.preview(d, locale)
}

func (c *Composer) preview(d *draft, locale string) (*Preview, error) {
	l, err := c.write(d, locale)
	if err != nil {
		return nil, err
	}
	m, err := c.finish(d.head, l)
	if err != nil {
		return nil, err
	}
	p := &Preview{From: m.From, Recipients: m.To, Locale: l.locale, Text: l.text, HTML: l.html, Mail: m.Raw}
	if p.Header, err = headerFields(m.Raw); err != nil {
		return nil, fmt.Errorf("read the mail's header: %w", err)
	}
	for _, f := range l.images {
		p.Files = append(p.Files, PreviewFile{f.name, f.mediaType, len(f.data), true})
		p.HTML = replaceImage(p.HTML, f.name, "data:"+f.mediaType+";base64,"+base64.StdEncoding.EncodeToString(f.data))
	}
	for _, f := range l.attachments {
		p.Files = append(p.Files, PreviewFile{f.name, f.mediaType, len(f.data), false})
	}
	p.Warnings = d.warnings(l)
	return p, nil
}

func (d *draft) warnings(l *letter) []string {
	typ := d.head.Type
	var list []string
	warn := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if len(l.to) == 0 {
		warn("the result of %s has no recipient, so the mail would not be sent", path.Join(typ, toFile))
	}
	if len(d.own.templates) == 0 {
		warn("%s has no templates, so all come from %s", typ, defaultFolder)
	}
	for _, name := range l.unknownImages {
		warn("the html shows cid:%s, but there is no file %s", name, inFolders(typ, name))
	}
	if l.html != "" && l.text == "" {
		warn("there is no text version for mail programs that do not show html")
	}
	return list
}

// headerFields returns the decoded header of a mail.
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
