package portal

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// masked stands for the value of an extra header, which is never shown.
const masked = "***"

// change has the settings of an endpoint that a request sends: as JSON, or made of a form. Those that are left
// out, or null, stay as they are; an empty one is the default.
type change struct {
	URL         *string            `json:"url"`
	Description *string            `json:"description"`
	Types       *[]string          `json:"types"`
	When        *string            `json:"when"`
	Headers     *map[string]string `json:"headers"` // all of them; masked keeps a value
	Rate        *string            `json:"rate"`
}

// newEndpoint is a change that makes an endpoint.
type newEndpoint struct {
	change
	Secret     string `json:"secret"`
	Asymmetric bool   `json:"asymmetric"`
}

// apply changes settings. It returns mistakes as package webhooks does.
func (c *change) apply(to *webhooks.Settings) error {
	set(&to.URL, c.URL)
	set(&to.Description, c.Description)
	set(&to.Types, c.Types)
	set(&to.When, c.When)
	var wrong []error
	if c.Headers != nil {
		headers, err := unmasked(*c.Headers, to.Headers)
		to.Headers, wrong = headers, append(wrong, err)
	}
	if c.Rate != nil {
		to.Rate = settings.Rate{}
		if *c.Rate != "" {
			rate, err := settings.ParseRate(*c.Rate)
			if to.Rate = rate; err != nil {
				wrong = append(wrong, invalid("rate", "%w", err))
			}
		}
	}
	return errors.Join(wrong...)
}

func set[T any](to, value *T) {
	if value != nil {
		*to = *value
	}
}

// unmasked returns the headers of a request. Those that are masked keep the value that they have.
func unmasked(sent, before map[string]string) (map[string]string, error) {
	has := make(map[string]string, len(before))
	for name, value := range before {
		has[http.CanonicalHeaderKey(name)] = value
	}
	all := make(map[string]string, len(sent))
	for name, value := range sent {
		if value == masked {
			kept, ok := has[http.CanonicalHeaderKey(name)]
			if !ok {
				return nil, invalid("headers", "%s has no value yet that %s could keep: write its value", name, masked)
			}
			value = kept
		}
		all[name] = value
	}
	return all, nil
}

// invalid returns a mistake in a field, as those of package webhooks.
func invalid(field, format string, args ...any) error {
	return fmt.Errorf("%w: %w", webhooks.ErrInvalid, &webhooks.FieldError{Field: field, Err: fmt.Errorf(format, args...)})
}
