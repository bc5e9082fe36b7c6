package endpoint_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/internal/endpoint"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// Otherwise someone who may change the address could read the values of headers, which are never shown.
func TestHeadersThatAreKeptGoToNoOtherHost(t *testing.T) {
	t.Parallel()
	for url, refused := range map[string]bool{
		"https://acme.example/new":      false,
		"https://acme.example:8443/new": true,
		"http://acme.example/hooks":     true,
		"https://evil.example/hooks":    true,
	} {
		for _, headers := range []*map[string]string{nil, {"X-Token": endpoint.Masked}} {
			to := webhooks.Settings{URL: "https://acme.example/hooks", Headers: map[string]string{"X-Token": "secret"}}
			err := (&endpoint.Change{URL: &url, Headers: headers}).Apply(&to)
			if refused {
				require.ErrorIs(t, err, webhooks.ErrInvalid, url)
				require.Equal(t, "headers", webhooks.FieldErrors(err)[0].Field)
				continue
			}
			require.NoError(t, err, url)
			require.Equal(t, "secret", to.Headers["X-Token"])
		}
		to := webhooks.Settings{URL: "https://acme.example/hooks", Headers: map[string]string{"X-Token": "secret"}}
		require.NoError(t, (&endpoint.Change{URL: &url, Headers: &map[string]string{"X-Token": "again"}}).Apply(&to))
		require.Equal(t, "again", to.Headers["X-Token"])
	}
}
