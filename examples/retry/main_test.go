package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDeliveriesEndAsTheirPoliciesSay(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out))
	require.Contains(t, out.String(), "payment-1: retrying after attempt 3")
	require.Contains(t, out.String(), "closed for stocktaking")
}
