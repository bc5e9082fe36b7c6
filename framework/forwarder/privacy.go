package forwarder

import (
	"context"
	"database/sql"
	"maps"
	"slices"

	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// private returns what the sink gets of private values: Private, or the default of its kind.
func (s Sink) private() sinks.Private {
	if s.Private != "" {
		return s.Private
	}
	if r, ok := s.Sink.(sinks.Revealer); ok && r.RevealsPrivate() {
		return sinks.PrivateReveal
	}
	return sinks.PrivateKeep
}

// keyringOf returns the keyring of an outbox; nil if its store keeps no keys.
func (f *Forwarder) keyringOf(database string) *privacy.Keyring {
	k, _ := f.keyrings.Load(database)
	keyring, _ := k.(*privacy.Keyring)
	return keyring
}

// addKeyring makes the keyring of an outbox, which keeps what it remembers if the work on the outbox begins again.
func (f *Forwarder) addKeyring(d Database) {
	if keys, keeps := d.Store.(store.PrivateKeys); keeps && f.keyringOf(d.Name) == nil {
		keyring, _ := privacy.New(keys, f.config.Privacy) // it was checked
		f.keyrings.Store(d.Name, keyring)
	}
}

// shows returns how notifications with private values are shown to a sink; nil if it gets all as they are.
func (f *Forwarder) shows(s Sink) *caller.Private {
	show, refuseErased := s.private(), s.Erased == settings.ErasedDead
	if show == sinks.PrivateKeep && len(f.config.Privacy.Rules) == 0 {
		return nil
	}
	ruled := f.config.Privacy.Rules
	return &caller.Private{Ruled: func(e *notification.Envelope) bool { _, is := ruled[e.Type]; return is }, Views: func(ctx context.Context, published []*notification.Envelope) []privacy.View {
		all := make([]privacy.View, 0, len(published))
		databaseOf := func(e *notification.Envelope) string { return e.Metadata.Get(notification.MetadataDatabase) }
		for len(published) > 0 {
			database := databaseOf(published[0])
			n := slices.IndexFunc(published, func(e *notification.Envelope) bool { return databaseOf(e) != database })
			if n < 0 {
				n = len(published)
			}
			k := f.keyringOf(database)
			if k == nil {
				k = f.keyringOf("") // a publisher may set the metadata, too
			}
			all = append(all, k.Views(ctx, published[:n], show, refuseErased)...)
			published = published[n:]
		}
		return all
	}}
}

// checkPrivacy refuses rules that read private values that their sink does not get.
func (c Config) checkPrivacy(p *settings.Problems, routes *route.Table) {
	keyring, err := privacy.New(nil, c.Privacy)
	if err != nil {
		p.Add(err)
		return
	}
	places := make(map[string][]registry.Pointer)
	for typ := range c.Privacy.Rules {
		places[typ] = keyring.Places(typ)
	}
	if c.Types != nil {
		for _, t := range c.Types.Types() {
			places[t.Name] = append(places[t.Name], t.Private...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Sinks)) {
		s := c.Sinks[name]
		by, _ := s.Collect.Group()
		hours := s.Hours.Timetable()
		path := routes.To(name)
		for _, typ := range slices.Sorted(maps.Keys(places)) {
			if !routes.Filter(name).Matches(typ) {
				continue
			}
			for _, at := range places[typ] {
				if when, reads := path.Reads(typ, at); reads && s.private() != sinks.PrivateReveal {
					p.Require(false, "routes.%s: the condition %q reads %s of %s, which is private: set sinks.%s.private: reveal, or use another condition", when.Pattern, when.When, textOf(at), typ, name)
				}
				p.Require(!by.Reads(at), "sinks.%s.collect.by reads %s of %s, which is private, and the group would be stored: collect by something else", name, textOf(at), typ)
				p.Require(hours == nil || !hours.ZoneOf.Reads(at) && !hours.Unless.Reads(at), "sinks.%s.hours read %s of %s, which is private, and encrypted until the delivery: use something else", name, textOf(at), typ)
			}
		}
	}
}

func textOf(at registry.Pointer) string {
	if len(at) == 0 {
		return "the payload"
	}
	return at.String()
}

// sealed lets a hook see what programs have inserted with SQL with the values encrypted that rules name, since what it
// publishes with parts of it has no rule.
func sealed(keys *privacy.Keyring, hook func(context.Context, *sql.Tx, []Delivered) error) func(context.Context, *sql.Tx, []Delivered) error {
	return func(ctx context.Context, tx *sql.Tx, delivered []Delivered) error {
		envelopes := make([]*notification.Envelope, len(delivered))
		for i := range delivered {
			envelopes[i] = delivered[i].Envelope
		}
		envelopes, err := keys.Sealed(ctx, tx, envelopes)
		if err != nil {
			return err
		}
		again := slices.Clone(delivered)
		for i := range again {
			d := *again[i].Delivery
			d.Envelope = envelopes[i]
			again[i].Delivery = &d
		}
		return hook(ctx, tx, again)
	}
}
