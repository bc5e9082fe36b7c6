package endpoint

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// Masked stands for the value of an extra header, which is never shown.
const Masked = "***"

// Change has the settings of an endpoint that someone sets. Those that are left out, or null, stay as they are; an
// empty one is the default.
type Change struct {
	URL         *string   `json:"url"`
	Description *string   `json:"description"`
	Types       *[]string `json:"types"`
	When        *string   `json:"when"`
	// Headers are all of them; Masked keeps a value.
	Headers *map[string]string `json:"headers"`
	Rate    *string            `json:"rate"`
}

// Apply changes settings. It returns mistakes as package webhooks does.
func (c *Change) Apply(to *webhooks.Settings) error {
	before := to.URL
	set(&to.URL, c.URL)
	set(&to.Description, c.Description)
	set(&to.Types, c.Types)
	set(&to.When, c.When)
	var wrong []error
	keeps := c.Headers == nil && len(to.Headers) > 0
	if c.Headers != nil {
		for _, value := range *c.Headers {
			keeps = keeps || value == Masked
		}
		headers, err := unmasked(*c.Headers, to.Headers)
		to.Headers, wrong = headers, append(wrong, err)
	}
	if c.Rate != nil {
		to.Rate = settings.Rate{}
		if *c.Rate != "" {
			rate, err := settings.ParseRate(*c.Rate)
			if to.Rate = rate; err != nil {
				wrong = append(wrong, invalid("rate", err))
			}
		}
	}
	if keeps && before != "" && hostOf(before) != hostOf(to.URL) {
		wrong = append(wrong, invalid("headers", errors.New("would go to another host: write their values again, or remove them")))
	}
	return errors.Join(wrong...)
}

// hostOf returns the part of a URL that says where a request goes.
func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return raw
	}
	return u.Scheme + "://" + u.Host
}

func set[T any](to, value *T) {
	if value != nil {
		*to = *value
	}
}

// unmasked returns the headers that someone has set. Those that are masked keep the value that they have.
func unmasked(sent, before map[string]string) (map[string]string, error) {
	all := make(map[string]string, len(sent))
	for name, value := range sent {
		all[name] = value
		if value != Masked {
			continue
		}
		kept := false
		for old, its := range before {
			if http.CanonicalHeaderKey(old) == http.CanonicalHeaderKey(name) {
				all[name], kept = its, true
			}
		}
		if !kept {
			return nil, invalid("headers", fmt.Errorf("%s has no value yet that %s could keep: write its value", name, Masked))
		}
	}
	return all, nil
}

// invalid returns a mistake in a field, as those of package webhooks.
func invalid(field string, err error) error {
	return fmt.Errorf("%w: %w", webhooks.ErrInvalid, &webhooks.FieldError{Field: field, Err: err})
}
