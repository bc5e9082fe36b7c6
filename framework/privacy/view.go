package privacy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/serializer"
	"github.com/waybill-go/waybill/sinks"
)

// ContentType is the content type of a payload that is private as a whole, with the original one as the
// parameter "of". Such a payload is the JSON text of a token.
const ContentType = "application/vnd.waybill.private+json"

// mask is what a masked value becomes.
const mask = `"***"`

// View is a notification as a sink sees it.
type View struct {
	// Envelope is the published one if nothing of it was changed.
	Envelope *notification.Envelope
	// Decrypted reports that it has private values.
	Decrypted bool
	// Revealed are the private texts and numbers in it, decoded, so that they can be removed from what the
	// sink reports.
	Revealed []string
	// Err is why it cannot be shown: ErrErased, ErrUnreadable, ErrMissing, ErrMaster, or an error of the store.
	Err error
}

// Views returns notifications as a sink sees them whose setting is show. What cannot be decrypted since its key
// was erased is dropped, or is ErrErased if refuseErased is set. It asks the database once for the keys that it does
// not know, and changes no envelope.
func (k *Keyring) Views(ctx context.Context, published []*notification.Envelope, show sinks.Private, refuseErased bool) []View {
	views := make([]View, len(published))
	if k != nil {
		sealed, err := k.Sealed(ctx, nil, published)
		if err != nil {
			for i := range views {
				views[i].Err = err
			}
			return views
		}
		published = sealed
	}
	var ids []string
	for i, e := range published {
		views[i].Envelope = e
		if is := e.Metadata.Get(notification.MetadataPrivateKeys); is != "" && show == sinks.PrivateReveal {
			ids = append(ids, strings.Fields(is)...)
		}
	}
	var keys map[string]*known
	var err error
	if len(ids) > 0 && k == nil {
		err = fmt.Errorf("%w: this outbox keeps no keys", ErrMissing)
	} else if len(ids) > 0 {
		keys, err = k.byID(ctx, ids)
	}
	for i, e := range published {
		if e.Metadata.Get(notification.MetadataPrivateKeys) == "" || show == sinks.PrivateKeep {
			continue
		}
		if show == sinks.PrivateReveal && err != nil {
			views[i].Err = err
			continue
		}
		views[i] = view(e, show, refuseErased, keys)
	}
	return views
}

func view(published *notification.Envelope, show sinks.Private, refuseErased bool, keys map[string]*known) View {
	e := *published
	v := View{Envelope: &e}
	e.Metadata = published.Metadata.Clone()
	delete(e.Metadata, notification.MetadataPrivateKeys)
	whole, original := wholeOf(published)
	bound := boundTo(published)
	its := strings.Fields(published.Metadata.Get(notification.MetadataPrivateKeys))
	for at := 0; ; {
		t, found := nextToken(e.Payload, at)
		if !found {
			break
		}
		if !slices.Contains(its, t.id) { // a text that someone has written like a token
			at = t.end
			continue
		}
		replacement := []byte(mask)
		switch key := keys[t.id]; {
		case show == sinks.PrivateMask:
		case show == sinks.PrivateDrop || key != nil && key.aead == nil:
			if show == sinks.PrivateReveal && refuseErased {
				return View{Err: fmt.Errorf("%w: the key %s of its private values", ErrErased, t.id)}
			}
			replacement = nil
		case key == nil:
			return View{Err: fmt.Errorf("%w: %s: restore the table of keys, or erase this key", ErrMissing, t.id)}
		default:
			value, err := t.open(key.aead, bound)
			if err == nil && (!whole || serializer.IsJSON(original)) && !json.Valid(value) {
				err = errJSON
			}
			if err != nil {
				return View{Err: fmt.Errorf("%w: a value was changed, or belongs to another notification: %w", ErrUnreadable, err)}
			}
			v.Decrypted, v.Revealed = true, appendTexts(v.Revealed, value)
			replacement = value
		}
		e.Payload, at = replaced(e.Payload, t, replacement)
	}
	if whole && v.Decrypted {
		e.Metadata[notification.MetadataContentType] = original
	} else if whole {
		e.Metadata[notification.MetadataContentType] = serializer.JSON{}.ContentType()
	}
	return v
}

var null = []byte("null")

// replaced returns a payload with something else in place of a token, and where to look for the next one. A value of
// nil removes the member of an object, and makes other values null.
func replaced(payload []byte, t token, value []byte) (changed []byte, next int) {
	begin, end := t.begin, t.end
	if value == nil {
		if b, e, is := t.member(payload); is {
			begin, end = b, e
		} else {
			value = null
		}
	}
	changed = make([]byte, 0, len(payload)-(end-begin)+len(value))
	changed = append(append(append(changed, payload[:begin]...), value...), payload[end:]...)
	return changed, begin + len(value)
}

// wholeOf reports whether a payload is private as a whole, and the content type of what is encrypted.
func wholeOf(e *notification.Envelope) (whole bool, original string) {
	media, parameters, err := mime.ParseMediaType(e.Metadata.Get(notification.MetadataContentType))
	return err == nil && media == ContentType, parameters["of"]
}

// appendTexts appends the texts and numbers in a JSON value; all of it if it is not JSON.
func appendTexts(to []string, value []byte) []string {
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	for {
		t, err := d.Token()
		switch t := t.(type) {
		case string:
			to = append(to, t)
		case json.Number:
			to = append(to, t.String())
		}
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return append(to, string(value))
		}
		if err != nil {
			return to
		}
	}
}
