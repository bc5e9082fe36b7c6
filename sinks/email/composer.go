package email

import (
	"errors"
	"fmt"
	"net/mail"
	"path"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email/mailserver"
)

// Composer makes mails from envelopes. It does everything that a [Sink] does except sending. Its
// methods are safe for concurrent use.
type Composer struct {
	sink      string
	from      *mail.Address
	replyTo   []*mail.Address
	templates *templates
	// registered has the current names of aliases; it may be nil.
	registered *registry.Registry
	maxSize    int // bytes
}

// NewComposer makes a composer for a sink with the name and the types of in. It reads and parses
// all templates. Of c it uses only the settings of the mails and not those of the server, so it
// needs no password. Its error joins all mistakes.
func NewComposer(in sinks.Instance, c Config) (*Composer, error) {
	c.SetDefaults()
	invalid := c.validateMail()
	composer, err := newComposer(in, c)
	if err := errors.Join(invalid, err); err != nil {
		return nil, err
	}
	return composer, nil
}

// newComposer is NewComposer without checking the fields of the configuration. It reports the
// mistakes in the templates.
func newComposer(in sinks.Instance, c Config) (*Composer, error) {
	parsed, err := c.parseTemplates()
	if err != nil {
		return nil, err
	}
	composer := &Composer{sink: in.Name, registered: in.Types, templates: parsed, maxSize: c.MaxSizeMB << 20}
	if composer.from, _ = mail.ParseAddress(c.From); composer.from != nil { // validateMail reports a mistake
		composer.from.Address = withASCIIDomain(composer.from.Address)
	}
	composer.replyTo, _ = parseAddresses(c.ReplyTo)
	return composer, nil
}

// Types lists the types that have a folder of templates, in alphabetical order. With the folder
// default, mails of other types may be possible, too.
func (c *Composer) Types() []string { return c.templates.types() }

// compose makes the mail of one envelope.
func (c *Composer) compose(e *notification.Envelope) (*mailserver.Message, error) {
	d, err := c.draft(e)
	if err != nil {
		return nil, err
	}
	return c.send(d)
}

// send makes the mail of a draft, which must have a recipient.
func (c *Composer) send(d *draft) (*mailserver.Message, error) {
	l, err := c.write(d, "")
	if err != nil {
		return nil, err
	}
	if len(l.to) == 0 {
		return nil, fmt.Errorf("%w: %s gave no recipient", ErrAddress, path.Join(d.head.Type, toFile))
	}
	return c.finish(d.head, l)
}

// NewestVersion returns the newest version of a type's payload that mails can be made of; 1 if neither the
// program nor the templates say so.
func (c *Composer) NewestVersion(typ string) int {
	if newest := c.templates.newest(c.folderOf(typ)); newest > 0 {
		return newest
	}
	if c.knows(typ) {
		known, _ := c.registered.Lookup(typ)
		return known.Version
	}
	return 1
}

// folderOf returns the folder of a type's templates: that of the type, or that of its current name
// if the type is an alias.
func (c *Composer) folderOf(typ string) string {
	if _, own := c.templates.folders[typ]; own || c.registered == nil {
		return typ
	}
	if known, ok := c.registered.Lookup(typ); ok {
		return known.Name
	}
	return typ
}

// draft is what the templates make a mail of.
type draft struct {
	// head has the id, the type and the times of the mail.
	head *notification.Envelope
	own  folder
	data *Data
}

// draft returns the draft of one envelope.
func (c *Composer) draft(e *notification.Envelope) (*draft, error) {
	own := c.templates.folder(c.folderOf(e.Type), e.Version)
	read, err := c.readable(own, e)
	if err != nil {
		return nil, err
	}
	data, err := newData(read)
	return &draft{e, own, data}, err
}

// write makes the letter of a draft. A locale other than "" replaces the result of the type's
// locale template.
func (c *Composer) write(d *draft, locale string) (*letter, error) {
	l, err := c.templates.render(d.own, d.data, locale)
	if err != nil {
		return nil, c.explain(d.own, d.data, err)
	}
	if len(l.replyTo) == 0 {
		l.replyTo = c.replyTo
	}
	return l, nil
}

// finish makes the mail from a letter.
func (c *Composer) finish(e *notification.Envelope, l *letter) (*mailserver.Message, error) {
	m, err := newMessage(e, c.from, c.sink, l)
	if err != nil {
		return nil, err
	}
	if len(m.Raw) > c.maxSize {
		return nil, fmt.Errorf("%w: it has %d bytes, attachments and their encoding included, and max_size_mb allows %d", mailserver.ErrTooLarge, len(m.Raw), c.maxSize)
	}
	return m, nil
}
