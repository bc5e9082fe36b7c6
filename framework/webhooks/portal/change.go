package portal

import (
	"fmt"

	"github.com/waybill-go/waybill/framework/internal/endpoint"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// masked stands for the value of an extra header, which is never shown.
const masked = endpoint.Masked

// change has the settings of an endpoint that a request sends: as JSON, or made of a form.
type change = endpoint.Change

// newEndpoint is a change that makes an endpoint.
type newEndpoint struct {
	change
	Secret     string `json:"secret"`
	Asymmetric bool   `json:"asymmetric"`
}

// invalid returns a mistake in a field, as those of package webhooks.
func invalid(field, format string, args ...any) error {
	return fmt.Errorf("%w: %w", webhooks.ErrInvalid, &webhooks.FieldError{Field: field, Err: fmt.Errorf(format, args...)})
}
