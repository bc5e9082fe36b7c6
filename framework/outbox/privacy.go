package outbox

import (
	"context"
	"fmt"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/registry"
)

// sealing is a notification of a call with private values.
type sealing struct {
	index  int // of its envelope
	values []registry.PrivateValues
}

// seal encrypts the private values of a call, in its transaction.
func (p *Publisher) seal(ctx context.Context, tx Tx, c *call) error {
	if p.config.Privacy == nil || p.refused != nil {
		return nil
	}
	all := make([]privacy.Sealing, len(c.private))
	for i, s := range c.private {
		all[i] = privacy.Sealing{Envelope: &c.envelopes[s.index], Values: s.values}
	}
	if err := p.config.Privacy.Seal(ctx, tx, all); err != nil {
		return explain(err)
	}
	if err := p.config.Privacy.SealByRules(ctx, tx, c.envelopes); err != nil {
		return explain(err)
	}
	for i := range c.envelopes {
		if e := &c.envelopes[i]; e.Metadata.Get(notification.MetadataPrivateKeys) != "" {
			if err := p.checkRow(e); err != nil {
				return fmt.Errorf("%s: %w", e.Type, err)
			}
		}
	}
	return nil
}

// checkPrivate refuses, before anything is written, what cannot be encrypted.
func (p *Publisher) checkPrivate(typ string, private []registry.PrivateValues) error {
	if p.config.Privacy == nil {
		return errNoKeyring(typ)
	}
	for _, v := range private {
		if v.Subject == "" {
			return privacy.NoSubject(typ)
		}
	}
	return nil
}

// checkSealed refuses an envelope whose private values are not encrypted: only the notification says whose they are.
func (p *Publisher) checkSealed(e *notification.Envelope) error {
	info, known := p.types.Lookup(e.Type)
	if !known || len(info.Private) == 0 || e.Metadata.Get(notification.MetadataPrivateKeys) != "" {
		return nil
	}
	return fmt.Errorf("%w: %s has private values that are not encrypted: use Publish", ErrPrivate, e.Type)
}

func errNoKeyring(typ string) error {
	return fmt.Errorf("%w: %s has registry.Private: set Config.Privacy, or Outbox.Privacy in package waybill", ErrPrivate, typ)
}

// isWholePrivate reports whether payloads of a type are encrypted as a whole, and so are JSON in the log.
func isWholePrivate(t registry.Info) bool { return len(t.Private) == 1 && len(t.Private[0]) == 0 }
