package forwarder

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

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
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keyrings[database]
}

// addKeyring makes the keyring of an outbox, unless it has one.
func (f *Forwarder) addKeyring(d Database) *privacy.Keyring {
	f.mu.Lock()
	defer f.mu.Unlock()
	if keys, keeps := d.Store.(store.PrivateKeys); keeps && f.keyrings[d.Name] == nil {
		f.keyrings[d.Name], _ = privacy.New(keys, f.config.Privacy) // it was checked
	}
	return f.keyrings[d.Name]
}

// views returns what shows notifications with private values to a sink; nil if it gets them as they are.
func (f *Forwarder) views(s Sink) func(context.Context, []*notification.Envelope) []privacy.View {
	show, refuseErased := s.private(), s.Erased == settings.ErasedDead
	if show == sinks.PrivateKeep {
		return nil
	}
	return func(ctx context.Context, published []*notification.Envelope) []privacy.View {
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
	}
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

// sealedLog reads a log whose rules encrypt what programs have inserted with SQL, so that it leaves the log encrypted.
type sealedLog struct {
	store.Log
	keys *privacy.Keyring
}

// NewReader implements store.Log.
func (l sealedLog) NewReader(position json.RawMessage, filter store.Filter) (store.Reader, error) {
	r, err := l.Log.NewReader(position, filter)
	if err != nil {
		return nil, err
	}
	return sealing(r, l.keys), nil
}

// sealing wraps a reader; it is a store.Looker if that is one.
func sealing(r store.Reader, keys *privacy.Keyring) store.Reader {
	sealed := &sealedReader{Reader: r, keys: keys}
	if l, looks := r.(store.Looker); looks {
		return lookingReader{sealed, l}
	}
	return sealed
}

type lookingReader struct {
	*sealedReader
	looker store.Looker
}

// Look implements store.Looker.
func (r lookingReader) Look(ctx context.Context) (store.Target, error) { return r.looker.Look(ctx) }

type sealedReader struct {
	store.Reader
	keys *privacy.Keyring
	held *store.Page // was read, and is not encrypted yet
}

// Next implements store.Reader. A page that cannot be encrypted now is returned by a later call.
func (r *sealedReader) Next(ctx context.Context, target store.Target, limit int) (page store.Page, err error) {
	if r.held == nil {
		if page, err = r.Reader.Next(ctx, target, limit); err != nil {
			return page, err
		}
		r.held = &page
	}
	if err := r.keys.SealByRules(ctx, nil, r.held.Envelopes); err != nil {
		return store.Page{}, errors.Join(errSealing, err)
	}
	page, r.held = *r.held, nil
	return page, nil
}

var errSealing = errors.New("the private values of a page of the log cannot be encrypted")
