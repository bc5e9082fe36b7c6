package privacy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/serializer"
)

// Rule says where notifications of a type that programs insert with SQL have private values. The database cannot
// encrypt them: the log and parked deliveries have them as they were inserted, until an erasure or retention removes
// them. For a sink they are encrypted, unless it gets them decrypted.
type Rule struct {
	// JSON pointer to the id of the person, such as /customer/id. If there is no text or number, the values
	// belong to a subject with the id of the notification.
	Subject string `yaml:"subject"`
	// JSON pointers to the private values, such as /customer/email or /lines/*/name; "" is the whole payload.
	Fields []string `yaml:"fields"`
}

type rule struct {
	subject registry.Pointer
	at      []registry.Pointer
}

func (r Rule) compile() (c rule, err error) {
	if c.subject, err = registry.ParsePointer(r.Subject); err != nil || len(c.subject) == 0 {
		return c, errors.Join(errors.New("subject is missing, or no JSON pointer: write where the id of the person stands, such as /customer/id"), err)
	}
	if len(r.Fields) == 0 {
		return c, errors.New(`fields is missing: list JSON pointers to the private values, or "" for the whole payload`)
	}
	for _, text := range r.Fields {
		at, err := registry.ParsePointer(text)
		if err != nil {
			return c, fmt.Errorf("fields: %w", err)
		}
		for _, other := range c.at {
			if at.Overlaps(other) {
				return c, fmt.Errorf("fields: %s and %s overlap: leave out one", other, at)
			}
		}
		c.at = append(c.at, at)
	}
	return c, nil
}

// Places returns where a rule has private values of a type.
func (k *Keyring) Places(typ string) []registry.Pointer {
	if k == nil {
		return nil
	}
	return k.rules[typ].at
}

// Ruled returns the types with rules, in order.
func (k *Keyring) Ruled() []string { return slices.Sorted(maps.Keys(k.rules)) }

// SealByRules encrypts, as Seal does, the values that the rules name, of the notifications that have no encrypted ones
// yet. It changes the envelopes, and gives them metadata that they share with no other. A payload that is not JSON is
// left as it is if its fields are private.
func (k *Keyring) SealByRules(ctx context.Context, tx store.Execer, envelopes []notification.Envelope) error {
	var all []Sealing
	for i := range envelopes {
		e := &envelopes[i]
		if r, ruled := k.ruleOf(e); ruled {
			e.Metadata = e.Metadata.Clone()
			all = append(all, Sealing{e, []registry.PrivateValues{{Subject: r.subjectOf(e), At: r.at}}})
		}
	}
	return k.Seal(ctx, tx, all)
}

// ruleOf returns the rule for a notification that has no encrypted values yet.
func (k *Keyring) ruleOf(e *notification.Envelope) (rule, bool) {
	r, ruled := k.rules[e.Type]
	return r, ruled && e.Metadata.Get(notification.MetadataPrivateKeys) == "" && (isWhole(r.at) || json.Valid(e.Payload))
}

// Sealed is SealByRules with copies of the envelopes that it changes.
func (k *Keyring) Sealed(ctx context.Context, tx store.Execer, published []*notification.Envelope) ([]*notification.Envelope, error) {
	var copies []notification.Envelope
	var places []int
	for i, e := range published {
		if _, ruled := k.ruleOf(e); ruled {
			copies, places = append(copies, *e), append(places, i)
		}
	}
	if len(copies) == 0 {
		return published, nil
	}
	if err := k.SealByRules(ctx, tx, copies); err != nil {
		return nil, err
	}
	published = slices.Clone(published)
	for n, i := range places {
		published[i] = &copies[n]
	}
	return published, nil
}

// subjectOf returns the person of a notification.
func (r rule) subjectOf(e *notification.Envelope) (subject string) {
	_, _ = edit(e.Payload, []registry.Pointer{r.subject}, func(to, value []byte) []byte {
		var text string
		if json.Unmarshal(value, &text) == nil {
			subject = text
		} else if len(value) > 0 && value[0] != '{' && value[0] != '[' {
			subject = string(value)
		}
		return append(to, value...)
	})
	if subject == "" {
		return e.ID
	}
	return subject
}

// Without returns a payload without the values that the rule of its type names and that are not encrypted; ok is false if
// they are not those of the subject, or there are none.
func (k *Keyring) Without(e *notification.Envelope, subject string) (payload []byte, ok bool) {
	r, ruled := k.rules[e.Type]
	if !ruled || r.subjectOf(e) != subject {
		return nil, false
	}
	var err error
	removed := func(to, value []byte) []byte {
		if t, is := nextToken(value, 0); is && t.begin == 0 && t.end == len(value) {
			return append(to, value...) // it is encrypted
		}
		return append(to, null...)
	}
	payload = removed(nil, e.Payload)
	if !isWhole(r.at) {
		if payload, err = edit(e.Payload, r.at, removed); err != nil {
			return nil, false // it is not JSON, and was never encrypted
		}
	}
	return payload, !bytes.Equal(payload, e.Payload)
}

// wholeContentType returns the content type of a payload that is private as a whole.
func wholeContentType(original string) string {
	if original == "" {
		original = serializer.JSON{}.ContentType()
	}
	return mime.FormatMediaType(ContentType, map[string]string{"of": original})
}

// Move encrypts the values of a notification, which are part of another one now, for that, under the same keys. What
// cannot be decrypted is left as it is; with a nil Keyring that is everything.
func (k *Keyring) Move(ctx context.Context, from, to *notification.Envelope) error {
	ids := from.Metadata.Get(notification.MetadataPrivateKeys)
	if ids == "" {
		return nil
	}
	to.Metadata = to.Metadata.Clone()
	to.Metadata[notification.MetadataPrivateKeys] = ids
	if k == nil {
		return nil
	}
	keys, err := k.byID(ctx, strings.Fields(ids))
	if err != nil {
		return err
	}
	bound, other := boundTo(from), boundTo(to)
	for at := 0; ; {
		t, found := nextToken(to.Payload, at)
		if !found {
			return nil
		}
		at = t.end
		key := keys[t.id]
		if key == nil || key.aead == nil {
			continue
		}
		value, err := t.open(key.aead, bound)
		if err != nil {
			continue
		}
		if !json.Valid(value) {
			value, _ = json.Marshal(value) // base64; never fails for bytes
		}
		to.Payload, at = replaced(to.Payload, t, appendToken(nil, t.id, key.aead, value, other))
	}
}
