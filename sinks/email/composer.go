package email

import (
	"errors"
	"fmt"
	"net/mail"
	"path"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// Composer makes mails of envelopes: all that a [Sink] does but sending. Its
// methods may be called in parallel.
type Composer struct {
	sink      string
	from      *mail.Address
	replyTo   []*mail.Address
	templates *templates
	// registered, if set, tells an alias's present name.
	registered *registry.Registry
	maxSize    int // bytes
}

// NewComposer makes what composes the mails of a sink, of whose instance it takes name and types. It reads
// and parses all templates; of c it looks only at what says how mails look, not
// at what says where they go, so no password needs to be at hand. All mistakes
// are reported at once.
func NewComposer(in sinks.Instance, c Config) (*Composer, error) {
	c.SetDefaults()
	invalid := c.validateMail()
	composer, err := newComposer(in, c)
	if err := errors.Join(invalid, err); err != nil {
		return nil, err
	}
	return composer, nil
}

// newComposer is NewComposer for a configuration whose fields are checked
// elsewhere; it reports what is wrong with the templates.
func newComposer(in sinks.Instance, c Config) (*Composer, error) {
	parsed, err := c.parseTemplates()
	if err != nil {
		return nil, err
	}
	composer := &Composer{sink: in.Name, registered: in.Types, templates: parsed, maxSize: c.MaxSizeMB << 20}
	composer.from, _ = mail.ParseAddress(c.From)
	composer.replyTo, _ = parseAddresses(c.ReplyTo)
	return composer, nil
}

// Types lists the types that have a folder of templates, in alphabetical order.
// Others may be possible by the folder default.
func (c *Composer) Types() []string { return c.templates.types() }

// compose makes the mail for one envelope.
func (c *Composer) compose(e *notification.Envelope) (*message, error) {
	l, err := c.write(e, "")
	if err != nil {
		return nil, err
	}
	if len(l.to) == 0 {
		return nil, fmt.Errorf("%w: %s gave no recipient", ErrAddress, path.Join(e.Type, toFile))
	}
	return c.finish(e, l)
}

// folderOf is the folder of a type's templates: the type's own, or that of its present name
// where the type was stored by an alias.
func (c *Composer) folderOf(typ string) string {
	if _, own := c.templates.folders[typ]; own || c.registered == nil {
		return typ
	}
	if known, ok := c.registered.Lookup(typ); ok {
		return known.Name
	}
	return typ
}

// write makes the letter for one envelope, in place of what its template gives
// in a locale that is not "".
func (c *Composer) write(e *notification.Envelope, locale string) (*letter, error) {
	data, err := newData(e)
	if err != nil {
		return nil, err
	}
	l, err := c.templates.render(c.folderOf(e.Type), data, locale)
	if err != nil {
		return nil, err
	}
	if len(l.replyTo) == 0 {
		l.replyTo = c.replyTo
	}
	return l, nil
}

// finish makes the mail of a letter.
func (c *Composer) finish(e *notification.Envelope, l *letter) (*message, error) {
	m, err := newMessage(e, c.from, c.sink, l)
	if err != nil {
		return nil, err
	}
	if len(m.raw) > c.maxSize {
		return nil, fmt.Errorf("%w: it has %d bytes, attachments and their encoding included, and max_size_mb allows %d", ErrTooLarge, len(m.raw), c.maxSize)
	}
	return m, nil
}
