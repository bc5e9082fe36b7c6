package privacy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strings"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/serializer"
)

// Rule says where notifications of a type that programs insert with SQL have private values. The database cannot
// encrypt them: the log has them as they were inserted, until an erasure or retention removes them. What leaves the
// log is encrypted: parked deliveries, and what sinks see.
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

// SealByRules encrypts, as Seal does, the values that the rules name, of the notifications that have no encrypted ones
// yet. It changes the envelopes. A payload that is not JSON is left as it is if its fields are private.
func (k *Keyring) SealByRules(ctx context.Context, tx store.Execer, envelopes []notification.Envelope) error {
	if k == nil || len(k.rules) == 0 {
		return nil
	}
	var all []Sealing
	for i := range envelopes {
		e := &envelopes[i]
		r, ruled := k.rules[e.Type]
		if !ruled || e.Metadata.Get(notification.MetadataPrivateKeys) != "" || !isWhole(r.at) && !json.Valid(e.Payload) {
			continue
		}
		e.Metadata = e.Metadata.Clone() // rows may share it
		all = append(all, Sealing{e, []registry.PrivateValues{{Subject: r.subjectOf(e), At: r.at}}})
	}
	return k.Seal(ctx, tx, all)
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

// Without returns a payload without the values that the rule of its type names, and whether they are those of a
// subject.
func (k *Keyring) Without(e *notification.Envelope, subject string) (payload []byte, is bool, err error) {
	r, ruled := k.rules[e.Type]
	if !ruled || e.Metadata.Get(notification.MetadataPrivateKeys) != "" || r.subjectOf(e) != subject {
		return nil, false, nil
	}
	if isWhole(r.at) {
		return null, true, nil
	}
	payload, err = edit(e.Payload, append([]registry.Pointer{r.subject}, r.at...), func(to, _ []byte) []byte { return append(to, null...) })
	return payload, true, err
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
