package email

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"mime"
	"net/url"

	gomessage "github.com/emersion/go-message"

	"github.com/waybill-go/waybill/framework/notification"
)

// part is a node of a mail's MIME tree: a multipart, or a part with content.
type part struct {
	header gomessage.Header
	parts  []part
	body   []byte
}

// body returns the MIME tree of a letter. Levels with only one part are left out:
//
//	mixed
//	  alternative, with the simplest first (RFC 2046, section 5.1.4)
//	    text
//	    related
//	      html
//	      images in the html
//	  attachments
func (l *letter) body(boundary, domain string) part {
	var versions []part
	if l.text != "" || l.html == "" {
		versions = append(versions, textPart("text/plain", l.text))
	}
	if l.html != "" {
		html, parts := l.html, make([]part, 1, 1+len(l.images))
		for _, image := range l.images {
			id := image.contentID(domain)
			html = replaceImage(html, image.name, "cid:"+url.PathEscape(id))
			p := image.part("inline")
			p.header.Add("Content-ID", "<"+id+">")
			parts = append(parts, p)
		}
		parts[0] = textPart("text/html", html)
		versions = append(versions, multipart("related", "r-"+boundary, parts))
	}
	all := []part{multipart("alternative", "a-"+boundary, versions)}
	for _, f := range l.attachments {
		all = append(all, f.part("attachment"))
	}
	return multipart("mixed", "m-"+boundary, all)
}

func textPart(mediaType, text string) part {
	p := part{body: []byte(text)}
	p.header.Add("Content-Transfer-Encoding", "quoted-printable")
	p.header.Add("Content-Type", mediaType+"; charset=UTF-8")
	return p
}

func (f *file) part(disposition string) part {
	p := part{body: f.data}
	p.header.Add("Content-Disposition", mime.FormatMediaType(disposition, map[string]string{"filename": f.name}))
	p.header.Add("Content-Transfer-Encoding", "base64")
	p.header.Add("Content-Type", f.mediaType)
	return p
}

// multipart makes a multipart, or returns a single part unchanged.
func multipart(subtype, boundary string, parts []part) part {
	if len(parts) == 1 {
		return parts[0]
	}
	p := part{parts: parts}
	p.header.Add("Content-Type", "multipart/"+subtype+"; boundary="+boundary)
	return p
}

// boundary returns the separator of the parts. It is a hash of the id and the contents, so a payload
// cannot contain it. A boundary that depends only on the id would be predictable, and a payload
// could add parts.
func boundary(e *notification.Envelope, l *letter) string {
	h := sha256.New()
	for _, s := range []string{e.ID, l.text, l.html} {
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil)[:20])
}

// size estimates the number of bytes of the encoded part.
func (p *part) size() int {
	size := 512 + len(p.body)*3/2
	for i := range p.parts {
		size += p.parts[i].size()
	}
	return size
}

// writeTo writes the part without its header, which w has.
func (p *part) writeTo(w *gomessage.Writer) error {
	for i := range p.parts {
		below, err := w.CreatePart(p.parts[i].header)
		if err != nil {
			return err
		}
		if err := p.parts[i].writeTo(below); err != nil {
			return err
		}
	}
	if len(p.parts) == 0 {
		if _, err := io.Copy(w, bytes.NewReader(p.body)); err != nil {
			return err
		}
	}
	return w.Close()
}
