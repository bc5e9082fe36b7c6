package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheFileHasWhatTheRoutePicks(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out))
	require.ElementsMatch(t, []string{
		`inspector: {"payment_id":"p-2","amount":2400,"card":"4111111111111111"}`,
		`audit: shop.opened {"city":"Vienna"}`,
		`audit: payment.made {"amount":12.5,"payment":"p-1"}`,
		`audit: payment.made {"amount":2400,"payment":"p-2"}`,
	}, strings.Split(strings.TrimSpace(out.String()), "\n"))
}
